"""Certificates of random networks, attacked to the last float of what they claim: one case for each seed."""

import itertools
import math
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import linfdist as ld
from linfdist import nn
from linfdist.attacks import attack
from linfdist.baselines import ReLUNet
from linfdist.exact import FrozenNet, as_floats, freeze
from linfdist.export import to_onnx
from linfdist.files import save_tensors
from linfdist.models import ConvDistNet, ConvDistNetMLP, DistNet, DistNetMLP, Mean, PixelNet, as_network, load, save
from linfdist.ops.adam import adam_step
from linfdist.training.losses import hinge_loss

KINDS = (
    *("plain", "per class", "pool", "clip", "head", "convolution", "mean", "mean of heads", "ReLU", "ONNX"),
    *("plain convolution", "mirror pairs", "own layers", "own layers from a file"),
    *("exact", "exact per class", "exact pool", "exact clip", "exact head"),
)
LINEAR = ("crown-ibp", "crown", "fast-lin", "zonotope")  # methods for ReLU networks
IMAGES = 40
SIZES = (1e-38, 1e-30, 1e-3, 1.0, 30.0, 1e5, 1e30)  # of weights
STDS = (1e-30, 1e-3, 0.1, 0.31, 1.0, 30.0, 1e6)
BEYOND = "four times the radius"  # where attacks may succeed
RANDOM = 256  # attempts of each kind
FEW_CORNERS = 9  # pixels: all corners of a ball are tried up to here

Network = PixelNet | FrozenNet


@dataclass
class Case:
    """A network, images and a question, all of which follow from the seed; `about` says in words what was chosen."""

    seed: int
    network: Network
    x: Tensor  # float pixels, or uint8 for exact networks
    method: str
    eps: str | Tensor | None
    about: dict[str, Any]
    session: Any = None  # of onnxruntime, which then states the radii and computes the classes


@dataclass
class Found:
    """What attacks have made of a case. broken: images that contradict their certificate, by the words for it."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: dict[str, Tensor] = field(default_factory=dict)


def make_case(seed: int) -> Case:
    """Build the case of that seed."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    kind = draw.choice(KINDS)
    ordinary = kind.startswith("exact") or draw.random() < 0.6
    about: dict[str, Any] = {
        "kind": kind,
        "shape": draw.choice([(1, 1, 1), (1, 1, 2), (1, 2, 2), (1, 3, 3), (1, 3, 3), (3, 2, 2), (1, 5, 4), (1, 6, 6)]),
        "classes": draw.choice([2, 3, 4, 7]),
        "width": draw.choice([1, 3, 8, 17, 24]),
        "depth": draw.choice([1, 2, 3, 5]),
        "std": draw.choice(STDS[2:5] if ordinary else STDS),
        "size": 1.0 if ordinary else draw.choice(SIZES),
        "steps": draw.choice([0, 20, 40, 60]) if ordinary else 0,
        "mean_shift": draw.random() < 0.7,
        "double": not kind.startswith(("exact", "ONNX")) and draw.random() < 0.15,
        "images": draw.choice(["bytes", "floats", "corners", "tiny", "nearly one"]),
        "threads": draw.choice([1, 1, 1, 2]),
        "flush": draw.random() < 0.15,
        "views": draw.choice([("same",), ("same", "mirror")]) if kind.startswith("mean") else None,
        "pool": draw.choice([[1], [1, 2], [2]]) if "pool" in kind else [],
        "clip": draw.choice([[0.0, 0.5], [0.25, 0.75], [0.4, 0.41], [0.1, 1.0]]) if "clip" in kind else None,
        "mirror_pairs": kind in ("mirror pairs", "ONNX") and draw.random() < 0.8,
    }
    if "own layers" in kind:
        about["layers"] = _own(draw)
    if kind == "ONNX":  # means, which a runtime may take in another order, and clips
        about |= {"pool": draw.choice([[], [1, 2]]), "clip": draw.choice([None, [0.2, 0.9]])}
        about["per_class"] = draw.choice([1, 3])
    if 2 in about["pool"]:
        about["shape"] = draw.choice([(1, 2, 2), (1, 4, 4), (3, 2, 2), (1, 6, 6)])
    if about["views"] and min(about["shape"][1:]) > 1 and draw.random() < 0.5:
        about["views"] = ("same", "shift:1,-1")
    network = _network(about)
    x = _images(about, kind.startswith("exact"))
    methods = ["box", *LINEAR] if kind == "ReLU" else ["box", "margin"]
    method, eps = draw.choice(methods), draw.choice([None, "1/255", "0.05", "8/255", "0.3", "1e-9"])
    if kind == "exact head":
        method = "box"
    tiny = kind == "plain" and ordinary and math.prod(about["shape"]) <= 4 and about["width"] <= 3
    if tiny and about["depth"] <= 2 and draw.random() < 0.3:
        method = "milp"
    boxes: str | Tensor | None = eps
    if method not in ("margin", "milp") and not kind.startswith("exact") and draw.random() < 0.3:
        boxes = _box(x, draw)
    session = None
    if kind == "ONNX":
        session, method, boxes = _session(network, draw.random() < 0.5), "the graph's own", None
    about |= {"method": method, "eps": "one number a pixel" if isinstance(boxes, Tensor) else boxes}
    return Case(seed, network, x, method, boxes, about, session)


