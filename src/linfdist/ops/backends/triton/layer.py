"""The sizes of one call, and how tensors are laid out for the kernels.

Neuron o of group g sees, in row r = (n, oh, ow), a window of I inputs i = (c, kh, kw). Kernels hold a tile of (rows,
neurons) in registers and go through the inputs one by one, so what they load at each step is a few consecutive rows and
a few consecutive neurons of one input:

- weights lie in panels (G, O/G / PANEL, I, PANEL), and so do the inputs of a linear layer, (1, R / PANEL, I, PANEL);
- the images of a convolution stay as they are, but padded: a window's input is its corner plus an offset that depends
  on i alone, and nothing is unfolded.

Rows and neurons beyond the last are padded by zeros in panels and repeat the last one elsewhere; they are not stored.
"""

import functools

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from ...geometry import Sizes

PANEL = tl.constexpr(128)  # rows or neurons of one panel; tiles divide it
SEGMENT, SEGMENTS = 1024, 64  # dw is summed over at least so many rows at a time, and in at most so many parts


class Layer(Sizes):
    """The sizes of one call, and the layouts that its kernels read."""

    @property
    def pixels(self) -> int:
        """The number of pixels of all images, each with `channels` numbers of one group."""
        return self.x_shape[0] * self.x_shape[2] * self.x_shape[3]

    @property
    def channels(self) -> int:
        return self.w_shape[1]

    @property
    def linear(self) -> bool:
        """Whether every row is one vector: then x has panels, and there is neither padding nor a window."""
        return (
            self.x_shape[2:] == (1, 1)
            and self.w_shape[2:] == (1, 1)
            and self.geometry.padding == (0, 0)
            and (self.groups == 1)
        )

    @property
    def padded_size(self) -> tuple[int, int]:
        height, width = (size + 2 * pad for size, pad in zip(self.x_shape[2:], self.geometry.padding, strict=True))
        return height, width

    def new_output(self, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """(N, O, OH, OW), halves as float32: zeros if there is nothing to compute, the distance without inputs."""
        shape = (self.x_shape[0], self.w_shape[0], self.out_height, self.out_width)
        dtype = dtype or (torch.float64 if like.dtype == torch.float64 else torch.float32)
        return like.new_zeros(shape, dtype=dtype) if self.empty else like.new_empty(shape, dtype=dtype)

    def new_gradients(self, like: Tensor, need_x: bool, need_w: bool) -> tuple[Tensor, Tensor]:
        """(dx, dw), halves as float32; an unneeded one is empty."""
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        new = like.new_zeros if self.empty else like.new_empty
        return new(self.x_shape if need_x else (0,), dtype=dtype), new(self.w_shape if need_w else (0,), dtype=dtype)

    def padded(self, x: Tensor) -> Tensor:
        """Pad the images as backward kernels and arg-max searches read them: row after row."""
        pad_h, pad_w = self.geometry.padding
        return F.pad(x, (pad_w, pad_w, pad_h, pad_h)).contiguous() if pad_h or pad_w else x

    def windows(self, x: Tensor) -> Tensor:
        """Lay out the inputs as forward kernels read them: panels of a linear layer, otherwise padded images."""
        return panels(x.view(1, *x.shape[:2])) if self.linear else self.padded(x)

    def weights(self, w: Tensor) -> Tensor:
        """(O, C/G, KH, KW) -> panels."""
        return panels(w.view(self.groups, self.neurons, self.inputs))

    def by_neuron(self, y: Tensor) -> Tensor:
        """(N, O, OH, OW) -> (O, R): what dx reads, row beside row."""
        return y.transpose(0, 1).contiguous().view(self.w_shape[0], self.rows)

    def by_row(self, y: Tensor) -> Tensor:
        """(N, O, OH, OW) -> (R, O): what dw reads, neuron beside neuron."""
        return y.permute(0, 2, 3, 1).contiguous().view(self.rows, self.w_shape[0])

    def segments(self) -> tuple[int, int]:
        """Return how many parts of how many rows dw is summed in; it depends on the number of rows alone."""
        segment = max(SEGMENT, -(-self.rows // SEGMENTS))
        return -(-self.rows // segment), segment

    def steps(self, device: torch.device) -> Tensor:
        """Return the offset of each of the I inputs of a window from the window's corner in `padded(x)`."""
        return _steps(self.w_shape[1:], self.padded_size, self.geometry.dilation, device)

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes that kernels take as arguments, in this order: see `corner` and `output`."""
        return (
            self.rows, self.neurons, self.inputs, self.groups, self.x_shape[1], *self.padded_size,
            self.out_height, self.out_width, *self.geometry.stride,
        )  # fmt: skip

    def backward_sizes(self) -> tuple[int, ...]:
        """Return the sizes that the kernels of dx take as arguments, in this order."""
        return (
            self.pixels, self.channels, self.neurons, self.groups, self.rows, *self.x_shape[2:],
            self.out_height, self.out_width, *self.w_shape[2:],
            *self.geometry.stride, *self.geometry.padding, *self.geometry.dilation,
        )  # fmt: skip


@functools.lru_cache(maxsize=256)
def _steps(kernel: tuple[int, ...], size: tuple[int, int], dilation: tuple[int, int], device: torch.device) -> Tensor:
    channel, kh, kw = (torch.arange(n, dtype=torch.int32) for n in kernel)
    rows = channel[:, None] * size[0] + kh * dilation[0]  # (C/G, KH)
    return (rows[..., None] * size[1] + kw * dilation[1]).flatten().to(device)


def panels(t: Tensor) -> Tensor:
    """(G, R, I) -> (G, R / PANEL, I, PANEL), zeros beyond the last row."""
    size = int(PANEL)
    t = F.pad(t, (0, 0, 0, -t.shape[1] % size))
    return t.view(t.shape[0], -1, size, t.shape[2]).transpose(2, 3).contiguous()


# --- in kernels -----------------------------------------------------------------------------------


@triton.jit
def tile_of_program(rows, neurons, RM: tl.constexpr, RN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr):
    """(group, rows, neurons) of this program, as tensors that broadcast to (RM, RN, TM, TN)."""
    row_tiles, neuron_tiles = tl.cdiv(rows, RM * TM), tl.cdiv(neurons, RN * TN)
    tile = tl.program_id(0)
    row = tl.arange(0, RM)[:, None] * TM + tl.arange(0, TM)[None, :]
    neuron = tl.arange(0, RN)[:, None] * TN + tl.arange(0, TN)[None, :]
    row = tile % row_tiles * (RM * TM) + row[:, None, :, None]
    neuron = tile // row_tiles % neuron_tiles * (RN * TN) + neuron[None, :, None, :]
    return tile // (row_tiles * neuron_tiles), row, neuron


@triton.jit
def corner(
    row, group, inputs, groups, channels, height, width, out_height, out_width, stride_h, stride_w, PANELS: tl.constexpr
):
    """Return where the window of a row begins: in panels, where input i lies i * PANEL further, or in padded images."""
    if PANELS:
        return (row // PANEL).to(tl.int64) * inputs * PANEL + row % PANEL
    else:
        n = row // (out_height * out_width)
        oh = row // out_width % out_height
        ow = row % out_width
        channel = n.to(tl.int64) * channels + group * (channels // groups)
        return (channel * height + oh * stride_h) * width + ow * stride_w


@triton.jit
def panel_of(neuron, group, neurons, inputs):
    """Return where the weights of a neuron begin in `Layer.weights(w)`; input i lies i * PANEL further."""
    return (group * tl.cdiv(neurons, PANEL) + neuron // PANEL).to(tl.int64) * inputs * PANEL + neuron % PANEL


@triton.jit
def output(row, neuron, group, neurons, groups, out_height, out_width):
    """Return where the value of a neuron in a row lies in (N, O, OH, OW)."""
    positions = out_height * out_width
    n = (row // positions).to(tl.int64)
    return (n * (neurons * groups) + group * neurons + neuron) * positions + row % positions


@triton.jit
def meeting_row(
    pixel, tap, height, width, out_height, out_width, kernel_w,
    stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
):  # fmt: skip
    """Find the row whose window has this pixel at this place of the kernel, and whether there is one."""
    h = pixel // width % height + pad_h - tap // kernel_w * dilation_h
    w = pixel % width + pad_w - tap % kernel_w * dilation_w
    oh, ow = h // stride_h, w // stride_w
    met = (h >= 0) & (w >= 0) & (h % stride_h == 0) & (w % stride_w == 0) & (oh < out_height) & (ow < out_width)
    return (pixel // (height * width) * out_height + oh) * out_width + ow, met
