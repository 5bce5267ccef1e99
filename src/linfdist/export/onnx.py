"""ONNX: the float network with its certified radius, the integer network bit by bit, its head in float64."""

import json
import math
from fractions import Fraction
from pathlib import Path

import torch

from ..certificates.checks import check_network
from ..eps import round_down, round_up
from ..exact import FrozenHead, FrozenNet
from ..models import PixelNet
from ..models.base import rounding_error
from ..nn.base import DOWN, UP
from .graph import Graph, Value
from .layers import layer_nodes, readout_nodes, stem

CHUNK = 1 << 16  # elements per image of the largest value in between
LEVELS = 255  # the largest change of an 8-bit pixel
CLOSE = 2.0**-20  # to 1, see `_radius`


def to_onnx(network: PixelNet, path: str | Path, chunk: int = CHUNK) -> None:
    """Write a float32 network, in eval mode and at p = inf, as an ONNX file.

    Input `images` float32 (batch, C, H, W) in [0, 1], a batch of any size. Output `logits` float32 (batch, classes):
    the same operations in the same order as ours, so the same bits for a `DistNet`, wherever a runtime rounds each
    subtraction and division once (IEEE 754).

    If the readout has a Lipschitz constant, as that of a `DistNet` has, there is a second output, `radius` float64
    (batch,): the certified radius in pixels by the margin (Fact 3.6), that of `certify(..., method="margin")` or a few
    roundings less. With means it may also be more, by up to 2E / L, because a runtime may sum in another order; it then
    holds for both. 0 where nothing is proved, and for images that are not in [0, 1]. Networks with an MLP head have no
    such output, because their certificates hold for the head as torch executes it, and another runtime may multiply
    matrices otherwise.

    chunk: memory grows by a few times 4 · chunk bytes for each image of a batch.
    """
    check_network(network)
    if network.any_tensor.dtype != torch.float32:
        raise TypeError("only float32 networks can be written as ONNX files: call .float() first, and certify that one")
    graph = Graph(chunk)
    readout_nodes(network.readout, graph, layer_nodes(network.body, graph, "images", network.shape), "logits")
    outputs = [Value("logits", torch.float32, (network.classes,), "the largest one is the prediction")]
    if network.readout.lipschitz is not None:
        _radius(graph, network, network.readout.lipschitz)
        meaning = "certified l_inf radius on the 0–1 intensity scale, a closed ball; 0 where nothing is proved"
        outputs.append(Value("radius", torch.float64, (), meaning))
    metadata = {"linfdist": json.dumps({"config": network.config})}
    images = Value("images", torch.float32, network.shape, "pixels in [0, 1]")
    graph.save(Path(path), images, outputs, metadata)


def exact_to_onnx(frozen: FrozenNet, path: str | Path, chunk: int = CHUNK) -> None:
    """Write an integer network as an ONNX file: 32-bit operations, exact in every runtime.

    Input `images` uint8 (batch, C, H, W), a batch of any size. Outputs: `logits` int32 (batch, classes), in grid units
    of 1/(255 · steps) pixels, and `levels` int32 (batch,): how many levels (1/255) every pixel may change without
    changing the prediction, as proved by the margin; 0 if nothing is proved. Outside the network's domain `levels` is
    -1, and the logits mean nothing.

    With a head the outputs are `logits` float64 (batch, classes), which like ours are within `FrozenHead.error` of the
    exact ones, and NaN for images outside the domain; and `features` int32 (batch, F), bit for bit ours.

    chunk: see `to_onnx`.
    """
    graph = Graph(chunk)
    x = stem(graph, frozen)  # (batch, I)
    for layer in frozen.layers:
        x = graph.distances(x, layer.weight, 1, torch.int32)
        x = graph.node("Add", x, graph.constant(layer.bias))
    unit = f"in units of 1/{255 * frozen.steps} pixel"
    best = "the largest one is the prediction"
    if frozen.head is None:
        if frozen.count > 1:
            x = graph.node("Reshape", x, graph.integers(0, frozen.classes, frozen.count))
            x = graph.node("ReduceSum", x, graph.integers(2), keepdims=0)
        graph.node("Neg", x, name="logits")
        _levels(graph, frozen)
        meaning = "certified radius in whole levels (1/255 pixel); -1: the image is outside the domain"
        outputs = [
            Value("logits", torch.int32, (frozen.classes,), f"{unit}; {best}"),
            Value("levels", torch.int32, (), meaning),
        ]
    else:
        graph.node("Identity", x, name="features")
        _head(graph, frozen, frozen.head)
        outputs = [
            Value("logits", torch.float64, (frozen.classes,), f"{best}; NaN: the image is outside the domain"),
            Value("features", torch.int32, (frozen.head.w1.shape[1],), f"of the head, {unit}"),
        ]
    metadata = {
        "linfdist": json.dumps(
            {"sha256": frozen.sha256, "k": frozen.k, "steps": frozen.steps, "facts": dict(frozen.facts)}
        )
    }
    graph.save(Path(path), Value("images", torch.uint8, frozen.shape, "8-bit pixels"), outputs, metadata)


