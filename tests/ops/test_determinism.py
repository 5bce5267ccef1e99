"""Same bits for any number of threads, and at p = inf for any instruction set and backend."""

import json
import math

import pytest
import torch

import linfdist as ld
from linfdist.ops.backends import native

from . import cases
from .processes import python

needs_native = pytest.mark.skipif(bool(native.missing()), reason=f"native: {native.missing()}")
INSTRUCTION_SETS = [] if native.missing() else native.isas()


@pytest.fixture(scope="module")
def in_processes():
    """Digests of all cases by (instruction set, threads), each made in a process of its own."""
    made = {}

    def get(isa, threads=1):
        if (isa, threads) not in made:
            run = python("-m", "tests.ops.cases", str(threads), LINFDIST_ISA=isa, LINFDIST_BACKEND="native")
            assert run.returncode == 0, run.stderr
            made[isa, threads] = json.loads(run.stdout)
        return made[isa, threads]

    return get


# The reference is slow: what could depend on threads there is how torch splits a reduction, a scatter or a power.
FEW = [
    "inf pruned float32",
    "inf convolution float32",
    "p=8 pruned",
    "p=30.5 convolution",
    "p=30.5 pruned",
    "p=8 float64",
]


@pytest.mark.compiled
def test_threads_do_not_matter(backend):
    names = FEW if backend == "reference" else list(cases.CASES)
    expected = cases.digests(names)  # with one thread
    for threads in (2, 3) if backend == "reference" else (2, 3, 24):  # 24: more tasks, on whatever cores there are
        torch.set_num_threads(threads)
        assert torch.get_num_threads() == threads
        assert cases.digests(names) == expected


@pytest.mark.compiled
def test_a_second_call_gives_the_same_bits(backend):
    torch.set_num_threads(2)
    first = cases.convolution(torch.float32, 30.5)
    for again, then in zip(cases.convolution(torch.float32, 30.5), first, strict=True):
        assert torch.equal(again, then)


@needs_native
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_a_forced_instruction_set_is_used_and_reported(in_processes, isa):
    report = in_processes(isa)
    assert report["backend"] == "native"
    assert report["detail"] == f"{isa} (of {', '.join(INSTRUCTION_SETS)})"


@needs_native
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_at_inf_every_instruction_set_gives_the_same_bits(in_processes, isa):
    """Gradients too: they are sums in an order that no instruction set changes."""
    expected = {name: value for name, value in in_processes("scalar")["digests"].items() if name.startswith("inf")}
    assert len(expected) == 11
    actual = in_processes(isa)["digests"]
    assert {name: actual[name] for name in expected} == expected


@pytest.mark.slow
@needs_native
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_threads_do_not_matter_to_any_instruction_set(in_processes, isa):
    assert in_processes(isa, threads=3)["digests"] == in_processes(isa)["digests"]


@needs_native
def test_at_inf_backends_give_the_same_values(monkeypatch):
    names = [name for name in cases.CASES if name.startswith("inf")]
    monkeypatch.setenv("LINFDIST_BACKEND", "native")
    fast = {name: cases.CASES[name]() for name in names}
    monkeypatch.setenv("LINFDIST_BACKEND", "reference")
    for name in names:
        values = 4 if "box" in name else 1 if "not finite" in name or "convolution" in name else 2  # then gradients
        for mine, theirs in zip(fast[name][:values], cases.CASES[name]()[:values], strict=True):
            assert torch.equal(mine, theirs), name


@needs_native
@pytest.mark.slow
@pytest.mark.parametrize("isa", INSTRUCTION_SETS[1:])
def test_every_instruction_set_passes_the_tests_of_the_ops(isa):
    """The best one has passed them in this process; tests/emulated compares all with the definitions each time."""
    files = ["inf_dist", "p_dist", "box_dist", "conv", "shapes", "nonfinite"]
    run = python(
        "-m", "pytest", "-q", "-k", "native", *(f"tests/ops/test_{name}.py" for name in files),
        timeout=280, LINFDIST_ISA=isa,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:]


@pytest.mark.compiled
def test_denormals_are_not_flushed_for_the_rest_of_the_process(backend):
    """The finite-p kernels may flush them inside; on every thread they must put the mode back."""
    torch.set_num_threads(2)
    tiny = torch.full((100_000,), 1e-40)
    for p in (12, 30.5, 1000):
        x = torch.rand(70, 131, requires_grad=True)
        ld.dist(x, torch.randn(37, 131), p).sum().backward()
        assert (tiny * 0.5 > 0).all()
    x = torch.full((70, 3), 1e-40)
    assert torch.equal(ld.dist(x, torch.zeros(2, 3), math.inf), torch.full((70, 2), 1e-40))


FLUSHING = """
import sys, torch, linfdist as ld
from tests.ops.cases import digest

def results():
    torch.manual_seed(0)
    found = []
    for dtype, quantum in ((torch.float32, 2.0**-149), (torch.float64, 2.0**-1074)):
        for rows in (3, 203):
            x = (torch.randint(-40, 40, (rows, 211)).to(torch.float64) * quantum).to(dtype)  # exact: made unflushed
            w = (torch.randint(-40, 40, (131, 211)).to(torch.float64) * quantum).to(dtype)
            found.append((x, w))
    return found

def run(data):
    parts = []
    for x, w in data:
        parts.append(ld.dist(x, w))
        a, b = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = ld.dist(a, b)
        parts += [y, *torch.autograd.grad(y, (a, b), torch.ones_like(y))]
        parts += ld.dist_box(x, x, w)
        images, kernels = x[:, :209].reshape(-1, 11, 19, 1), w[:, :99].reshape(131, 11, 3, 3)
        parts.append(ld.dist_conv2d(images, kernels, padding=1))
    return digest(*parts)

data = results()
torch.set_num_threads(int(sys.argv[1]))
if sys.argv[2] == "born flushing":  # the pool's threads inherit the mode of the one that starts them
    assert torch.set_flush_denormal(True)
expected = run(data)
assert torch.set_flush_denormal(sys.argv[2] == "plain")
assert run(data) == expected
print(expected)
"""


@needs_native
def test_flushing_denormals_elsewhere_does_not_reach_the_engine():
    """`torch.set_flush_denormal` acts on one thread; pool threads keep the mode they were born with."""
    runs = [
        python("-c", FLUSHING, threads, mode, LINFDIST_BACKEND="native")
        for threads, mode in (("2", "plain"), ("3", "born flushing"))
    ]
    for run in runs:
        assert run.returncode == 0, run.stderr
    assert len({run.stdout for run in runs}) == 1
