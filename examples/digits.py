"""An ℓ∞-dist net for handwritten digits, whose robustness is proved: a whole training in one file.

The data are scikit-learn's 8×8 digits. Every layer computes distances, so that the network is 1-Lipschitz in ℓ∞:
if the largest output leads the second by a margin m, no change of the pixels by less than m/2 can change the
prediction (Fact 3.6). Training follows Section 5 of the paper: p grows from 8 to 1000, then is infinite.

    python examples/digits.py
"""

import math
import time

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

import linfdist as ld

SEED = 0
TEST_IMAGES = 450
WIDTH = 256
EPOCHS_P8, EPOCHS_RAMP, EPOCHS_INF = 30, 230, 40
BATCH = 64
LEARNING_RATE = 0.02
THRESHOLD = 0.5  # the margin that training asks for: twice the radius one would like
EPSILONS = (0.02, 0.05, 0.1, 0.15, 0.2)


class DistLayer(nn.Module):
    """Distances to the rows of a weight matrix, less their mean over the data: the shift keeps it 1-Lipschitz."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        if inputs == outputs:  # neuron k starts as a copy of input k: |x_k + 10| = x_k + 10 is the largest distance
            self.weight.data.fill_diagonal_(-10.0)
        self.register_buffer("mean", torch.zeros(outputs))

    def forward(self, x: Tensor, p: float) -> Tensor:
        y = ld.dist(x, self.weight, p)  # (B, O)
        if not self.training:
            return y - self.mean
        mean = y.mean(0)
        self.mean.lerp_(mean.detach(), 0.1)
        return y - mean


class DigitsNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.ModuleList([DistLayer(64, WIDTH), DistLayer(WIDTH, WIDTH)])
        self.weight = nn.Parameter(torch.randn(10, WIDTH))
        self.bias = nn.Parameter(torch.zeros(10))

    def forward(self, x: Tensor, p: float = math.inf) -> Tensor:
        for layer in self.hidden:
            x = layer(x, p)
        return -ld.dist(x, self.weight, p) - self.bias  # (B, 10): the nearest class wins

    def reach(self) -> float:
        """A bound on all numbers inside the network, over all images: the box [0, 1] pushed through the layers."""
        lower, upper = torch.zeros(1, 64), torch.ones(1, 64)
        sizes = []
        for layer in self.hidden:
            lower, upper = ld.dist_box(lower, upper, layer.weight)
            sizes += [upper.max(), layer.mean.abs().max()]
            lower, upper = lower - layer.mean, upper - layer.mean
            sizes += [lower.abs().max(), upper.abs().max()]
        farthest = ld.dist_box(lower, upper, self.weight)[1]
        return float(max(*sizes, farthest.max() + self.bias.abs().max()))


def load_data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images and labels, test images and labels; pixels in [0, 1]."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(images))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return images[train], labels[train], images[test], labels[test]


def hinge(z: Tensor, label: Tensor) -> Tensor:
    """How far each other class is from trailing by the threshold: mostly the worst one counts."""
    lack = (z - z.gather(1, label[:, None]) + THRESHOLD).clamp(min=0)
    lack = lack.scatter(1, label[:, None], 0.0)
    return (0.75 * lack.amax(1) + 0.25 * lack.mean(1)).mean()


def schedule(epoch: float) -> tuple[float, float]:
    """p and the learning rate."""
    progress = max(0.0, epoch - EPOCHS_P8)
    p = 8 * (1000 / 8) ** (progress / EPOCHS_RAMP) if progress < EPOCHS_RAMP else math.inf
    return p, LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * progress / (EPOCHS_RAMP + EPOCHS_INF)))


def train(net: DigitsNet, images: Tensor, labels: Tensor) -> None:
    optimiser = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.99), eps=1e-10)
    batches = len(images) // BATCH
    net.train()
    for epoch in range(EPOCHS_P8 + EPOCHS_RAMP + EPOCHS_INF):
        total = 0.0
        for number, batch in enumerate(torch.randperm(len(images))[: batches * BATCH].view(batches, BATCH)):
            p, optimiser.param_groups[0]["lr"] = schedule(epoch + number / batches)
            loss = hinge(net(images[batch], p), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item()
        if epoch % 30 == 29:
            print(f"epoch {epoch + 1:3d}   p {p:6.4g}   loss {total / batches:.3f}", flush=True)
    net.eval()


@torch.no_grad()
def margins(net: DigitsNet, images: Tensor, labels: Tensor) -> Tensor:
    """By how much the true class leads the best other one at p = inf; negative where the prediction is wrong."""
    z = net(images).double()
    truth = z.gather(1, labels[:, None]).squeeze(1)
    return truth - z.scatter(1, labels[:, None], -math.inf).amax(1)


@torch.no_grad()
def rounding_slack(net: DigitsNet) -> float:
    """What rounding can add to a margin: 7 operations on the way to an output, each wrong by at most half a unit in
    the last place of a float32 below `reach`; a margin compares two outputs, at the image and at its neighbour."""
    return 2 * 2 * 7 * net.reach() * 2.0**-24 * 1.01


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # layers this small gain nothing from a second one
    images, labels, test_images, test_labels = load_data()
    net = DigitsNet()
    start = time.perf_counter()
    train(net, images, labels)
    print(f"trained on {len(images)} images in {time.perf_counter() - start:.0f} s")

    slack = rounding_slack(net)
    lead = margins(net, test_images, test_labels)
    table = Table(title=f"{len(lead)} test images", title_justify="left")
    table.add_column("pixels may change by")
    table.add_column("proved right", justify="right")
    table.add_row("nothing (accuracy)", f"{100 * (lead > 0).double().mean():.1f} %")
    for epsilon in EPSILONS:
        table.add_row(f"ε = {epsilon}", f"{100 * (lead > 2 * epsilon + slack).double().mean():.1f} %")
    Console().print(table)
    print(f"(margin > 2 ε + {slack:.1e}, the last for rounding)")


if __name__ == "__main__":
    main()