def _session(network: Network, optimised: bool) -> Any:
    """Write the network as ONNX and open it in onnxruntime, with all of its optimisations or with none."""
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        assert isinstance(network, PixelNet)
        to_onnx(network, Path(folder) / "model.onnx")
        return onnxruntime.InferenceSession(str(Path(folder) / "model.onnx"), options)


def _stated(session: Any, x: Tensor) -> ld.Certificate:
    """Return what the graph states about images, as a certificate."""
    logits, radius = (torch.from_numpy(each) for each in session.run(None, {"images": x.numpy()}))
    return ld.Certificate(logits.argmax(1), radius, None)


def _network(about: dict[str, Any]) -> Network:
    kind = about["kind"]
    if kind.startswith("mean"):
        member = {**about, "kind": "head" if "head" in kind else "plain"}
        return Mean([_float_network(member) for _ in range(2)], views=about["views"]).eval()
    network = _float_network(about)
    return freeze(network) if kind.startswith("exact") else network


def _float_network(about: dict[str, Any]) -> PixelNet:
    kind, shape, width, depth = about["kind"], about["shape"], about["width"], about["depth"]
    mean = [0.3] * shape[0]
    network: PixelNet
    if kind == "ReLU":
        hidden = [width] * min(depth, 3)
        network = ReLUNet(shape, about["classes"], mean, about["std"], hidden=hidden)
    elif "head" in kind:
        network = DistNetMLP(shape, about["classes"], width, depth, mean, about["std"], head=8)
    elif "own layers" in kind:
        network = _own_network(about)
    elif kind == "convolution":
        network = ConvDistNetMLP(shape, about["classes"], 3, 4, mean, about["std"], head=8)
    elif kind == "plain convolution":
        network = ConvDistNet(shape, about["classes"], 3, 4, mean, about["std"], dense=8, per_class=2)
    else:
        network = DistNet(
            shape, about["classes"], width, depth, mean, about["std"], mean_shift=about["mean_shift"],
            per_class=about.get("per_class", 3 if "per class" in kind else 1), pool=about["pool"], clip=about["clip"],
            mirror_pairs=about["mirror_pairs"],
        )  # fmt: skip
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name.endswith("weight"):
                tensor.mul_(about["size"])
            elif name.endswith(("bias", "running_mean")):
                tensor.copy_(torch.randn_like(tensor) * min(about["size"], 1e30))
    if about["steps"]:
        _train(network, about)
    if kind == "own layers from a file":
        with tempfile.TemporaryDirectory() as folder:
            save(network.eval(), Path(folder) / "model.safetensors")
            loaded = load(Path(folder) / "model.safetensors")
        assert isinstance(loaded, PixelNet)
        network = loaded
    return network.eval().double() if about["double"] else network.eval()


