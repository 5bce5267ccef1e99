"""Write layers and readouts, and the stem of an integer network, as nodes of an ONNX graph."""

from typing import cast

import torch

from ..exact import FrozenNet
from ..models.mean import MeanLogits
from ..nn import (
    CenterCrop,
    Clip,
    DistConv2d,
    DistLinear,
    Flatten,
    Handlers,
    Head,
    Logits,
    MeanPool,
    MeanShift,
    MirrorPairs,
    NearestClass,
    Normalize,
    ScaledLinear,
    Stack,
    View,
)
from ..nn.base import Shape
from ..nn.pixels import centred
from .graph import Graph

layer_nodes: Handlers[[Graph, str, Shape], str] = Handlers(
    "linfdist.export.layers.layer_nodes", "cannot be written as an ONNX file"
)
"""layer_nodes(layer, graph, x, shape) adds the nodes of a layer for an input of this shape; the name of the output."""

readout_nodes: Handlers[[Graph, str, str | None], str] = Handlers(
    "linfdist.export.layers.readout_nodes", "cannot be written as an ONNX file"
)
"""readout_nodes(readout, graph, x, name) adds the nodes of a readout; the name of the output, `name` if given."""


@layer_nodes.register(Stack)
def _(stack: Stack, graph: Graph, x: str, shape: Shape) -> str:
    for layer, each in zip(stack, stack.shapes(shape), strict=False):
        x = layer_nodes(layer, graph, x, each)
    return x


@layer_nodes.register(CenterCrop)
def crop_nodes(layer: CenterCrop, graph: Graph, x: str, shape: Shape) -> str:
    """Slice the middle out."""
    starts = centred(shape, layer.size)
    return graph.slice(x, (2, 3), starts, [start + layer.size for start in starts], (1, 1))


@layer_nodes.register(Clip)
def _(layer: Clip, graph: Graph, x: str, shape: Shape) -> str:
    span = graph.constant(layer.high - layer.low)
    scaled = graph.node("Div", graph.node("Sub", x, graph.constant(layer.low)), span)
    ends = (graph.constant(torch.tensor(end, dtype=layer.low.dtype)) for end in (0.0, 1.0))
    return graph.node("Clip", scaled, *ends)


@layer_nodes.register(Normalize)
def _(layer: Normalize, graph: Graph, x: str, shape: Shape) -> str:
    return graph.node("Div", graph.node("Sub", x, graph.constant(layer.mean)), graph.constant(layer.std))


@layer_nodes.register(View)
def _(view: View, graph: Graph, x: str, shape: Shape) -> str:
    if view.view == "same":
        return x
    for axis, places in zip((2, 3), view.places(shape, torch.device("cpu")), strict=True):
        x = graph.node("Gather", x, graph.constant(places), axis=axis)
    return x


@layer_nodes.register(MirrorPairs)
def _(layer: MirrorPairs, graph: Graph, x: str, shape: Shape) -> str:
    width = shape[2]
    left = (width + 1) // 2
    if width == 1:
        return x
    mirrored = graph.node("Gather", x, graph.integers(*range(width - 1, -1, -1)), axis=3)
    larger = graph.slice(graph.node("Max", x, mirrored), (3,), (0,), (left,), (1,))
    smaller = graph.slice(graph.node("Min", x, mirrored), (3,), (left,), (width,), (1,))
    return graph.node("Concat", larger, smaller, axis=3)


@layer_nodes.register(MeanPool)
def _(layer: MeanPool, graph: Graph, x: str, shape: Shape) -> str:
    parts = []
    for k in layer.sizes:
        means = x if k == 1 else graph.node("AveragePool", x, kernel_shape=[k, k], strides=[k, k])
        parts.append(graph.node("Flatten", means, axis=1))
    return parts[0] if len(parts) == 1 else graph.node("Concat", *parts, axis=1)


@layer_nodes.register(Flatten)
def _(layer: Flatten, graph: Graph, x: str, shape: Shape) -> str:
    return graph.node("Flatten", x, axis=1)


@layer_nodes.register(MeanShift)
def _(layer: MeanShift, graph: Graph, x: str, shape: Shape) -> str:
    mean = layer.running_mean if len(shape) == 1 else layer.running_mean[:, None, None]
    return graph.node("Sub", x, graph.constant(mean))


@layer_nodes.register(DistLinear)
def _(layer: DistLinear, graph: Graph, x: str, shape: Shape) -> str:
    y = graph.distances(x, layer.weight, 1, layer.weight.dtype)
    return y if layer.bias is None else graph.node("Add", y, graph.constant(layer.bias))


