"""What the Triton backend has of its own: tiles, layouts, halves, selection, and training like the reference.

That its results are right is the business of the other files, which run on it too.
"""

import math
from types import SimpleNamespace

import pytest
import torch

import linfdist as ld
from linfdist.ops import backends
from linfdist.ops.backends import reference, triton
from linfdist.ops.geometry import POINT, Geometry

from . import truth
from .layers import TwoLayers, gradients, images
from .processes import python

interpreter = pytest.mark.skipif(
    bool(triton.missing()) or not triton.interpreted(), reason=triton.missing() or "TRITON_INTERPRET=0"
)
CONVOLUTION = Geometry((2, 1), (1, 2), (1, 2), 2)


def results(x, w, p, geometry):
    """Values, arg-max or its absence, and gradients, by the backend's own functions."""
    torch.manual_seed(1)
    if p == math.inf:
        y, where = triton.inf_dist_argmax(x, w, geometry)
        assert torch.equal(triton.inf_dist(x, w, geometry), y)
        g = torch.randn(y.shape).to(y.dtype)
        return y, where, *triton.inf_dist_backward(g, y, where, x.shape, w.shape, geometry, True, True)
    y = triton.p_dist(x, w, p, geometry)
    return y, *triton.p_dist_backward(torch.randn(y.shape).to(y.dtype), x, w, y, p, geometry, True, True)


PROBLEMS = {
    "linear": (lambda: (3 * torch.randn(5, 17, 1, 1), torch.randn(9, 17, 1, 1)), POINT),
    "convolution": (lambda: (torch.rand(2, 4, 3, 2), torch.randn(4, 2, 2, 2)), CONVOLUTION),
}


@interpreter
@pytest.mark.parametrize(
    ("problem", "p"), [("linear", 8), ("linear", 30.5), ("convolution", 1.5), ("convolution", math.inf)]
)
def test_no_bit_depends_on_the_tile(monkeypatch, problem, p):
    from linfdist.ops.backends.triton import tiles

    data, geometry = PROBLEMS[problem]
    x, w = data()
    expected = results(x, w, p, geometry)
    monkeypatch.setattr(tiles, "INTERPRETED", tiles.Tile(1, 2, 4, 4))
    for actual, right in zip(results(x, w, p, geometry), expected, strict=True):
        assert torch.equal(actual, right)


@interpreter
def test_measured_tiles_give_the_same_bits(monkeypatch):
    from linfdist.ops.backends.triton import tiles

    x, w = PROBLEMS["linear"][0]()
    expected = triton.inf_dist(x, w, POINT)
    tried = []
    monkeypatch.setattr(tiles, "_fastest", {})
    monkeypatch.setattr(tiles, "CANDIDATES", (tiles.Tile(1, 1, 4, 8), tiles.Tile(2, 2, 4, 4)))
    monkeypatch.setattr(tiles, "_seconds", lambda run: tried.append(run()) or -len(tried))  # the last is the fastest
    monkeypatch.setenv("LINFDIST_TRITON_TUNE", "1")
    for _ in range(2):
        assert torch.equal(triton.inf_dist(x, w, POINT), expected)
    assert len(tried) == 2
    assert list(tiles._fastest.values()) == [tiles.Tile(2, 2, 4, 4)]


@interpreter
@pytest.mark.parametrize("problem", PROBLEMS)
def test_at_inf_gradients_have_the_bits_of_the_reference(problem):
    data, geometry = PROBLEMS[problem]
    x, w = data()
    y, where = reference.inf_dist_argmax(x, w, geometry)
    g = torch.randn_like(y)
    right = reference.inf_dist_backward(g, y, where, x.shape, w.shape, geometry, True, True)
    mine = triton.inf_dist_backward(g, y, where, x.shape, w.shape, geometry, True, True)
    for actual, expected in zip(mine, right, strict=True):
        truth.assert_same_bits(actual, expected)


@interpreter
def test_a_long_batch_is_summed_in_parts(monkeypatch):
    """dw over more rows than one segment: whole numbers, so that the order does not matter, and none is forgotten."""
    from linfdist.ops.backends.triton import layer

    monkeypatch.setattr(layer, "SEGMENT", 4)
    x, w = truth.whole(11, 5, 1, 1), truth.whole(3, 5, 1, 1)
    g = truth.whole(11, 3, 1, 1)
    y, where = triton.inf_dist_argmax(x, w, POINT)
    _, dw = triton.inf_dist_backward(g, y, where, x.shape, w.shape, POINT, False, True)
    assert torch.equal(dw.flatten(1), truth.inf_gradients(x.flatten(1), w.flatten(1), g.flatten(1))[1])
    dw = triton.p_dist_backward(g, x, w, triton.p_dist(x, w, 3, POINT), 3, POINT, False, True)[1]
    right = truth.p_gradients(x.flatten(1), w.flatten(1), g.flatten(1), 3)[1]
    assert truth.error_of_largest(dw.flatten(1), right) <= 5e-4


