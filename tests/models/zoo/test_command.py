"""`linfdist zoo`: list and show; and the tool that adds networks."""

import json
import os
import shutil
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from linfdist.cli import app
from linfdist.eps import down, parse_eps
from linfdist.models.zoo import card, names
from tools.zoo_add import main


@pytest.fixture
def invoke(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, ["zoo", *map(str, arguments)])


def test_list_and_show(invoke, zoo):
    listed = invoke("list", "--folder", zoo)
    assert listed.exit_code == 0, listed.output
    claimed = card("digits-0.1", zoo)
    line = next(line for line in listed.output.splitlines() if "digits-0.1" in line)
    size = (zoo / "digits-0.1.safetensors").stat().st_size
    assert line.split()[-4:] == [f"{claimed.clean:.2f}", down(claimed.certified, 2), "–", f"{size / 1e6:.1f}"]
    shown = invoke("show", "digits-0.1", "--folder", zoo)
    assert shown.exit_code == 0, shown.output
    again = "linfdist train digits-quick --set"
    for part in (claimed.sha256, f"{down(claimed.certified, 2)} % (box)", claimed.strongest.images, "width 32", again):
        assert part in shown.output


def test_show_a_mean(invoke, zoo, tmp_path):
    """`zoo show` tells that the network is a mean, and of what."""
    shutil.copy(zoo / "digits-0.1.safetensors", tmp_path)
    values = json.loads((zoo / "digits-0.1.json").read_text())
    values["recipe"] |= {"mean_with": ["mnist-0.3", "runs/other"]}
    (tmp_path / "digits-0.1.json").write_text(json.dumps(values))
    shown = invoke("show", "digits-0.1", "--folder", tmp_path)
    assert "width 32, mean with mnist-0.3, runs/other" in " ".join(shown.output.split())


def changed_card(zoo, folder, **changes):
    shutil.copy(zoo / "digits-0.1.safetensors", folder)
    (folder / "digits-0.1.json").write_text(json.dumps(json.loads((zoo / "digits-0.1.json").read_text()) | changes))


def test_show_has_a_line_for_each_command_and_none_of_a_name(invoke, zoo, tmp_path):
    changed_card(zoo, tmp_path, before=["linfdist train first", "linfdist train a\nname"])
    shown = invoke("show", "digits-0.1", "--folder", tmp_path)
    lines = [line.removeprefix("again").strip() for line in shown.output.splitlines()]
    first = lines.index("linfdist train first")
    assert lines[first + 1] == "linfdist train a\\nname"
    assert lines[first + 2].startswith("linfdist train digits-quick")


def test_a_card_is_text_and_no_markup(invoke, zoo, tmp_path):
    changed_card(zoo, tmp_path, data="[/]")
    assert listed(invoke("list", "--folder", tmp_path)) == ["digits-0.1"]


@pytest.mark.parametrize(
    ("key", "value"), [("model", None), ("depth", "3"), ("source", 1), ("width", True), ("mean_with", [1])]
)
def test_cards_that_lack_what_is_shown_are_refused(invoke, zoo, tmp_path, key, value):
    recipe = json.loads((zoo / "digits-0.1.json").read_text())["recipe"]
    changed_card(zoo, tmp_path, recipe=recipe | {key: value})
    for arguments in (["list"], ["show", "digits-0.1"]):
        refused = invoke(*arguments, "--folder", tmp_path)
        assert refused.exit_code == 1, refused.output
        assert f"recipe.{key} must be" in refused.stderr


@pytest.mark.parametrize("changes", [{"name": "mine"}, {"a key of tomorrow": 1}])
def test_show_a_network_that_no_recipe_of_the_package_trains(invoke, zoo, tmp_path, changes):
    shutil.copy(zoo / "digits-0.1.safetensors", tmp_path)
    values = json.loads((zoo / "digits-0.1.json").read_text())
    values["recipe"] |= changes
    (tmp_path / "digits-0.1.json").write_text(json.dumps(values))
    shown = invoke("show", "digits-0.1", "--folder", tmp_path)
    assert shown.exit_code == 0, shown.output
    assert "not by a recipe of this package" in shown.output


def listed(result):
    """The first words of the lines of a table, below its head."""
    assert result.exit_code == 0, result.output
    return [line.split()[0] for line in result.stdout.splitlines() if line.strip()][2:]


def test_list_filters_and_has_the_highest_certified_accuracy_first(invoke):
    everything = [(card(name).data, parse_eps(card(name).eps), -card(name).certified, name) for name in names()]
    assert listed(invoke("list")) == [name for *_, name in sorted(everything)]
    mnist = listed(invoke("list", "--data", "mnist", "--eps", "0.3"))
    assert mnist == [name for data, eps, _, name in sorted(everything) if (data, eps) == ("mnist", Fraction(3, 10))]
    assert len(mnist) > 1
    assert listed(invoke("list", "--eps", "16/510")) == listed(invoke("list", "--data", "cifar10", "--eps", "8/255"))
    nothing = invoke("list", "--data", "mnist", "--eps", "8/255")
    assert nothing.exit_code == 0
    assert "no such network" in nothing.stdout
    assert "  mnist at 0.3" in nothing.stdout.splitlines()
    assert "--eps" in invoke("list", "--eps", "a lot").stderr


def test_list_works_whatever_the_package_holds(invoke, tmp_path):
    assert invoke("list").exit_code == 0
    empty = invoke("list", "--folder", tmp_path)
    assert empty.exit_code == 0
    assert "no networks" in empty.output


def test_errors_are_one_line(invoke, zoo, tmp_path):
    unknown = invoke("show", "mnist", "--folder", zoo)
    assert unknown.exit_code == 1
    assert unknown.stderr.strip() == "error: no network 'mnist' in the zoo; the zoo has digits-0.1"


def test_add(run, digits, tmp_path, capsys):
    """The tool of the repository that makes zoos."""
    assert main([str(tmp_path), "x", "--folder", str(tmp_path / "zoo")]) == 1
    assert "not the folder of a finished run" in capsys.readouterr().err
    options = ["--folder", tmp_path / "zoo", "--results", tmp_path, "--data-dir", digits]
    assert main([str(run), "again", *map(str, options)]) == 0
    assert "certified at 0.1" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "zoo").iterdir()} == {"again.json", "again.safetensors"}
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "zoo" / "again.safetensors").stat().st_mode & 0o777 == 0o666 & ~umask  # others may load it
    assert (tmp_path / "curves" / "again.json").exists()
