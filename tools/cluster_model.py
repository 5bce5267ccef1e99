"""What a training step costs on N GPUs, by a simple model: the tables of docs/cluster.md. Nothing here was measured.

    python -m tools.cluster_model

The time of a step on one GPU is the authors'. Over N GPUs the batch is split; gradients are averaged by a ring, whose
every link carries 2 (N - 1) / N times their bytes; the update of the weights, and the small sums of mean shifts, are
not split.
"""

from dataclasses import dataclass

from linfdist import data, recipes

HEAD = 512  # hidden neurons of the MLP head
FLOAT = 4  # bytes
ADAM = 7 * FLOAT  # bytes a weight that an update moves: weight, gradient and two moments read; three of them written
MEMORY = 936e9  # bytes a second: RTX 3090, on which the steps below were timed
BACKWARD = 2 / 3  # the backward's part of a step's arithmetic: two of three passes over all pairs
CIFAR_STEPS = 50000 // 512  # an epoch of the paper

STEPS = {  # seconds, CIFAR-10 network of width 5120, batch 512, one RTX 3090
    "the paper, 19.7 s an epoch": 19.7 / CIFAR_STEPS,
    "second code, any p": 0.187,
    "second code, whole p": 0.113,
    "second code, p = ∞": 0.080,
}


@dataclass(frozen=True)
class Cluster:
    """Machines of `gpus` GPUs each. Bytes a second are one way, and what is left of the nominal rate: 80 %."""

    title: str
    machines: int
    gpus: int
    inside: float  # between the GPUs of a machine
    network: float  # between machines, for each machine
    small: float  # seconds of a sum over a few thousand numbers

    @property
    def size(self) -> int:
        """All GPUs."""
        return self.machines * self.gpus

    def ring(self, size: float) -> float:
        """Return the seconds that averaging so many bytes takes: within machines, then between them."""

        def share(parts: int) -> float:
            return 2 * (parts - 1) / parts * size

        return share(self.gpus) / self.inside + share(self.machines) / self.network


def gigabits(rate: float) -> float:
    """Return what is left of a nominal rate, in bytes a second."""
    return 0.8 * rate * 1e9 / 8


PCIE, NVLINK = gigabits(256), gigabits(2400)  # PCIe 4.0 × 16; the third NVLink's 300 GB/s
CLUSTERS = [
    Cluster("8: one machine, PCIe 4.0", 1, 8, PCIE, 1, 30e-6),
    Cluster("8: one machine, NVLink 3", 1, 8, NVLINK, 1, 30e-6),
    Cluster("8: 8 × 1, 100 Gb/s", 8, 1, NVLINK, gigabits(100), 60e-6),
    Cluster("64: 8 × 8, NVLink 3, 100 Gb/s", 8, 8, NVLINK, gigabits(100), 90e-6),
    Cluster("64: 8 × 8, NVLink 3, 200 Gb/s", 8, 8, NVLINK, gigabits(200), 90e-6),
    Cluster("64: 8 × 8, NVLink 3, 400 Gb/s", 8, 8, NVLINK, gigabits(400), 90e-6),
]


@dataclass(frozen=True)
class Network:
    """The sizes of a recipe's network."""

    title: str
    weights: int
    first: int  # weights of the first layer, whose gradient comes last
    shifts: int  # layers with a mean shift

    @classmethod
    def of(cls, name: str) -> "Network":
        """Count the weights of a recipe of the paper."""
        recipe = recipes.load(name)
        info = data.info(recipe.data)
        channels, height, width = info.shape
        pixels = channels * (recipe.crop or height) * (recipe.crop or width)
        hidden = recipe.depth if recipe.model == "dist_net_mlp" else recipe.depth - 1
        first = pixels * recipe.width
        inner = (hidden - 1) * recipe.width**2
        last = recipe.width * info.num_classes + info.num_classes
        if recipe.model == "dist_net_mlp":
            last = (recipe.width + 1) * HEAD + (HEAD + 1) * info.num_classes
        return cls(name, first + inner + last, first, hidden)

    @property
    def gradient(self) -> float:
        """The bytes of all gradients."""
        return float(FLOAT * self.weights)


@dataclass(frozen=True)
class Step:
    """A step on a cluster, in seconds."""

    arithmetic: float
    update: float
    ring: float  # averaging the gradients
    small: float  # sums of mean shifts and of the loss
    exposed: float  # of the ring, if the backward hides what it can

    @property
    def apart(self) -> float:
        """Return its length if averaging begins after the backward."""
        return self.arithmetic + self.update + self.small + self.ring

    @property
    def overlapped(self) -> float:
        """Return its length if averaging goes on during the backward."""
        return self.arithmetic + self.update + self.small + self.exposed


def step(network: Network, cluster: Cluster, alone: float, grows: bool) -> Step:
    """Model a step that takes `alone` seconds on one GPU. `grows`: each GPU gets the whole batch, not its share."""
    update = ADAM * network.weights / MEMORY
    arithmetic = (alone - update) / (1 if grows else cluster.size)
    ring = cluster.ring(network.gradient)
    first = cluster.ring(FLOAT * network.first)  # nothing is left to hide the first layer behind
    exposed = max(first, ring - BACKWARD * arithmetic)
    small = (2 * network.shifts + 2) * cluster.small  # forward and backward; the loss; whether to stop
    return Step(arithmetic, update, ring, small, exposed)


def percent(value: float) -> str:
    """Write a share, rounded."""
    return f"{100 * value:.0f} %"


def tables() -> str:
    """Write both tables."""
    lines = ["| network | weights | gradients |", "|---|--:|--:|"]
    for name in ("mnist", "mnist-mlp", "cifar10", "cifar10-mlp", "tinyimagenet-mlp"):
        network = Network.of(name)
        lines.append(f"| `{name}` | {network.weights / 1e6:.1f}M | {network.gradient / 2**20:.0f} MiB |")
    network = Network.of("cifar10")
    lines += [
        "",
        "| GPUs | averaging the gradients | " + " | ".join(f"{1000 * alone:.0f} ms" for alone in STEPS.values()) + " |",
        "|---|--:|" + "--:|" * len(STEPS),
    ]
    for cluster in CLUSTERS:
        cells = []
        for alone in STEPS.values():
            split, grown = (step(network, cluster, alone, grows) for grows in (False, True))
            same = (alone / cluster.size / length for length in (split.apart, split.overlapped))
            larger = (alone / length for length in (grown.apart, grown.overlapped))
            cells.append(f"{' … '.join(map(percent, same))}; {' … '.join(map(percent, larger))}")
        ring = 1000 * cluster.ring(network.gradient)
        lines.append(f"| {cluster.title} | {ring:.1f} ms | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(tables())