def _own(draw: random.Random) -> dict[str, Any]:
    """Choose layers in an order of one's own: what comes before the vector, in it, and the readout."""
    before = draw.sample(["mirror pairs", "clip", "mirror", "shift", "convolution"], draw.randrange(4))
    vector = draw.choices(["dist", "dist with bias", "shift of means", "ReLU"], k=draw.randrange(5))
    return {"before": before, "pool": draw.choice([None, None, [1], [1, 2]]), "vector": vector,
            "readout": draw.choice(["nearest", "three neurons", "head", "logits"]),
            "normalised": draw.choice(["first", "last", "never"])}  # fmt: skip


def _own_network(about: dict[str, Any]) -> PixelNet:
    """Put layers into a plain Sequential of torch, and make a network of it."""
    (channels, height, width), chosen = about["shape"], about["layers"]
    own: list[torch.nn.Module] = []
    for name in chosen["before"]:
        if name == "mirror pairs":
            own.append(nn.MirrorPairs())
        elif name == "clip":
            own.append(nn.Clip(0.2, 0.9))
        elif name == "mirror" or min(height, width) == 1:
            own.append(nn.View("mirror"))
        elif name == "shift":
            own.append(nn.View("shift:1,-1"))
        else:
            own.append(nn.DistConv2d(channels, channels, 3, padding=1, bias=True))
    if chosen["normalised"] != "never":
        place = 0 if chosen["normalised"] == "first" else len(own)
        own.insert(place, nn.Normalize([0.3] * channels, about["std"]))
    sizes = [k for k in chosen["pool"] or [] if k <= min(height, width)]
    own.append(nn.MeanPool(sizes) if sizes else torch.nn.Flatten())
    features = sum(channels * (height // k) * (width // k) for k in sizes or [1])
    for name in chosen["vector"]:
        if name.startswith("dist"):
            own.append(nn.DistLinear(features, about["width"], bias=name != "dist"))
            features = about["width"]
        else:
            own.append(nn.MeanShift(features) if name == "shift of means" else torch.nn.ReLU())
    if chosen["readout"] == "head":
        own.append(nn.Head(features, 8, about["classes"]))
    elif chosen["readout"] == "logits":
        own.append(nn.DistLinear(features, about["classes"], bias=True))
    else:
        own.append(nn.NearestClass(features, about["classes"], 3 if chosen["readout"] == "three neurons" else 1))
    network = as_network(torch.nn.Sequential(*own), about["shape"])
    assert isinstance(network, PixelNet)
    return network


def _train(network: PixelNet, about: dict[str, Any]) -> None:
    """Train for a few steps: which part of the image is brightest?

    Only networks that know something have classes to change.
    """
    network.train()
    x = torch.rand(64, *about["shape"])
    flat = x.flatten(1)
    parts = torch.stack([part.mean(1) for part in flat.tensor_split(min(about["classes"], flat.shape[1]), dim=1)], 1)
    y = parts.argmax(1) if parts.shape[1] > 1 else (flat[:, 0] > 0.5).long()
    learned = {name: p for name, p in network.named_parameters() if p.requires_grad}
    moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in learned.items()}
    for step in range(1, about["steps"] + 1):
        network.zero_grad()
        hinge_loss(network(x, 8.0 if step < 15 else math.inf), y, 0.3 / about["std"]).backward()
        with torch.no_grad():
            for name, p in learned.items():
                if p.grad is not None:
                    adam_step(
                        p, p.grad, *moments[name], lr=0.03, betas=(0.9, 0.99), eps=1e-10, decay=0.0, p=2.0, step=step
                    )


def _images(about: dict[str, Any], exact: bool) -> Tensor:
    shape = (IMAGES, *about["shape"])
    if exact:
        levels = torch.randint(256, shape) if about["images"] != "corners" else 255 * torch.randint(2, shape)
        return levels.to(torch.uint8)
    dtype = torch.float64 if about["double"] else torch.float32
    if about["images"] == "bytes":
        return torch.randint(256, shape).to(dtype) / 255
    if about["images"] == "corners":
        return torch.where(torch.rand(shape) < 0.5, -0.0, 1.0).to(dtype)
    x = torch.rand(shape, dtype=dtype)
    if about["images"] == "tiny":
        return torch.where(torch.rand(shape) < 0.5, x * torch.finfo(dtype).tiny, x)
    if about["images"] == "nearly one":
        return torch.where(torch.rand(shape) < 0.5, 1 - torch.finfo(dtype).eps / 2, x)
    return x


def _box(x: Tensor, draw: random.Random) -> Tensor:
    """Radii by pixel: of many sizes, in a shape that broadcasts to x."""
    shape = draw.choice([(*x.shape,), (1, *x.shape[1:]), (len(x), 1, 1, 1), (*x.shape[2:],), ()])
    sizes = torch.tensor([0.0, 5e-324, 1e-45, 1e-9, 0.01, 0.05, 0.3, 1.0], dtype=torch.float64)
    eps = sizes[torch.randint(len(sizes), shape)] * torch.rand(shape, dtype=torch.float64)
    return eps.to(draw.choice([torch.float64, torch.float32]))


def run_case(case: Case) -> Found:
    """Certify, then attack whatever was proved."""
    threads = torch.get_num_threads()
    torch.set_num_threads(case.about["threads"])
    flushed = case.about["flush"] and torch.set_flush_denormal(True)
    try:
        if case.session is None:
            proof = ld.certify(case.network, case.x, case.eps, method=case.method)
        else:
            proof = _stated(case.session, case.x)
        torch.set_num_threads(1)  # proved by several, attacked by one
        if flushed:
            torch.set_flush_denormal(False)  # proved by a thread that flushes, attacked by one that does not
        return _attack_all(case, proof)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


def _attack_all(case: Case, proof: ld.Certificate) -> Found:
    found = Found(Counter({"networks": 1, "certificates": len(case.x)}))
    radius = proof.radius
    sound = radius.isfinite() & (radius >= 0)
    if not sound.all():
        found.broken["a radius is no number"] = case.x[~sound]
        return found
    reach = radius.clamp(max=1.0)[:, None, None, None].expand(case.x.shape)
    _attack(case, proof, reach, radius > 0, found, "radius")
    if case.eps is not None and proof.certified is not None:
        if isinstance(case.eps, Tensor):
            box = case.eps.double().broadcast_to(case.x.shape)
        else:
            exact = Fraction(case.eps)
            below = float(exact) if Fraction(float(exact)) <= exact else math.nextafter(float(exact), 0.0)
            box = torch.full(case.x.shape, below, dtype=torch.float64)
        _attack(case, proof, box, proof.certified, found, "eps")
    if (radius > 0).any():  # that these attacks break anything at all
        beyond = Found()
        _attack(case, proof, (4 * reach).clamp(max=1.0), radius > 0, beyond, BEYOND)
        found.counts["images broken at four times the radius"] += beyond.counts["broken"]
    del found.counts["broken"]
    return found


def _attack(case: Case, proof: ld.Certificate, reach: Tensor, claimed: Tensor, found: Found, what: str) -> None:
    """Try images within `reach` of those that are `claimed`; keep those whose class changes."""
    rows = claimed.nonzero()[:, 0]
    if not len(rows):
        return
    found.counts["certificates attacked"] += len(rows)
    x, prediction, reach = case.x[rows], proof.prediction[rows], reach[rows].double()
    if isinstance(case.network, FrozenNet):
        network, inside = case.network, _levels(case.network, x, reach)
        classes: Callable[[Tensor], Tensor] = lambda images: network(images).argmax(1)  # noqa: E731
        attempts = _integer_attempts(network, x, prediction, inside)
    else:
        classes, inside = _classes(case.network), _floats(x, reach)
        if (session := case.session) is not None:
            classes = lambda images: _stated(session, images).prediction  # noqa: E731
        attempts = _float_attempts(case.network, x, prediction, inside, reach, case.seed % 4 == 0)
    fooled = torch.zeros_like(prediction, dtype=torch.bool)
    for name, some in attempts:
        images = some.reshape(-1, *x.shape)  # (K, B, C, H, W)
        found.counts["attacked images"] += images.shape[0] * len(x)
        wrong = classes(images.flatten(0, 1)).view(-1, len(x)) != prediction
        fooled |= wrong.any(0)
        if wrong.any() and what != BEYOND:
            found.broken[f"{what} by {name}"] = torch.stack([x.expand_as(images)[wrong], images[wrong]])
            break
        if fooled.all() or (what == BEYOND and name.startswith("the attack")):
            break
    found.counts["broken"] += int(fooled.sum())


def _classes(network: PixelNet) -> Callable[[Tensor], Tensor]:
    """Return a function that classifies images.

    It gives -1 where a head, whose sums depend on how many images there are, gives several classes.
    """

    @torch.no_grad()
    def classes(images: Tensor) -> Tensor:
        found = network(images).argmax(1)
        if network.readout.lipschitz is None:
            few = 3 if len(images) <= IMAGES else 97
            alone = torch.cat([network(part).argmax(1) for part in images.split(few)])
            found = torch.where(found == alone, found, -1)
        return found

    return classes


Inside = Callable[[Tensor], Tensor]


def _floats(x: Tensor, reach: Tensor) -> Inside:
    """From any images to the nearest ones within `reach` (float64) of x in exact arithmetic, and within [0, 1]."""
    exact = x.double()

    def too_far(images: Tensor) -> Tensor:
        a, b = images.double(), exact
        near = a - b
        part = near - a
        rest = (a - (near - part)) - (b + part)  # Knuth: near + rest is the difference, exactly
        rest = torch.where(near < 0, -rest, rest)
        return (near.abs() > reach) | ((near.abs() == reach) & (rest > 0))

    def inside(images: Tensor) -> Tensor:
        lower, upper = (exact - reach).clamp(0, 1), (exact + reach).clamp(0, 1)
        moved = images.double().clamp(lower, upper).to(x.dtype).clamp(0, 1)
        for _ in range(3):
            moved = torch.where(too_far(moved), torch.nextafter(moved, x), moved)
        return torch.where(too_far(moved), x, moved)

    return inside


def _levels(network: FrozenNet, x: Tensor, reach: Tensor) -> Inside:
    """Do the same as `_floats` for whole levels, within the network's domain."""
    near = [math.floor(255 * Fraction(each)) for each in reach.flatten(1)[:, 0].tolist()]
    most = torch.tensor([k if Fraction(k, 255) <= 1 else 255 for k in near])[:, None, None, None]
    low, high = network.lower.long(), network.upper.long()

    def inside(images: Tensor) -> Tensor:
        moved = torch.minimum(torch.maximum(images.long(), x.long() - most), x.long() + most)
        return torch.minimum(torch.maximum(moved, low), high).to(torch.uint8)

    return inside


def _float_attempts(
    network: PixelNet, x: Tensor, prediction: Tensor, inside: Inside, reach: Tensor, thorough: bool
) -> Iterator[tuple[str, Tensor]]:
    with torch.no_grad():
        yield from _anywhere(x, inside, 9.0)
        yield "a coordinate search", _coordinates(network, x, prediction, inside, start=int(torch.randint(2, ())))
    classes = network(x[:1]).shape[1]
    for p in (8.0, 60.0, math.inf):
        for other in range(classes):
            yield f"sign steps at p = {p}", _sign_steps(network, x, prediction, inside, p, other, reach)
    if x.dtype == torch.float32:
        radii = [Fraction(min(1.0, each)) for each in reach.flatten(1).amin(1).tolist()]
        for name in ("pgd", "strong") if thorough else ("pgd",):
            yield f"the attack {name}", inside(attack(name)(network, x, prediction, radii).images)


def _integer_attempts(
    network: FrozenNet, x: Tensor, prediction: Tensor, inside: Inside
) -> Iterator[tuple[str, Tensor]]:
    yield from _anywhere(x, inside, 999.0)
    floats = as_floats(network)
    pixels = x.float() / 255
    for p in (8.0, 60.0):
        for other in range(floats.classes):
            start = pixels.clone().requires_grad_()
            z = floats(start, p)
            (slope,) = torch.autograd.grad((z[:, other] - z.gather(1, prediction[:, None])[:, 0]).sum(), start)
            yield f"a sign step at p = {p}", inside(x.long() + 999 * slope.nan_to_num().sign().long())


def _anywhere(x: Tensor, inside: Inside, far: float) -> Iterator[tuple[str, Tensor]]:
    """Corners of the balls, all of them if pixels are few, and random images inside. far: out of every ball."""
    pixels = x[0].numel()
    base = x.double()
    if pixels <= FEW_CORNERS:
        signs = torch.tensor(list(itertools.product((-far, far), repeat=pixels)), dtype=torch.float64)
        yield "a corner", inside(base + signs.view(-1, 1, *x.shape[1:]))
    shape = (RANDOM, *x.shape)
    corner = inside(base + far * torch.randn(shape).sign().double()).double()
    yield "a random corner", inside(corner)
    yield "a random inside", inside(base + (corner - base) * torch.rand(shape))
    yield "a few pixels", inside(torch.where(torch.rand(shape) < 0.3, corner, base))


def _sign_steps(
    network: PixelNet, x: Tensor, prediction: Tensor, inside: Inside, p: float, other: int, reach: Tensor
) -> Tensor:
    """Three steps up the lead of one class, the first as far as the ball goes."""
    images = x
    for step in (2.0, 1.0, 0.5):
        start = images.detach().clone().requires_grad_()
        with torch.enable_grad():
            z = network(start, p)
            lead = (z[:, other] - z.gather(1, prediction[:, None])[:, 0]).sum()
            (slope,) = torch.autograd.grad(lead, start)
        images = inside(images.double() + step * reach * slope.nan_to_num().sign())
    return images


def _coordinates(network: PixelNet, x: Tensor, prediction: Tensor, inside: Inside, start: int) -> Tensor:
    """Pixel by pixel, whichever end of its range leaves the smallest margin; `start`: the ends that all begin at."""
    ends = [inside(torch.full_like(x, end)) for end in (0.0, 1.0)]
    images = ends[start].clone() if start else x.clone()
    for pixel in torch.randperm(x[0].numel())[:40].tolist():
        tried = [images]
        for end in ends:
            moved = images.clone()
            moved.flatten(1)[:, pixel] = end.flatten(1)[:, pixel]
            tried.append(moved)
        margins = torch.stack([_margin(network(each), prediction) for each in tried])  # (3, B)
        best = margins.nan_to_num(posinf=torch.inf).argmin(0)
        images = torch.stack(tried)[best, torch.arange(len(x))]
    return images


def _margin(z: Tensor, prediction: Tensor) -> Tensor:
    best = z.gather(1, prediction[:, None])[:, 0]
    return best - z.scatter(1, prediction[:, None], -torch.inf).amax(1)


def save_failure(case: Case, found: Found, folder: Path) -> Path:
    """Keep everything that is needed to look at a contradiction again, and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"certificate-{case.seed}.safetensors"
    tensors = {f"found/{name}": images for name, images in found.broken.items()}
    if isinstance(case.network, PixelNet):
        tensors |= {f"network/{name}": tensor for name, tensor in case.network.state_dict().items()}
    if isinstance(case.eps, Tensor):
        tensors["eps"] = case.eps
    again = f"python -m tools.soak --case {case.seed}"
    save_tensors(path, {**tensors, "x": case.x}, {"again": again, "about": case.about})
    return path
