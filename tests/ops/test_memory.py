"""Scratch memory is O(B·O + O·I): the cube (B, O, I) and the unfolded image never exist."""

import math
import sys

import pytest

from .processes import python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory from /proc")

MEGABYTE = 2**20
PROGRAM = """
import sys, torch, linfdist as ld

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024

def step(x, w, p):
    call = ld.dist if x.dim() == 2 else lambda x, w, p: ld.dist_conv2d(x, w, p, padding=3)
    call(x, w, p)
    x, w = x.requires_grad_(), w.requires_grad_()
    call(x, w, p).sum().backward()

ps, x_shape, w_shape = (eval(argument) for argument in sys.argv[1:])
torch.set_num_threads(2)
small = lambda shape: torch.rand([min(n, 8) for n in shape])
for p in ps:
    step(small(x_shape), small(w_shape), p)  # what is loaded on first use does not count
x, w = torch.rand(x_shape), torch.randn(w_shape)
before = peak()
for p in ps:
    step(x.detach(), w.detach(), p)
    print(peak() - before)
"""


def growth(backend, ps, x_shape, w_shape):
    """The peak of memory after a step with each p in turn, in bytes above what was there before."""
    run = python(
        "-c", PROGRAM, str(ps).replace("inf", "float('inf')"), str(x_shape), str(w_shape), LINFDIST_BACKEND=backend
    )
    assert run.returncode == 0, run.stderr
    return dict(zip(ps, map(int, run.stdout.split()), strict=True))


def test_linear():
    """B = O = I = 1024: each matrix 4 MB, the cube 4 GB."""
    found = growth("native", [math.inf, 8, 100], (1024, 1024), (1024, 1024))
    assert max(found.values()) < 80 * MEGABYTE, found


def test_convolution():
    """Images 16 MB, unfolded 822 MB, outputs 1 MB."""
    found = growth("native", [math.inf, 8, 100], (64, 64, 32, 32), (4, 64, 7, 7))
    assert max(found.values()) < 80 * MEGABYTE, found


@pytest.mark.slow
def test_reference_linear():
    """Matrices of 1 to 8 MB, the cube 2 GB."""
    found = growth("reference", [math.inf, 8], (256, 2048), (1024, 2048))
    assert max(found.values()) < 150 * MEGABYTE, found


@pytest.mark.slow
def test_reference_convolution():
    found = growth("reference", [math.inf, 8], (64, 64, 32, 32), (1, 64, 7, 7))
    assert max(found.values()) < 250 * MEGABYTE, found
