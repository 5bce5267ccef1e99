"""The stem of an integer network as ONNX nodes: whole numbers in 32 bits, summed without rounding."""

import torch

from ..exact import FrozenNet
from ..nn import CenterCrop
from .graph import Graph


def stem(graph: Graph, frozen: FrozenNet) -> str:
    """`images` uint8 (batch, C, H, W) -> the inputs (batch, I) int32 of the first layer."""

    def number(value: int) -> str:
        return graph.constant(torch.tensor(value, dtype=torch.int32))

    own, x, (channels, height, width) = frozen.stem, "images", frozen.shape
    if own.crop is not None:
        x = CenterCrop(own.crop).onnx(graph, x, frozen.shape)
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
