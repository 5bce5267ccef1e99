"""What every command says of itself, and how it says that it was misused."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import linfdist as ld
from linfdist.cli import app
from linfdist.cli.options import _complete_model, _complete_recipe
from tests.ops.processes import python


def commands(command, *path):
    """All verbs and groups of verbs, with the words that lead to them; the second value says whether it is a group."""
    subcommands = getattr(command, "commands", {})
    yield path, bool(subcommands)
    for name, each in subcommands.items():
        yield from commands(each, *path, name)


COMMANDS = list(commands(typer.main.get_command(app)))
VERBS = [path for path, is_group in COMMANDS if not is_group]
GROUPS = [path for path, is_group in COMMANDS if is_group]


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    return lambda *arguments: CliRunner().invoke(app, arguments, prog_name="linfdist")


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_help_has_an_example_of_its_verb(run, verb):
    result = run(*verb, "-h")
    assert result.exit_code == 0
    assert f"Example: linfdist {' '.join(verb)}" in result.output
    assert result.output == run(*verb, "--help").output
    assert "<bool>" not in result.output


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_is_in_the_docs(verb):
    docs = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    lines = [line for line in docs.splitlines() if f"linfdist {verb[0]}" in line]
    assert any(verb[-1] in line for line in lines), f"docs/command-line.md needs a line about linfdist {' '.join(verb)}"


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_help_shows_no_value_of_flags(run, group):
    result = run(*group, "--help")
    assert "--help" in result.output
    assert "<bool>" not in result.output


def test_version(run):
    assert run("--version").output == f"linfdist {ld.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["certify"], "error: Missing argument 'MODEL'.\nhelp: linfdist certify --help\n"),
        (["certify", "--xyzzy"], "error: No such option: --xyzzy\nhelp: linfdist certify --help\n"),
        (["--xyzzy"], "error: No such option: --xyzzy\nhelp: linfdist --help\n"),
        (["nope"], "error: No such command 'nope'.\nhelp: linfdist --help\n"),
        (["zoo", "nope"], "error: No such command 'nope'.\nhelp: linfdist zoo --help\n"),
        (["evalute"], "error: No such command 'evalute'. Did you mean 'evaluate'?\nhelp: linfdist --help\n"),
        (["zoo", "lst"], "error: No such command 'lst'. Did you mean 'list'?\nhelp: linfdist zoo --help\n"),
        (["data", "fetch", "mnst"], "error: Invalid value for NAME: unknown data set mnst; the data sets are mnist, "),
        (["reproduce", "table99"], "error: Invalid value for TABLE: 'table99' is not one of table1"),
        (["export", "mnist-0.3", "--format", "x"], "error: Invalid value for '--format': 'x' is not one of 'exact'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_misuse_is_told_in_one_style(run, arguments, said):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(said)
    assert result.stderr.count("\n") == 2


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["train", "mnist-quik"], "mnist-quick"),
        (["train", "digits-quick", "--set", "data=mnst"], "mnist"),
        (["train", "digits-quick", "--set", "widht=3"], "width"),
        (["data", "fetch", "fashoin"], "fashion"),
        (["evaluate", "mnist-03"], "mnist-0.3"),
        (["evaluate", "mnist-0.3", "--data", "mnsit"], "mnist"),
        (["evaluate", "mnist-0.3", "--attack", "pdg"], "pgd"),
        (["evaluate", "mnist-0.3", "--method", "bx"], "box"),
        (["zoo", "show", "fashion-01"], "fashion-0.1"),
        (["zoo", "list", "--data", "mnits"], "mnist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_a_misspelt_name_is_told_what_was_meant(run, arguments, meant):
    result = run(*arguments)
    assert result.exit_code in (1, 2)
    assert f"did you mean {meant}" in result.stderr


def test_a_report_of_a_network_says_what_it_wants(run, tmp_path):
    result = run("report", "mnist-0.3")
    assert result.exit_code == 1
    assert "linfdist evaluate mnist-0.3, then linfdist report runs/mnist-0.3" in result.stderr
    (tmp_path / "net.safetensors").write_bytes(b"")
    assert "is a file: give the folder" in run("report", str(tmp_path / "net.safetensors")).stderr


def test_what_shells_complete(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert _complete_model("mnist-0.3-") == ["mnist-0.3-box", "mnist-0.3-mlp"]
    assert _complete_model("mi") == ["mine"]
    assert _complete_model(f"{tmp_path}/m") == [f"{tmp_path}/mine"]
    assert _complete_recipe("mnist-q") == ["mnist-quick"]


WITHOUT_TORCH = [
    *(f"{' '.join(verb)} --help" for verb in VERBS),
    "--help",
    "--version",
    "data list",
    "info --short",
    "recipes list",
    "recipes show mnist-quick",
    "zoo list",
    "zoo show mnist-0.3",
    "certify --no-such-option",
]


def test_what_computes_nothing_does_without_torch():
    """All in one process: nothing of torch or NumPy may be left behind."""
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from linfdist.cli import app\n"
        "from linfdist.cli.options import _complete_model, _complete_recipe\n"
        "assert _complete_model('mnist') and _complete_recipe('mnist')\n"
        f"for command in {WITHOUT_TORCH!r}:\n"
        "    result = CliRunner().invoke(app, command.split(), prog_name='linfdist')\n"
        "    assert result.exit_code == (2 if 'no-such' in command else 0), (command, result.output)\n"
        "    assert not {'torch', 'numpy'} & set(sys.modules), command\n"
    )
    run = python("-c", program)
    assert run.returncode == 0, run.stderr


def test_completion_in_a_shell_does_without_torch():
    asked = {"_LINFDIST_COMPLETE": "complete_bash", "COMP_WORDS": "linfdist certify mnist-0.3", "COMP_CWORD": "2"}
    program = (
        "import atexit, sys\n"
        "from linfdist.cli import main\n"
        "atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))\n"
        "main()\n"
    )
    run = python("-c", program, **asked)
    assert "mnist-0.3-mlp" in run.stdout.split(), run.stderr
    assert run.stderr.strip() == "False"
