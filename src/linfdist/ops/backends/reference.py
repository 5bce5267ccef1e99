"""The reference for the other backends: plain torch on any device, written for clarity, not for speed.

Work goes through blocks of (rows, neurons, inputs) of at most `BLOCK` elements, a row being one output pixel of one
image; neither the whole (B, O, I) cube nor the whole unfolded input ever exists.

Same bits whatever the number of threads: block sizes depend on the shapes alone, sums are fixed trees of element-wise
additions, scattered sums are serial (CPU) or sorted (CUDA), and powers are taken in pieces that torch never splits.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..geometry import Geometry, Ints, Sizes

name = "reference"

BLOCK = 1 << 19  # elements of the largest scratch tensor, unless one row is longer
PIECE = 1 << 14  # torch runs smaller element-wise work (< 32768) on one thread
LARGEST_SQUARED_POWER = 64


def unsupported(x: Tensor, w: Tensor) -> list[str]:
    return []


def unavailable() -> list[str]:
    return []


def detail() -> str:
    return "plain torch, any device"


def only_on_request(x: Tensor) -> bool:
    return False


# --- p = inf --------------------------------------------------------------------------------------


def inf_dist(x: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    layer = _Layer.of(x.shape, w.shape, geometry)
    windows, weights = layer.windows(x), layer.weights(w)
    y = layer.zeros(x)
    for block in layer.blocks():
        y[block.output] = (block.inputs(windows) - block.weights(weights)).abs_().amax(-1)
    return layer.to_images(y)


def inf_dist_argmax(x: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    layer = _Layer.of(x.shape, w.shape, geometry)
    windows, weights = layer.windows(x), layer.weights(w)
    y, where = layer.zeros(x), layer.zeros(x, torch.int32)
    for block in layer.blocks():
        difference = block.inputs(windows) - block.weights(weights)  # (r, o, I)
        y[block.output], i = difference.abs().max(-1)
        where[block.output] = _code(i, negative=_at(difference, i) < 0)
    return layer.to_images(y), layer.to_images(where)


def inf_dist_backward(
    grad: Tensor, y: Tensor, where: Tensor, x_shape: Ints, w_shape: Ints, geometry: Geometry, need_x: bool, need_w: bool
) -> tuple[Tensor, Tensor]:
    layer = _Layer.of(x_shape, w_shape, geometry)
    coefficient = layer.to_rows(torch.where(where < 0, -_live(grad, y), _live(grad, y)))  # (G, R, O/G)
    i = layer.to_rows(torch.where(where < 0, ~where, where)).long()
    dx, dw = layer.new_gradients(grad, need_x, need_w)
    if need_x and layer.inputs:
        group = torch.arange(layer.groups, device=grad.device)[:, None, None]
        row = torch.arange(layer.rows, device=grad.device)[:, None]
        _add_at(dx, layer.pixel(group, row, i), coefficient)
    if need_w and layer.inputs:
        neuron = torch.arange(layer.groups * layer.neurons, device=grad.device).view(layer.groups, 1, layer.neurons)
        _add_at(dw, neuron * layer.inputs + i, -coefficient)
    return layer.shape_gradients(dx, dw, need_x, need_w)


# --- finite p -------------------------------------------------------------------------------------


def p_dist(x: Tensor, w: Tensor, p: float, geometry: Geometry) -> Tensor:
    layer = _Layer.of(x.shape, w.shape, geometry)
    windows, weights = layer.windows(x), layer.weights(w)
    y = layer.zeros(x)
    for block in layer.blocks():
        distance = (block.inputs(windows) - block.weights(weights)).abs_()
        largest = distance.amax(-1)
        plain = (largest > 0) & largest.isfinite()
        ratio = distance.div_(largest.where(plain, 1.0)[..., None])
        norm = largest * _power(_sum(_power(ratio, p), dim=-1), 1 / p)
        y[block.output] = torch.where(plain, norm, largest)  # 0, inf and NaN stay what they are
    return layer.to_images(y)


def p_dist_backward(
    grad: Tensor, x: Tensor, w: Tensor, y: Tensor, p: float, geometry: Geometry, need_x: bool, need_w: bool
) -> tuple[Tensor, Tensor]:
    layer = _Layer.of(x.shape, w.shape, geometry)
    windows, weights = layer.windows(x), layer.weights(w)
    coefficient = layer.to_rows(_live(grad, y))  # (G, R, O/G)
    norm = layer.to_rows(y.where(y != 0, 1.0))
    dx, dw = layer.new_gradients(grad, need_x, need_w)
    for block in layer.blocks():
        difference = block.inputs(windows) - block.weights(weights)  # (r, o, I)
        slope = _power(difference.abs().div_(norm[block.output][..., None]), p - 1)
        term = slope.mul_(difference.sign_()).mul_(coefficient[block.output][..., None])
        if need_x:
            i = torch.arange(layer.inputs, device=grad.device)
            _add_at(dx, layer.pixel(block.group, block.row_numbers(grad.device)[:, None], i), _sum(term, dim=1))
        if need_w:
            dw.view(layer.groups, layer.neurons, layer.inputs)[block.group, block.neurons] -= _sum(term, dim=0)
    return layer.shape_gradients(dx, dw, need_x, need_w)


# --- boxes, p = inf -------------------------------------------------------------------------------


def box_dist(lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    nearest, farthest, _, _ = box_dist_argmax(lower, upper, w, geometry)
    return nearest, farthest


def box_dist_argmax(
    lower: Tensor, upper: Tensor, w: Tensor, geometry: Geometry
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    layer = _Layer.of(lower.shape, w.shape, geometry)
    low_windows, high_windows, weights = layer.windows(lower), layer.windows(upper), layer.weights(w)
    nearest, farthest = layer.zeros(lower), layer.zeros(lower)
    near_where, far_where = layer.zeros(lower, torch.int32), layer.zeros(lower, torch.int32)
    for block in layer.blocks():
        low, high, weight = block.inputs(low_windows), block.inputs(high_windows), block.weights(weights)
        for right, left, value, where in (
            (low - weight, weight - high, nearest, near_where),
            (high - weight, weight - low, farthest, far_where),
        ):
            value[block.output], i = torch.maximum(right, left).max(-1)
            where[block.output] = _code(i, negative=_at(left, i) > _at(right, i))
    nearest, farthest = nearest.clamp_(min=0) + 0.0, farthest + 0.0  # + 0.0 turns -0.0 into 0.0
    nearest, farthest, near_where, far_where = map(layer.to_images, (nearest, farthest, near_where, far_where))
    return nearest, farthest, near_where, far_where


# --- which inputs meet which weights --------------------------------------------------------------


class _Layer(Sizes):
    """The sizes of one call, and the blocks that it is computed in."""

    def blocks(self) -> Iterator["_Block"]:
        """Yield blocks of at most BLOCK elements (or of one neuron), in a fixed order; none if anything is empty."""
        if self.empty:
            return
        neurons = min(self.neurons, max(1, BLOCK // self.inputs))
        rows = min(self.rows, max(1, BLOCK // (self.inputs * neurons)))
        for group in range(self.groups):
            for row in range(0, self.rows, rows):
                for neuron in range(0, self.neurons, neurons):
                    yield _Block(
                        self,
                        group,
                        slice(row, min(row + rows, self.rows)),
                        slice(neuron, min(neuron + neurons, self.neurons)),
                    )

    def windows(self, x: Tensor) -> Tensor:
        """View all windows of the zero-padded images: (G, N, OH, OW, C/G, KH, KW)."""
        (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w), groups = self.geometry
        padded = F.pad(x, (pad_w, pad_w, pad_h, pad_h)).contiguous()
        n, c, h, w = padded.stride()
        channels, *kernel = self.w_shape[1:]
        return padded.as_strided(
            (groups, self.x_shape[0], self.out_height, self.out_width, channels, *kernel),
            (channels * c, n, stride_h * h, stride_w * w, c, dilation_h * h, dilation_w * w),
        )

    def weights(self, w: Tensor) -> Tensor:
        return w.reshape(self.groups, self.neurons, self.inputs)

    def position(self, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n, oh, ow) of row numbers."""
        pixels = self.out_height * self.out_width
        return row // pixels, row % pixels // self.out_width, row % self.out_width

    def pixel(self, group: int | Tensor, row: Tensor, i: Tensor) -> Tensor:
        """Flat index into x of input i of a row; x.numel() where that lies in the padding."""
        _, all_channels, height, width = self.x_shape
        channels, kernel_h, kernel_w = self.w_shape[1:]
        (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w), _ = self.geometry
        n, oh, ow = self.position(row)
        channel = group * channels + i // (kernel_h * kernel_w)
        h = oh * stride_h - pad_h + i // kernel_w % kernel_h * dilation_h
        w = ow * stride_w - pad_w + i % kernel_w * dilation_w
        inside = (h >= 0) & (h < height) & (w >= 0) & (w < width)
        return torch.where(inside, ((n * all_channels + channel) * height + h) * width + w, math.prod(self.x_shape))

    def zeros(self, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        return like.new_zeros(self.groups, self.rows, self.neurons, dtype=dtype)

    def to_images(self, y: Tensor) -> Tensor:
        """(G, R, O/G) -> (N, O, OH, OW)."""
        y = y.view(self.groups, self.x_shape[0], self.out_height, self.out_width, self.neurons)
        return y.permute(1, 0, 4, 2, 3).contiguous().flatten(1, 2)

    def to_rows(self, y: Tensor) -> Tensor:
        """(N, O, OH, OW) -> (G, R, O/G)."""
        y = y.reshape(self.x_shape[0], self.groups, self.neurons, self.out_height, self.out_width)
        return y.permute(1, 0, 3, 4, 2).reshape(self.groups, self.rows, self.neurons)

    def new_gradients(self, like: Tensor, need_x: bool, need_w: bool) -> tuple[Tensor, Tensor]:
        """Return flat zeros; those of x have one more element, for the padding's gradient."""
        return (
            like.new_zeros(math.prod(self.x_shape) + 1 if need_x else 1),
            like.new_zeros(math.prod(self.w_shape) if need_w else 0),
        )

    def shape_gradients(self, dx: Tensor, dw: Tensor, need_x: bool, need_w: bool) -> tuple[Tensor, Tensor]:
        dx = dx[:-1].clone()  # a storage of its own
        return dx.view(self.x_shape) if need_x else dx, dw.view(self.w_shape) if need_w else dw


@dataclass(frozen=True)
class _Block:
    layer: _Layer
    group: int
    rows: slice
    neurons: slice

    @property
    def output(self) -> tuple[int, slice, slice]:
        return self.group, self.rows, self.neurons

    def row_numbers(self, device: torch.device) -> Tensor:
        return torch.arange(self.rows.start, self.rows.stop, device=device)

    def inputs(self, windows: Tensor) -> Tensor:
        n, oh, ow = self.layer.position(self.row_numbers(windows.device))
        return windows[self.group][n, oh, ow].flatten(1)[:, None]  # (r, 1, I)

    def weights(self, weights: Tensor) -> Tensor:
        return weights[self.group, self.neurons]  # (o, I)


# --- small pieces ---------------------------------------------------------------------------------


def _code(i: Tensor, negative: Tensor) -> Tensor:
    return torch.where(negative, ~i, i).int()


def _at(values: Tensor, i: Tensor) -> Tensor:
    return values.gather(-1, i[..., None]).squeeze(-1)


def _live(grad: Tensor, y: Tensor) -> Tensor:
    """Return the incoming gradient: exactly 0 where the distance is 0, NaN where it is NaN."""
    return grad.masked_fill(y == 0, 0.0).masked_fill(y.isnan(), math.nan)


def _add_at(out: Tensor, index: Tensor, values: Tensor) -> None:
    """out[index] += values in a fixed order: scatter_add_ is serial on the CPU, index_put_ sorts on CUDA."""
    if out.device.type == "cpu":
        out.scatter_add_(0, index.flatten(), values.flatten())
    else:
        out.index_put_((index.flatten(),), values.flatten(), accumulate=True)


def _sum(terms: Tensor, dim: int) -> Tensor:
    """Sum along a dimension as a tree of element-wise additions: one order on any number of threads."""
    terms = terms.movedim(dim, 0)
    while len(terms) > 1:
        half = len(terms) // 2
        pairs = terms[:half] + terms[half : 2 * half]
        if len(terms) % 2:
            pairs[0] += terms[-1]
        terms = pairs
    return terms[0]


def _power(base: Tensor, exponent: float) -> Tensor:
    """Compute base ** exponent, base >= 0; may overwrite the base.

    torch's vector and scalar `pow` differ in the last bit, and which elements get the scalar one depends on how the
    work is split between threads: so small powers are products, and others are taken in pieces too small to split.
    """
    if exponent.is_integer() and 1 <= exponent <= LARGEST_SQUARED_POWER:
        return _integer_power(base, int(exponent))
    base = base.contiguous()
    for piece in base.view(-1).split(PIECE) if base.device.type == "cpu" else [base]:
        piece.pow_(exponent)
    return base


def _integer_power(base: Tensor, exponent: int) -> Tensor:
    """Compute base ** exponent by repeated squaring, exponent >= 1."""
    if exponent == 1:
        return base
    root = _integer_power(base, exponent // 2)
    square = root * root
    return square * base if exponent % 2 else square