@layer_nodes.register(DistConv2d)
def _(layer: DistConv2d, graph: Graph, x: str, shape: Shape) -> str:
    height, width = layer.output_shape(shape)[1:]
    kernels = layer.weight.permute(0, 2, 3, 1).flatten(1)[:, :, None, None]  # in the order of the windows
    y = graph.distances(_windows(layer, graph, x, height, width), kernels, height * width, layer.weight.dtype)
    return y if layer.bias is None else graph.node("Add", y, graph.constant(layer.bias[:, None, None]))


def _windows(layer: DistConv2d, graph: Graph, x: str, height: int, width: int) -> str:
    """Gather the inputs of each output position: (batch, KH * KW * C, OH, OW)."""
    (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w), groups = layer.geometry
    if groups != 1:
        raise TypeError(f"convolutions with groups cannot be written as ONNX files, this one has {groups}")
    x = graph.node("Pad", x, graph.integers(0, 0, pad_h, pad_w, 0, 0, pad_h, pad_w))  # with 0
    shifted = []
    for i in range(layer.weight.shape[2]):
        for j in range(layer.weight.shape[3]):
            top, left = i * dilation_h, j * dilation_w
            ends = (top + stride_h * (height - 1) + 1, left + stride_w * (width - 1) + 1)
            shifted.append(graph.slice(x, (2, 3), (top, left), ends, (stride_h, stride_w)))
    return graph.node("Concat", *shifted, axis=1)


@readout_nodes.register(Logits)
def _(readout: Logits, graph: Graph, x: str, name: str | None) -> str:
    return graph.node("Identity", x, name=name)


@readout_nodes.register(NearestClass)
def _(readout: NearestClass, graph: Graph, x: str, name: str | None) -> str:
    y = graph.distances(x, readout.weight, 1, readout.weight.dtype)
    y = graph.node("Add", y, graph.constant(readout.bias))
    if readout.per_class == 1:
        return graph.node("Neg", y, name=name)
    split = graph.node("Reshape", y, graph.integers(0, readout.classes, readout.per_class))
    return graph.node("Neg", graph.node("ReduceMean", split, graph.integers(2), keepdims=0), name=name)


@readout_nodes.register(Head)
def _(head: Head, graph: Graph, x: str, name: str | None) -> str:
    return _product(graph, graph.node("Tanh", _product(graph, x, head.hidden)), head.output, name)


def _product(graph: Graph, x: str, layer: ScaledLinear, name: str | None = None) -> str:
    product = graph.node("MatMul", x, graph.constant(layer.scaled_weight().T))
    return graph.node("Add", product, graph.constant(layer.bias), name=name)


@readout_nodes.register(MeanLogits)
def _(readout: MeanLogits, graph: Graph, x: str, name: str | None) -> str:
    images = graph.node("Reshape", x, graph.integers(0, *readout.shape))
    logits = []
    for view in readout.views:
        image = layer_nodes(cast(View, view), graph, images, readout.shape)
        for member in readout.networks:
            features = layer_nodes(member.body, graph, image, readout.shape)
            logits.append(readout_nodes(member.readout, graph, features, None))
    total = logits[0]
    for each in logits[1:]:
        total = graph.node("Add", total, each)
    dtype = readout.networks[0].any_tensor.dtype
    return graph.node("Div", total, graph.constant(torch.tensor(readout.count, dtype=dtype)), name=name)


def stem(graph: Graph, frozen: FrozenNet) -> str:
    """Map `images` uint8 (batch, C, H, W) to the inputs (batch, I) int32 of the first layer."""

    def number(value: int) -> str:
        return graph.constant(torch.tensor(value, dtype=torch.int32))

    own, x, (channels, height, width) = frozen.stem, "images", frozen.shape
    if own.crop is not None:
        x = crop_nodes(CenterCrop(own.crop), graph, x, frozen.shape)
        height = width = own.crop
    x = graph.node("Mul", graph.cast(x, torch.int32), number(2**own.k))
    if own.clip is not None:
        low, high = own.clip
        x = graph.node("Min", graph.node("Max", x, number(low)), number(high))
    if own.pool is None:
        return graph.node("Flatten", x, axis=1)
    parts = []
    for s in own.pool.sizes:
        rows, columns = height // s, width // s
        tiled = graph.slice(x, (2, 3), (0, 0), (rows * s, columns * s), (1, 1))
        split = graph.node("Reshape", tiled, graph.integers(0, channels, rows, s, columns, s))
        sums = graph.node("ReduceSum", split, graph.integers(3, 5), keepdims=0)  # (batch, C, rows, columns)
        parts.append(graph.node("Flatten", graph.node("Mul", sums, number(own.pool.steps // s**2)), axis=1))
    return parts[0] if len(parts) == 1 else graph.node("Concat", *parts, axis=1)
