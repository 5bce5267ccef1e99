"""The house: public names, which module may import which, and what an import costs."""

import ast
from importlib.metadata import version
from pathlib import Path

import pytest

import linfdist as ld

from .ops.processes import ROOT, python

SOURCE = ROOT / "src" / "linfdist"
OPS = sorted((SOURCE / "ops").rglob("*.py"))


def imported(file: Path) -> set[str]:
    """Absolute names of all modules that a file imports, wherever in the file."""
    package = ("linfdist", *file.relative_to(SOURCE).parts[:-1])
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return names


def test_public_names():
    assert {"__version__", "backends", "dist", "dist_box", "dist_box_conv2d", "dist_conv2d"} <= set(ld.__all__)
    assert len(set(ld.__all__)) == len(ld.__all__)
    assert all(hasattr(ld, name) for name in ld.__all__)
    assert ld.__version__ == version("linfdist")


def test_public_functions_are_documented():
    for name in set(ld.__all__) - {"__version__"}:
        assert getattr(ld, name).__doc__, name


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").exists()


@pytest.mark.parametrize("file", OPS, ids=lambda file: str(file.relative_to(SOURCE)))
def test_the_ops_import_nothing_above_them(file):
    above = {name for name in imported(file) if name.startswith("linfdist.") and not name.startswith("linfdist.ops")}
    assert above == set()
    third_party = {name.split(".")[0] for name in imported(file)} & {"typer", "rich", "numpy", "sklearn", "pydantic"}
    assert third_party == set()


@pytest.mark.parametrize(
    ("name", "below"),
    [
        ("numbers", set()),
        ("files", set()),
        ("rows", {"eps", "files", "numbers"}),
        ("runs", {"eps", "files", "rows", "recipes"}),
    ],
)
def test_rows_and_runs_are_leaves(name, below):
    used = {each.split(".")[1] for each in imported(SOURCE / f"{name}.py") if each.startswith("linfdist.")}
    assert used <= below


@pytest.mark.parametrize("file", sorted((SOURCE / "report").glob("*.py")), ids=lambda file: file.name)
def test_reports_read_rows_never_networks(file):
    used = {each.split(".")[1] for each in imported(file) if each.startswith("linfdist.")}
    assert not used & {"models", "nn", "ops", "attacks", "certificates", "evaluate", "training", "zoo", "exact"}


@pytest.mark.parametrize("name", ["reference", "native"])
def test_a_backend_knows_nothing_of_autograd(name):
    names = imported(SOURCE / "ops" / "backends" / f"{name}.py")
    assert not any(
        part in used for used in names for part in ("autograd", "ops.dist", "ops.box", "ops.kernels", "ops.select")
    )


def test_an_import_is_light():
    """Neither the command line's packages nor the native library before they are needed."""
    program = (
        "import sys, linfdist, torch\n"
        "heavy = {'typer', 'rich', 'sklearn', 'linfdist.cli', 'torch._inductor', 'torch._dynamo'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert not any('_native' in name for name in torch.ops.loaded_libraries)\n"
    )
    run = python("-c", program)
    assert run.returncode == 0, run.stderr


def test_an_import_has_no_side_effect_on_torch():
    program = (
        "import torch\n"
        "state = lambda: (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),"
        " torch.random.get_rng_state().sum().item(), (torch.full((9,), 1e-40) * 0.5).sum().item() > 0)\n"
        "before = state()\n"
        "import linfdist as ld\n"
        "ld.dist(torch.ones(40, 7), torch.zeros(3, 7), 30.5)\n"
        "assert state() == before, (state(), before)\n"
    )
    run = python("-c", program)
    assert run.returncode == 0, run.stderr
