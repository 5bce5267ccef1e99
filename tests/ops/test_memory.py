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

p, x_shape, w_shape = float(sys.argv[1]), eval(sys.argv[2]), eval(sys.argv[3])
torch.set_num_threads(2)
small = lambda shape: torch.rand([min(n, 8) for n in shape])
step(small(x_shape), small(w_shape), p)  # what is loaded on first use does not count
x, w = torch.rand(x_shape), torch.randn(w_shape)
before = peak()
step(x, w, p)
print(peak() - before)
"""


def growth(backend, p, x_shape, w_shape):
    run = python("-c", PROGRAM, str(p), str(x_shape), str(w_shape), LINFDIST_BACKEND=backend)
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@pytest.mark.parametrize("p", [math.inf, 8, 100])
def test_linear(p):
    """B = O = I = 1024: each matrix 4 MB, the cube 4 GB."""
    assert growth("native", p, (1024, 1024), (1024, 1024)) < 80 * MEGABYTE


@pytest.mark.parametrize("p", [math.inf, 8, 100])
def test_convolution(p):
    """Images 16 MB, unfolded 822 MB, outputs 1 MB."""
    assert growth("native", p, (64, 64, 32, 32), (4, 64, 7, 7)) < 80 * MEGABYTE


@pytest.mark.slow
@pytest.mark.parametrize("p", [math.inf, 8])
def test_reference_linear(p):
    """Matrices of 1 to 8 MB, the cube 2 GB."""
    assert growth("reference", p, (256, 2048), (1024, 2048)) < 150 * MEGABYTE


@pytest.mark.slow
@pytest.mark.parametrize("p", [math.inf, 8])
def test_reference_convolution(p):
    assert growth("reference", p, (64, 64, 32, 32), (1, 64, 7, 7)) < 250 * MEGABYTE
