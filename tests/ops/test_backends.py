"""Which backend runs: the best that can, or the one that is asked for; never silently another."""

import warnings

import pytest
import torch

import linfdist as ld
from linfdist.ops import backends, exact
from linfdist.ops.adam import adam_step
from linfdist.ops.backends import native, reference

from .processes import python

needs_native = pytest.mark.skipif(bool(native.missing()), reason=f"native: {native.missing()}")
X, W = torch.rand(3, 5), torch.rand(2, 5)


def images(rows, inputs):
    return torch.empty(rows, inputs, 1, 1)


def test_all_backends_are_listed_best_first(monkeypatch):
    monkeypatch.delenv("LINFDIST_BACKEND", raising=False)
    statuses = ld.backends()
    assert [status.name for status in statuses] == list(backends.BACKENDS)
    assert statuses[-1].name == "reference", "the one that runs anything comes last: none behind it would be chosen"
    assert statuses[-1].available
    for status in statuses:
        assert bool(status.reasons) != status.available, "available, or with reasons"
    best = next(status.name for status in statuses if status.available and status.name != "triton")  # on the CPU
    assert backends.pick_backend(images(3, 5), images(2, 5)).name == best


def test_a_built_library_is_available():
    """A library that was built but does not load must not turn this suite into one of the reference alone."""
    assert native.missing() == "" or native.missing().startswith("not built")


def test_the_environment_forces_a_backend(monkeypatch, backend):
    called = []
    fake = lambda *_: called.append(backend) or torch.zeros(3, 2, 1, 1)  # noqa: E731
    monkeypatch.setattr(backends.BACKENDS[backend], "inf_dist", fake)
    ld.dist(X, W)
    assert called == [backend]


@pytest.mark.parametrize("p", [2.0, float("inf")])
def test_an_unknown_backend_is_an_error_that_names_the_known(monkeypatch, p):
    monkeypatch.setenv("LINFDIST_BACKEND", "gpu9")
    with pytest.raises(
        ValueError,
        match=f"LINFDIST_BACKEND='gpu9' is not a backend: set it to one of {', '.join(backends.BACKENDS)}, or unset",
    ):
        ld.dist(X, W, p)


def test_a_forced_backend_that_cannot_run_says_why(monkeypatch):
    monkeypatch.setenv("LINFDIST_BACKEND", "native")
    monkeypatch.setattr(native, "missing", lambda: "not built: no compiler")
    with pytest.raises(RuntimeError, match=r"LINFDIST_BACKEND='native' cannot run here \(not built: no compiler\)"):
        ld.dist(X, W)


def test_an_empty_variable_forces_nothing(monkeypatch):
    monkeypatch.setenv("LINFDIST_BACKEND", "")
    assert backends.pick_backend(images(3, 5), images(2, 5)).name in ("native", "reference")


def test_a_backend_gives_its_reasons():
    reasons = native.unsupported(torch.empty(0, dtype=torch.float16, device="meta"), torch.empty(0))
    assert "needs tensors on cpu, got meta" in reasons
    assert "needs float32 or float64, got torch.float16" in reasons
    assert reference.unsupported(torch.empty(0, device="meta"), torch.empty(0)) == []


def test_without_the_native_library_the_reference_runs_and_says_so_once(monkeypatch):
    monkeypatch.delenv("LINFDIST_BACKEND", raising=False)
    monkeypatch.setattr(native, "missing", lambda: "not built: no compiler")
    monkeypatch.setattr(backends, "_warned", set())
    with pytest.warns(UserWarning, match="slow reference backend, because the native one is not built: no compiler"):
        y = ld.dist(X, W)
    assert torch.equal(y, (X[:, None] - W).abs().amax(-1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ld.dist(X, W)
        ld.dist(X, W, 3)
    status = ld.backends()[0]
    assert (status.name, status.available, status.reasons) == ("native", False, ("not built: no compiler",))


def test_a_forced_reference_does_not_warn(monkeypatch):
    monkeypatch.setenv("LINFDIST_BACKEND", "reference")
    monkeypatch.setattr(native, "missing", lambda: "not built: no compiler")
    monkeypatch.setattr(backends, "_warned", set())
    ld.dist(X, W)  # warnings are errors here


def test_the_reference_warns_of_a_large_problem_only(monkeypatch):
    monkeypatch.setattr(native, "missing", lambda: "")
    monkeypatch.setattr(native, "unsupported", lambda x, w: ["needs tensors on cpu, got moon"])
    monkeypatch.delenv("LINFDIST_BACKEND", raising=False)
    monkeypatch.setattr(backends, "_warned", set())
    assert backends.pick_backend(images(64, 64), images(64, 64)) is reference
    large = images(1024, 1024)
    with pytest.warns(UserWarning, match="needs tensors on cpu, got moon"):
        assert backends.pick_backend(large, large) is reference


SLOW = pytest.mark.slow  # a process each


@needs_native
@pytest.mark.parametrize(
    "wanted", [pytest.param("sse9", marks=SLOW), "neon", "avx2", "avx512", pytest.param("SCALAR", marks=SLOW)]
)
def test_an_instruction_set_that_cannot_run_is_an_error_that_names_the_others(wanted):
    if wanted in native.isas():
        pytest.skip(f"{wanted} runs here")
    program = (
        "import torch, linfdist as ld\n"
        "print(ld.backends()[0])\n"
        "for p in (float('inf'), 8.0):\n"
        "    try: ld.dist(torch.rand(3, 5), torch.rand(2, 5), p)\n"
        "    except ValueError as e: print('RAISED', type(e).__name__, isinstance(e, RuntimeError), e)\n"
    )
    run = python("-c", program, LINFDIST_ISA=wanted, LINFDIST_BACKEND=None)
    assert run.returncode == 0, run.stderr
    message = (
        f"LINFDIST_ISA={wanted} cannot run here; available: {', '.join(native.isas())}. Set LINFDIST_ISA to one of"
    )
    status, *raised = run.stdout.splitlines()  # one line each: a message, and no traceback of the library
    assert "available=False" in status
    assert message in status
    assert len(raised) == 2
    assert all(line.startswith("RAISED InstructionSetError True") and message in line for line in raised)


@pytest.mark.parametrize("operation", ["dist", "exact", "adam"])
def test_every_operation_refuses_an_unknown_backend(monkeypatch, operation):
    monkeypatch.setenv("LINFDIST_BACKEND", "gpu9")
    whole, zeros = torch.zeros(2, 2, dtype=torch.int16), torch.zeros(2, dtype=torch.int32)
    four = [torch.ones(2, 2) for _ in range(4)]
    calls = {
        "dist": lambda: ld.dist(X, W),
        "exact": lambda: exact.dense(whole, whole, zeros),
        "adam": lambda: adam_step(*four, lr=0.1, betas=(0.9, 0.9), eps=1e-8, decay=0.0, p=2.0, step=1),
    }
    with pytest.raises(ValueError, match="LINFDIST_BACKEND='gpu9' is not a backend"):
        calls[operation]()


def test_how_to_build_the_library_depends_on_what_is_installed(tmp_path):
    package = tmp_path / "src" / "linfdist" / "__init__.py"
    assert native.remedy(package).startswith("install linfdist again")
    (tmp_path / "csrc").mkdir()
    assert native.remedy(package) == f"run `make setup` or `pip install .` in {tmp_path}"
