"""Random networks with images and a question about them, for attacks on certificates: one case for each seed."""

import math
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linfdist import nn
from linfdist.baselines import ReLUNet
from linfdist.exact import FrozenNet, freeze
from linfdist.export import to_onnx
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
