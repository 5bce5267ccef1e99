"""A fixed set of problems and a digest of all their results; `python -m tests.ops.cases` prints it.

Run in processes of their own, with another instruction set or number of threads, and compared as text.
"""

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

import linfdist as ld

# Several panels, tasks and slices, ragged at every end; with 3 threads the parts are uneven too.
ROWS, INPUTS, NEURONS = 203, 211, 131


def digest(*tensors: Tensor) -> str:
    text = hashlib.sha256()
    for tensor in tensors:
        text.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return text.hexdigest()


def linear(dtype: torch.dtype, p: float, pruned: bool, few: bool = False) -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    rows = 13 if few else ROWS
    x = torch.rand(rows, INPUTS, dtype=dtype) if pruned else 3 * torch.randn(rows, INPUTS, dtype=dtype)
    w, g = torch.randn(NEURONS, INPUTS, dtype=dtype), torch.randn(rows, NEURONS, dtype=dtype)
    values = ld.dist(x, w, p)
    x, w = x.requires_grad_(), w.requires_grad_()
    y = ld.dist(x, w, p)
    return values, y, *torch.autograd.grad(y, (x, w), g)


def convolution(dtype: torch.dtype, p: float) -> tuple[Tensor, ...]:
    torch.manual_seed(2)
    x = torch.randn(5, 6, 19, 17, dtype=dtype, requires_grad=True)
    w = torch.randn(10, 3, 3, 3, dtype=dtype, requires_grad=True)
    y = ld.dist_conv2d(x, w, p, padding=1, stride=(1, 2), groups=2)
    return y, *torch.autograd.grad(y, (x, w), torch.randn_like(y))


def box(dtype: torch.dtype) -> tuple[Tensor, ...]:
    torch.manual_seed(3)
    lower, w = torch.rand(ROWS, INPUTS, dtype=dtype), torch.randn(NEURONS, INPUTS, dtype=dtype)
    upper = lower + torch.rand_like(lower)
    values = ld.dist_box(lower, upper, w)
    leaves = [t.requires_grad_() for t in (lower, upper, w)]
    bounds = ld.dist_box(*leaves)
    return *values, *bounds, *torch.autograd.grad(bounds, leaves, [torch.randn_like(b) for b in bounds])


def not_finite(p: float) -> tuple[Tensor, ...]:
    """Infinity only: NaN payloads may differ."""
    torch.manual_seed(4)
    x, w = torch.rand(67, 31), torch.randn(13, 31)
    x[5, 7], w[3, 30] = math.inf, -math.inf
    return (ld.dist(x, w, p),)


CASES: dict[str, Callable[[], tuple[Tensor, ...]]] = {}
for _dtype, _name in ((torch.float32, "float32"), (torch.float64, "float64")):
    CASES[f"inf pruned {_name}"] = partial(linear, _dtype, math.inf, pruned=True)
    CASES[f"inf dense {_name}"] = partial(linear, _dtype, math.inf, pruned=False)
    CASES[f"inf few rows {_name}"] = partial(linear, _dtype, math.inf, pruned=True, few=True)
    CASES[f"inf convolution {_name}"] = partial(convolution, _dtype, math.inf)
    CASES[f"inf box {_name}"] = partial(box, _dtype)
CASES["inf not finite"] = partial(not_finite, math.inf)
for _p in (1.0, 1.5, 8.0, 12.0, 30.5, 100.0, 1000.0):
    CASES[f"p={_p:g} pruned"] = partial(linear, torch.float32, _p, pruned=True)
    CASES[f"p={_p:g} dense"] = partial(linear, torch.float32, _p, pruned=False)
    CASES[f"p={_p:g} convolution"] = partial(convolution, torch.float32, _p)
CASES["p=8 few rows"] = partial(linear, torch.float32, 8.0, pruned=True, few=True)
CASES["p=8 float64"] = partial(convolution, torch.float64, 8.0)
CASES["p=8 not finite"] = partial(not_finite, 8.0)


def digests(names: Iterable[str] = CASES) -> dict[str, str]:
    return {name: digest(*CASES[name]()) for name in names}


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    backend = ld.backends()[0]
    print(json.dumps({"backend": backend.name, "detail": backend.detail, "digests": digests()}))