@interpreter
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("p", [8, 30.5, math.inf])
def test_halves_are_computed_in_float32_and_rounded_once(half, p):
    """The operators take them, though `ld.dist` asks for float32."""
    x, w = torch.rand(7, 13, 1, 1).to(half), torch.randn(5, 13, 1, 1).to(half)
    for actual, wide in zip(results(x, w, p, POINT), results(x.float(), w.float(), p, POINT), strict=True):
        if actual.dtype != torch.int32:
            assert actual.dtype == half
        if actual.shape == (7, 5, 1, 1):
            assert torch.equal(actual, wide.to(actual.dtype))
        else:  # gradients, of a distance that has been rounded
            torch.testing.assert_close(actual.float(), wide, rtol=0.2, atol=0.1)
    if p == math.inf:
        assert torch.equal(triton.inf_dist(x, w, POINT), reference.inf_dist(x, w, POINT))


@interpreter
@pytest.mark.parametrize("p", [1, 1.5, 3, 8, 32])
def test_differences_that_grow_take_new_references(p):
    """Each chunk outgrows the last by more than any power could hold; or all are tiny beside the first."""
    sizes, w = 10.0 ** torch.linspace(-35, 30, 130), torch.zeros(1, 130)
    x = torch.stack([sizes, sizes.flip(0)])
    y = triton.p_dist(x[..., None, None], w[..., None, None], float(p), POINT).flatten(1)
    assert truth.relative_error(y, truth.p_dist(x, w, p)) <= 1e-6


@interpreter
@pytest.mark.parametrize("p", [8.0, math.inf])
def test_a_short_training_gives_the_weights_of_the_reference(monkeypatch, p):
    """Bits at p = inf, where every sum has the reference's order; the tolerance of a few steps else."""
    trained = {}
    for name in ("reference", "triton"):
        monkeypatch.setenv("LINFDIST_BACKEND", name)
        torch.manual_seed(0)
        model, x = TwoLayers(), images(3)
        for _ in range(2):
            steps = gradients(model, model(x, p))
            with torch.no_grad():
                for parameter, step in zip(model.parameters(), steps, strict=True):
                    parameter -= 0.01 * step
        trained[name] = [parameter.detach() for parameter in model.parameters()]
    for actual, expected in zip(trained["triton"], trained["reference"], strict=True):
        if p == math.inf:
            truth.assert_same_bits(actual, expected)
        else:
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_on_the_cpu_it_is_never_taken_unasked(monkeypatch):
    monkeypatch.delenv("LINFDIST_BACKEND", raising=False)
    monkeypatch.setattr(backends, "_warned", {"missing"})
    monkeypatch.setattr(backends.native, "unsupported", lambda x, w: ["not here"])
    x = torch.empty(2, 3, 1, 1)
    assert backends.pick_backend(x, x) is reference


def test_forced_without_the_interpreter_it_says_what_to_do(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setenv("LINFDIST_BACKEND", "triton")
    with pytest.raises(RuntimeError, match="there only Triton's interpreter runs, slowly, if TRITON_INTERPRET=1"):
        ld.dist(torch.rand(2, 3), torch.rand(4, 3))


def test_without_triton_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(triton, "missing", lambda: "not installed: run `pip install triton` (Linux)")
    monkeypatch.setenv("LINFDIST_BACKEND", "triton")
    with pytest.raises(RuntimeError, match=r"cannot run here \(not installed: run `pip install triton`"):
        ld.dist(torch.rand(2, 3), torch.rand(4, 3))
    status = next(status for status in ld.backends() if status.name == "triton")
    assert not status.available


@pytest.mark.parametrize("device", ["mps", "xpu"])
def test_a_device_without_kernels_runs_the_reference_and_warns_once(monkeypatch, device):
    """No such device is here: a tensor is asked for nothing but its shape, dtype and device."""

    there = SimpleNamespace(shape=(2, 3, 1, 1), dtype=torch.float32, device=torch.device(device), numel=lambda: 6)
    monkeypatch.delenv("LINFDIST_BACKEND", raising=False)
    monkeypatch.setattr(backends, "_warned", set())
    with pytest.warns(UserWarning, match=f"slow reference backend for tensors on {device}"):
        assert backends.pick_backend(there, there) is reference
    assert backends.pick_backend(there, there) is reference  # a second warning would be an error


def test_importing_the_package_does_not_import_triton():
    program = (
        "import sys, torch, linfdist as ld\n"
        "ld.dist(torch.rand(2, 3), torch.rand(4, 3))\n"
        "assert [s.name for s in ld.backends()] == ['native', 'triton', 'reference']\n"
        "print('triton' in sys.modules)"
    )
    run = python("-c", program, LINFDIST_BACKEND=None)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "False"
