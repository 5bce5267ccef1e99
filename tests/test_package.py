"""The house: public names, which module may import which, and what an import costs."""

import ast
import importlib
import re
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name

import pytest

import linfdist as ld
from linfdist.errors import LinfdistError
from linfdist.files import tomllib

from .ops.processes import ROOT, python

SOURCE = ROOT / "src" / "linfdist"
FILES = sorted(SOURCE.rglob("*.py"))
OPS = sorted((SOURCE / "ops").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LEAVES = {"data", "eps", "errors", "files", "lazy", "recipes", "runs", "version"}

# Who may import whom, from top to bottom: a row names nothing above itself. CONTRIBUTING.md quotes it.
HOUSE = """
| package | may import, besides the leaves |
|---|---|
| `cli` | everything below |
| `sklearn` | `training` `certificates` `models` |
| `experiments` | `baselines` `theory` `report` `evaluation` `export` `exact` `attacks` `training` `models` `ops` |
| `baselines` | `training` `bounds` `models` `nn` `ops` |
| `theory` | `export` `exact` `certificates` `models` `nn` `ops` |
| `report` | nothing: it reads rows, never networks |
| `evaluation` | `certificates` `attacks` `models` |
| `export` | `exact` `certificates` `models` `nn` |
| `exact` | `certificates` `bounds` `models` `nn` `ops` |
| `certificates` | `bounds` `models` `nn` `ops` |
| `attacks` | `models` `nn` |
| `training` | `bounds` `models` `nn` `ops`: never `certificates`, a callback is handed in |
| `bounds` | `models` `nn` |
| `models` | `nn` |
| `nn` | `ops` |
| `ops` | only the leaves `errors` `version` |
| `runs` | `recipes` `files` `eps` |
| `recipes` | `data` `files` `eps` `errors` `lazy` |
| `data` | `files` `errors` `lazy` |
| `files` | nothing |
| `eps` | nothing |
| `errors` | nothing |
| `lazy` | nothing |
| `version` | nothing |
"""


def house() -> dict[str, set[str]]:
    """The table: for each package those it may import."""
    rows = [line.strip("| ").split("|") for line in HOUSE.strip().splitlines()[2:]]
    named = {left.strip(" `"): set(re.findall("`(\\w+)`", right.split(":")[0])) for left, right in rows}
    names = list(named)
    named["cli"] = set(names[1:])
    for name in names:
        if name not in LEAVES | {"ops"}:
            named[name] |= LEAVES
    return named


def imported(file: Path) -> set[str]:
    """Absolute names of all that a file imports, wherever in the file; `linfdist` for `import linfdist` alone."""
    package = ("linfdist", *file.relative_to(SOURCE).parts[:-1])
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            names |= {module, *(f"{module}.{alias.name}" for alias in node.names)} - {"linfdist"}
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


def package_of(name: str) -> str:
    """`linfdist.models.loading` is of `models`."""
    return name.split(".")[1]


def modules() -> dict[str, Path]:
    """All modules by name."""
    named = {".".join(("linfdist", *file.relative_to(SOURCE).with_suffix("").parts)): file for file in FILES}
    return {name.removesuffix(".__init__"): file for name, file in named.items()}


def test_the_house_has_no_way_up():
    names = list(house())
    for number, (name, below) in enumerate(house().items()):
        assert below <= set(names), name
        if name not in LEAVES:
            assert not below & set(names[: number + 1]), name
    leaves = [name for name in names if name in LEAVES]
    assert set(leaves) == LEAVES
    for number, name in enumerate(leaves):
        assert house()[name] <= set(leaves[number + 1 :]), name


def test_contributing_shows_the_house():
    assert HOUSE.strip() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_go_down(file):
    known = modules()
    own = next(name for name, path in known.items() if path == file)
    if own in ("linfdist", "linfdist.__main__"):
        return  # the public names, and the command
    allowed = house()[package_of(own)] | {package_of(own)}
    for name in imported(file) & known.keys() - {"linfdist"}:
        assert package_of(name) in allowed, f"{own} imports {name}"
    top = {name for name in imported(file) - known.keys() if re.fullmatch(r"linfdist\.\w+", name)}
    top |= imported(file) & {"linfdist"}
    if own != "linfdist.ops.backends.native":  # it asks where the package is
        assert package_of(own) == "cli" or not top, f"{own} takes {top} from the top: import it from where it is"


def test_every_permission_is_used():
    used: dict[str, set[str]] = {name: set() for name in house()}
    for own, file in modules().items():
        if own not in ("linfdist", "linfdist.__main__"):
            used[package_of(own)] |= {package_of(name) for name in imported(file) & modules().keys() - {"linfdist"}}
    for name, allowed in house().items():
        needless = allowed - used[name] - (set() if name in LEAVES else LEAVES)
        assert name == "cli" or not needless, f"{name} does not import {', '.join(sorted(needless))}"


def test_errors_have_one_base_and_a_builtin_one():
    """`except LinfdistError` catches all, `except ValueError` what it always does; Ctrl-C stays what it is."""
    for name in ("cli", "evaluation.run", "exact", "training"):
        importlib.import_module(f"linfdist.{name}")
    waiting, ours = [BaseException], set()
    while waiting:
        found = waiting.pop().__subclasses__()
        waiting += found
        ours |= {error for error in found if error.__module__.startswith("linfdist.")}
    assert {
        "Corrupt",
        "DataError",
        "Diverged",
        "JobError",
        "LostWorker",
        "RecipeError",
        "Undecided",
        "Unavailable",
        "Violated",
    } <= {error.__name__ for error in ours}
    for error in ours - {LinfdistError}:
        assert issubclass(error, KeyboardInterrupt) or issubclass(error, LinfdistError), error
        assert issubclass(error, KeyboardInterrupt | ValueError | RuntimeError), error


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_what_is_shipped_knows_nothing_of_the_repository(file):
    assert not {name for name in imported(file) if name.split(".")[0] in ("tools", "tests")}
    assert "shared/data" not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", OPS, ids=lambda file: str(file.relative_to(SOURCE)))
def test_the_ops_import_no_package_of_the_command_line(file):
    third_party = {name.split(".")[0] for name in imported(file)} & {"typer", "rich", "numpy", "sklearn", "pydantic"}
    assert third_party == set()


@pytest.mark.parametrize("file", sorted((SOURCE / "report").glob("*.py")), ids=lambda file: file.name)
def test_reports_read_rows_never_networks(file):
    used = {each.split(".")[1] for each in imported(file) if each.startswith("linfdist.")}
    assert not used & {"models", "nn", "ops", "attacks", "certificates", "evaluation", "training", "exact"}


BACKEND_FILES = sorted((SOURCE / "ops" / "backends").rglob("*.py"))


@pytest.mark.parametrize("file", BACKEND_FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_backend_knows_nothing_of_autograd(file):
    assert not any(part in used for used in imported(file) for part in ("autograd", "ops.dist", "ops.operators"))


def lazy_packages() -> list[str]:
    """The packages whose names are imported when they are first used."""
    return [name for name, file in modules().items() if file.name == "__init__.py" and "lazy_names" in file.read_text()]


@pytest.mark.parametrize("name", lazy_packages())
def test_lazy_names_are_those_that_type_checkers_see(name):
    package = importlib.import_module(name)
    (seen,) = [node for node in ast.parse(modules()[name].read_text()).body if isinstance(node, ast.If)]
    imports = [node for node in seen.body if isinstance(node, ast.ImportFrom)]
    expected = {alias.name: node.module for node in imports for alias in node.names}
    assert expected
    for public, module in expected.items():
        home = f"{name}.{module}" if module else name
        found = importlib.import_module(f"{home}.{public}") if not module else None
        assert getattr(package, public) is (found or getattr(importlib.import_module(home), public)), public
    assert set(package.__all__) <= {*expected, *vars(package)}
    shadowed = {public for public, module in expected.items() if module and f"{name}.{public}" in modules()}
    assert shadowed <= {"zoo"}  # a submodule of another package


def test_a_star_import_gives_the_public_names():
    run = python("-c", "from linfdist import *; certify, load, save, evaluate, train, nn.DistLinear, zoo.names")
    assert run.returncode == 0, run.stderr


def test_an_import_costs_nothing():
    program = (
        "import sys, linfdist\n"
        "assert linfdist.__version__ and 'certify' in dir(linfdist)\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'safetensors'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    run = python("-c", program)
    assert run.returncode == 0, run.stderr


def test_an_import_is_light():
    """Neither the command line's packages nor the native library before they are needed."""
    program = (
        "import sys, linfdist, torch\n"
        "linfdist.certify, linfdist.dist, linfdist.load('mnist-0.3')\n"
        "linfdist.load('mnist-0.3-mlp'), linfdist.load('cifar10-8_255-conv')\n"
        "heavy = {'typer', 'rich', 'sklearn', 'linfdist.cli', 'torch._inductor', 'torch._dynamo', 'sympy'}"
        " & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert not any('_native' in name for name in torch.ops.loaded_libraries)\n"
    )
    run = python("-c", program)
    assert run.returncode == 0, run.stderr


QUICK = {  # what must answer at once, and packages that it does without besides torch and numpy
    "--version": {"pydantic", "linfdist.models", "linfdist.recipes"},
    "--help": {"pydantic"},
    "train --help": {"linfdist.recipes.schema"},
    "info --short": {"linfdist.models", "linfdist.recipes"},
    "recipes list": set(),
    "recipes show mnist-quick": set(),
    "zoo list": {"linfdist.recipes.schema"},
    "zoo show mnist-0.3": set(),
    "data list": set(),
}


@pytest.mark.parametrize("command", QUICK)
def test_what_answers_at_once_imports_little(command):
    program = (
        "import sys\n"
        "from linfdist.cli import app\n"
        f"try: app({command.split()}, prog_name='linfdist')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        f"heavy = {QUICK[command] | {'torch', 'numpy'}} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    run = python("-c", program)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(("words", "offered"), [("ev", "evaluate"), ("evaluate mnist-0.3-", "mnist-0.3-mlp")])
def test_completion_imports_little(words, offered):
    program = (
        "import os, sys\n"
        "os.environ |= {'_LINFDIST_COMPLETE': 'complete_bash', 'COMP_WORDS': 'linfdist " + words + "', 'COMP_CWORD': "
        f"'{len(words.split())}'}}\n"
        "from linfdist.cli import app\n"
        "try: app(prog_name='linfdist')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "heavy = {'torch', 'numpy', 'linfdist.recipes.schema'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    run = python("-c", program)
    assert run.returncode == 0, run.stderr
    assert offered in run.stdout


def test_a_certificate_is_read_in_few_files():
    """All that a reader must open to follow one image from `load` to its certificate; what runs on import aside."""
    program = (
        "import inspect, sys, torch, linfdist as ld\n"
        "executed = set()\n"
        "def note(frame, event, argument):\n"
        "    if event == 'call' and frame.f_code.co_flags & inspect.CO_OPTIMIZED:\n"  # a function's
        "        executed.add(frame.f_code.co_filename)\n"
        "root = ld.__file__.removesuffix('__init__.py')\n"
        "load, certify = ld.load, ld.certify\n"
        "sys.setprofile(note)\n"
        "certify(load('mnist-0.3'), torch.rand(1, 1, 28, 28), eps=0.3)\n"
        "sys.setprofile(None)\n"
        "print(*sorted(name for name in executed if name.startswith(root)), sep='\\n')\n"
    )
    run = python("-c", program)
    assert run.returncode == 0, run.stderr
    files = run.stdout.split()
    assert str(SOURCE / "certificates" / "proofs.py") in files
    assert len(files) <= 19, files


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


def test_what_tab_offers_is_ours_and_works():
    """In a process of its own: elsewhere the submodules have been imported already."""
    program = (
        "import linfdist as ld\n"
        "names = dir(ld)\n"
        "assert {'attacks', 'exact', 'report', 'training', 'certify'} <= set(names), names\n"
        "assert not {'import_module', 'version', 'Any', 'TYPE_CHECKING', 'PackageNotFoundError'} & set(names), names\n"
        "for name in names: getattr(ld, name)\n"
        "assert ld.training.hinge_loss and ld.attacks.attack and ld.exact.freeze\n"
        "try: ld.none\n"
        "except AttributeError as error: assert 'linfdist' in str(error)\n"
        "else: raise AssertionError\n"
    )
    run = python("-c", program)
    assert run.returncode == 0, run.stderr


def test_the_lower_bounds_are_those_that_are_tested():
    """Except packages of a GPU, of other projects' attacks and of the Hub, which `make test-lowest` does without."""
    extras = PROJECT["optional-dependencies"]
    users = [extras[name] for name in extras.keys() - {"art", "attack", "dev", "docs", "gpu", "hub"}]
    asked = {line.replace(">=", "==", 1) for line in sum(users, PROJECT["dependencies"])}
    tested, _ = (ROOT / "constraints-lowest.txt").read_text().split("\n\n")
    assert asked == set(tested.splitlines()[1:])


def test_the_version_is_the_same_everywhere():
    number = re.escape(PROJECT["version"])
    assert re.search(rf"^version: {number}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[0] == PROJECT["version"]


def test_the_docs_name_what_there_is():
    """By full names; on the page in the browser, `linfdist` is an object of JavaScript."""
    pages = [page for page in (*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")) if page.name != "CHANGELOG.md"]
    texts = [page.read_text(encoding="utf-8") for page in pages if page.name != "html.md"]
    names = {name for text in texts for name in re.findall(r"`((?:linfdist|ld)(?:\.\w+)+)", text)}
    assert "ld.certify" in names
    for name in names:
        assert resolve_name(re.sub("^ld\\b", "linfdist", name)) is not None, name


def test_workflows_and_the_makefile_name_what_there_is():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    workflows = [file.read_text(encoding="utf-8") for file in (ROOT / ".github" / "workflows").glob("*.yml")]
    made = {name for text in workflows for names in re.findall(r"\bmake ([a-z -]+)", text) for name in names.split()}
    assert {"test", "test-all", "test-lowest", "docs"} <= made <= targets, made - targets
    named = set(re.findall(r"\btests/[\w./]+", makefile))
    assert named, makefile
    assert not [name for name in named if not (ROOT / name).exists() and not (ROOT / f"{name}.py").exists()]


def test_the_badges_are_true():
    badges = re.findall(r"!\[([^]]*)\]\(https://img\.shields\.io/badge/", (ROOT / "README.md").read_text())
    asked = [f"Python{PROJECT['requires-python']}", PROJECT["dependencies"][0]]
    assert badges == [*(each.replace(">=", " ≥ ") for each in asked), f"licence {PROJECT['license']}"]
