"""The formulas of the docstrings, written as plainly as can be, and the ways to compare with them."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

import linfdist as ld


def difference(x: Tensor, w: Tensor) -> Tensor:
    return x[:, None] - w  # (B, O, I)


def inf_dist(x: Tensor, w: Tensor) -> Tensor:
    """Exact in any precision: one rounded subtraction, then |.| and max."""
    return difference(x, w).abs().amax(-1)


def first_argmax(a: Tensor) -> Tensor:
    """The first of the largest values of the last dimension; NaN is larger than anything."""
    largest = a.isnan() | ((a == a.amax(-1, keepdim=True)) & ~a.isnan().any(-1, keepdim=True))
    return torch.where(largest, torch.arange(a.shape[-1]), a.shape[-1]).amin(-1)


def inf_gradients(x: Tensor, w: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """sign(x - w) at the first arg-max, 0 at distance 0, NaN at the first NaN."""
    d = difference(x, w)
    i = first_argmax(d.abs())[..., None]
    terms = torch.zeros_like(d).scatter_(-1, i, g[..., None] * d.gather(-1, i).sign())
    terms[d.gather(-1, i).isnan().expand_as(d) & (torch.arange(d.shape[-1]) == i)] = math.nan
    return terms.sum(1), -terms.sum(0)


def p_dist(x: Tensor, w: Tensor, p: float) -> Tensor:
    """In float64, whatever the inputs: finite ones only."""
    d = difference(x.double(), w.double()).abs()
    m = d.amax(-1)
    return m * ((d / m.where(m > 0, 1.0)[..., None]) ** p).sum(-1) ** (1 / p)


def p_gradients(x: Tensor, w: Tensor, g: Tensor, p: float) -> tuple[Tensor, Tensor]:
    d, y = difference(x.double(), w.double()), p_dist(x, w, p)
    terms = g.double()[..., None] * d.sign() * (d.abs() / y.where(y > 0, 1.0)[..., None]) ** (p - 1)
    return terms.sum(1), -terms.sum(0)


def box_dist(lower: Tensor, upper: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    low, high = lower[:, None] - w, w - upper[:, None]
    near = torch.maximum(low, high).amax(-1)
    far = torch.maximum(-high, -low).amax(-1)
    return near.where(near != 0, 0.0).clamp(min=0), far.where(far != 0, 0.0)  # 0, never -0


def unfold(x: Tensor, w: Tensor, stride=1, padding=0, dilation=1, groups=1) -> tuple[Tensor, Tensor]:
    """Windows (groups, N * positions, I) and kernels (groups, O/groups, I) of a convolution."""
    windows = F.unfold(x, w.shape[2:], dilation, padding, stride)  # (N, C * K, positions)
    windows = windows.unflatten(1, (groups, -1)).permute(1, 0, 3, 2)
    return windows.flatten(1, 2), w.reshape(groups, w.shape[0] // groups, -1)


def fold_outputs(y: Tensor, like: Tensor) -> Tensor:
    """(groups, N * positions, O/groups) -> the shape of `like`, (N, O, OH, OW)."""
    n, _, height, width = like.shape
    return y.unflatten(1, (n, height, width)).permute(1, 0, 4, 2, 3).flatten(1, 2)


def step(x: Tensor, w: Tensor, g: Tensor, p: float = math.inf) -> tuple[Tensor, Tensor, Tensor]:
    """(y, dx, dw) of `ld.dist`."""
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = ld.dist(x, w, p)
    return y.detach(), *torch.autograd.grad(y, (x, w), g)


def whole(*shape: int, dtype: torch.dtype = torch.float32, most: int = 8) -> Tensor:
    """Integer-valued floats: their sums are exact in any order."""
    return torch.randint(-most, most + 1, shape).to(dtype)


def assert_same_bits(actual: Tensor, expected: Tensor) -> None:
    """Also 0.0 and -0.0 differ; NaN payloads do not matter."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    nan = expected.isnan()
    assert torch.equal(actual.isnan(), nan)
    bits = torch.int32 if expected.dtype == torch.float32 else torch.int64
    assert torch.equal(actual.masked_fill(nan, 0.0).view(bits), expected.masked_fill(nan, 0.0).view(bits))


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Largest |actual - expected| / |expected|, entry by entry; 0 must be 0."""
    wrong = (actual.double() - expected).abs()
    return torch.where(wrong == 0, 0.0, wrong / expected.abs()).max().item()


def error_of_largest(actual: Tensor, expected: Tensor) -> float:
    """Largest |actual - expected| over the largest |expected|; 0 if all are right."""
    wrong = (actual.double() - expected).abs().max()
    return 0.0 if wrong == 0 else (wrong / expected.abs().max()).item()
