"""Run a kernel on its tensors' device or in the interpreter, and describe how it is compiled ahead of time."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from . import interpreted

# A kernel says itself where a product and a sum become one rounding (`tl.fma`): nothing is contracted behind its back.
OPTIONS = {"enable_fp_fusion": False}

# Numbers that are 1 in a linear layer: Triton makes constants of ones at run time, so the variants have them too.
LINEAR_SIZES = {
    "groups": 1, "height": 1, "width": 1, "out_height": 1, "out_width": 1, "stride_h": 1, "stride_w": 1,
}  # fmt: skip


class Variant(NamedTuple):
    """A kernel to compile ahead of time: the arguments of `triton.compile` besides the target."""

    name: str  # its line in the committed table
    kernel: Any  # what `triton.jit` has made of the function
    signature: dict[str, str]  # of every argument, in order: "*fp32", "i32", ..., "constexpr"
    constants: dict[str, Any]
    warps: int
    options: dict[str, Any]

    @property
    def attributes(self) -> dict[tuple[int, ...], list[list[Any]]]:
        """Declare that tensors start at multiples of 16 bytes, as torch's do."""
        kinds = self.signature.values()
        return {(n,): [["tt.divisibility", 16]] for n, kind in enumerate(kinds) if kind.startswith("*")}


def variant(name: str, kernel: Any, types: dict[str, str], constants: dict[str, Any], warps: int) -> Variant:
    """Make the variant with these types of arguments; all others are int32 numbers or constants."""
    signature = {
        argument: "constexpr" if argument in constants else types.get(argument, "i32") for argument in kernel.arg_names
    }
    return Variant(name, kernel, signature, constants, warps, OPTIONS)


def launch(kernel: Any, programs: int, *args: Any, warps: int, **constants: Any) -> None:
    """Run this many programs of the kernel; 0 launches nothing."""
    if not programs:
        return
    tensor = next(arg for arg in args if isinstance(arg, Tensor))
    with _device_of(tensor):
        kernel[(programs,)](*args, **constants, num_warps=warps, **OPTIONS)


@contextlib.contextmanager
def _device_of(tensor: Tensor) -> Iterator[None]:
    if interpreted():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of numpy, which computes there: inf - inf
            yield
    else:
        with torch.cuda.device(tensor.device):
            yield


def tiles_of(size: int, tile: int) -> int:
    """Count the tiles that cover this number of rows, neurons or inputs."""
    return int(triton.cdiv(size, tile))
