"""Files for verifiers of ReLU networks: the converted network as ONNX, and what is to be proved as VNN-LIB."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import torch
from torch import Tensor

from ..eps import Eps, down, parse_eps, up
from ..export.graph import LARGEST_FILE, Graph, Value
from ..export.layers import crop_nodes
from ..files import write_atomically
from ..nn import CenterCrop
from .relu import ReluNet

DIGITS = 20  # of the ends of a ball, rounded outwards


def relu_to_onnx(network: ReluNet, path: str | Path, dtype: torch.dtype = torch.float32) -> None:
    """Write a ReLU network as an ONNX file of Flatten, Gemm and Relu alone, which verifiers of ReLU networks read.

    Input `images` (batch, C, H, W), output `logits` (batch, classes), both of `dtype`, to which the weights are
    rounded. From an exact network, whose pixels are 0 ... 255, float32 computes the very logits where they are below
    2^24. Matrices in ONNX files are dense, so networks must be small. Raises ValueError if they take 2 GiB.
    """
    entries = sum(layer.weight.shape[0] * layer.weight.shape[1] for layer in network.layers)
    size = entries * torch.finfo(dtype).bits // 8
    if size > LARGEST_FILE:
        raise ValueError(
            f"the ReLU network has {size:,} bytes of dense matrices: an ONNX file holds less than 2 GiB; "
            "take a smaller network"
        )
    graph = Graph(entries)
    x = "images" if network.crop is None else crop_nodes(CenterCrop(network.crop), graph, "images", network.shape)
    x = graph.node("Flatten", x, axis=1)
    for number, layer in enumerate(network.layers, 1):
        last = number == len(network.layers)
        weight, bias = (graph.constant(each.to(dtype)) for each in (layer.weight.to_dense(), layer.bias))
        x = graph.node("Gemm", x, weight, bias, transB=1, name="logits" if last else None)
        x = x if last else graph.node("Relu", x)
    images = Value("images", dtype, network.shape, f"pixels in [0, {network.white}]")
    logits = Value("logits", dtype, (network.classes,), "the largest one is the prediction")
    graph.save(Path(path), images, [logits], {})


def write_vnnlib(network: ReluNet, path: str | Path, image: Tensor, eps: Eps, label: int) -> None:
    """Write the property "some image within eps has a class other than `label`" as a VNN-LIB file.

    A verifier that answers `unsat` has proved the class on the ball, within [0, 1]. image (C, H, W): as the network
    takes it; eps on the 0–1 intensity scale. The ball is rounded outwards.
    """
    if not 0 <= label < network.classes:
        raise ValueError(f"label = {label}: must be a class between 0 and {network.classes - 1}")
    if tuple(image.shape) != network.shape or not ((image >= 0) & (image <= network.white)).all():
        raise ValueError(f"image must have shape {network.shape} and pixels in [0, {network.white}]")
    white = Fraction(network.white)
    reach = parse_eps(eps) * white
    pixels = [Fraction(value) for value in image.flatten().tolist()]
    box = [(max(pixel - reach, Fraction(0)), min(pixel + reach, white)) for pixel in pixels]
    write_atomically(Path(path), vnnlib(box, label, network.classes))


def vnnlib(box: Sequence[tuple[Fraction, Fraction]], label: int, classes: int) -> str:
    """Return the property "some image of the box has a class other than `label`" as VNN-LIB, rounded outwards."""
    lines = [f"(declare-const X_{i} Real)" for i in range(len(box))]
    lines += [f"(declare-const Y_{j} Real)" for j in range(classes)]
    for i, (low, high) in enumerate(box):
        lines.append(f"(assert (>= X_{i} {down(low, DIGITS)}))")
        lines.append(f"(assert (<= X_{i} {up(high, DIGITS)}))")
    others = " ".join(f"(and (>= Y_{j} Y_{label}))" for j in range(classes) if j != label)
    return "\n".join([*lines, f"(assert (or {others}))"]) + "\n"