def _radius(graph: Graph, network: PixelNet, lipschitz: float) -> None:
    """Compute `radius` from `logits` and `images`: (gap - 4E) / 2L, in float64, as gap * a - b.

    a and b carry the rounding down: no constant may be close to 1, because onnxruntime's optimiser takes factors that
    are 1 in float32 for 1 and leaves them out.
    """

    def number(value: float) -> str:
        return graph.constant(torch.tensor(value, dtype=torch.float64))

    error = rounding_error(network)
    twice = 2 * Fraction(network.lipschitz) * Fraction(lipschitz)
    a = round_down(Fraction(DOWN) ** 3 / twice)
    if abs(a - 1) < CLOSE:
        a = 1 - CLOSE
    b = round_up(4 * Fraction(error) * Fraction(UP) ** 2 / twice) if math.isfinite(error) else math.inf
    radius = graph.node("Sub", graph.node("Mul", _gap(graph, torch.float64), number(a)), number(b))
    radius = graph.node("Min", radius, number(1.0))  # which holds all images
    zero, one = (graph.constant(torch.tensor(value)) for value in (0.0, 1.0))
    inside = graph.node("And", graph.node("GreaterOrEqual", "images", zero), graph.node("LessOrEqual", "images", one))
    positive = graph.node("Greater", radius, number(0.0))  # NaN is neither inside nor positive
    graph.node("Where", graph.node("And", _all(graph, inside), positive), radius, number(0.0), name="radius")


def _levels(graph: Graph, frozen: FrozenNet) -> None:
    """Compute `levels` from `logits` and `images`: the largest whole number n with 2 n steps < gap."""
    one, step, most = (graph.constant(torch.tensor(value)) for value in (1, 2 * frozen.steps, LEVELS))
    gap = graph.node("Max", graph.node("Sub", _gap(graph, torch.int64), one), graph.constant(torch.tensor(0)))
    levels = graph.cast(graph.node("Min", graph.node("Div", gap, step), most), torch.int32)
    if frozen.whole_cube:
        graph.node("Identity", levels, name="levels")
        return
    outside = graph.constant(torch.tensor(-1, dtype=torch.int32))
    graph.node("Where", _inside(graph, frozen), levels, outside, name="levels")


def _head(graph: Graph, frozen: FrozenNet, head: FrozenHead) -> None:
    """Compute `logits` from `features` and `images`, in float64."""
    w1, b1, w2, b2 = (graph.constant(tensor) for tensor in head.tensors().values())
    x = graph.cast("features", torch.float64)  # exactly
    # no Add of a constant: optimisers may leave out one that is 0 as a float32
    x = graph.node("Tanh", graph.node("Gemm", x, w1, b1, transB=1))
    if frozen.whole_cube:
        graph.node("Gemm", x, w2, b2, transB=1, name="logits")
        return
    logits = graph.node("Gemm", x, w2, b2, transB=1)
    unknown = graph.constant(torch.tensor(math.nan, dtype=torch.float64))
    inside = graph.node("Unsqueeze", _inside(graph, frozen), graph.integers(1))  # (batch, 1)
    graph.node("Where", inside, logits, unknown, name="logits")


def _inside(graph: Graph, frozen: FrozenNet) -> str:
    """Compute whether `images` are in the network's domain: (batch,) bool."""
    pixels = graph.cast("images", torch.int32)
    lower, upper = (graph.constant(bound.int()) for bound in (frozen.lower, frozen.upper))
    inside = graph.node("And", graph.node("GreaterOrEqual", pixels, lower), graph.node("LessOrEqual", pixels, upper))
    return _all(graph, inside)


def _gap(graph: Graph, dtype: torch.dtype) -> str:
    """Compute best minus second-best of `logits`, (batch,), in a type that holds it."""
    logits = graph.cast("logits", dtype)
    best = f"best{len(graph.nodes)}"
    graph.nodes.append(
        graph.onnx.helper.make_node(
            "TopK", [logits, graph.integers(2)], [best, f"{best}_at"], axis=1, largest=1, sorted=1
        )
    )
    first, second = (graph.node("Gather", best, graph.constant(torch.tensor(k)), axis=1) for k in (0, 1))
    return graph.node("Sub", first, second)


def _all(graph: Graph, conditions: str) -> str:
    """Compute whether all of an image's conditions (batch, C, H, W) hold: (batch,) bool."""
    counted = graph.cast(conditions, torch.int32)
    return graph.cast(graph.node("ReduceMin", counted, graph.integers(1, 2, 3), keepdims=0), torch.bool)
