import pytest
import typer
from typer.testing import CliRunner

from linfdist import recipes
from linfdist.cli.recipes import app


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "250")
    main = typer.Typer()
    main.add_typer(app, name="recipes")
    return lambda *arguments: CliRunner().invoke(main, ["recipes", *arguments])


def test_list_shows_every_recipe_with_its_source(run):
    result = run("list")
    assert result.exit_code == 0
    for name in recipes.names():
        assert f" {name} " in result.output
        assert recipes.load(name).source in result.output
    assert "conv_dist_net_mlp 6 x 128" in result.output


def test_list_keeps_names_whole_on_a_narrow_terminal(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    output = run("list").output
    assert all(f" {name} " in output for name in recipes.names())
    assert max(map(len, output.splitlines())) <= 80


def test_show_prints_a_file_that_loads_again(run, tmp_path):
    result = run("show", "cifar10-depth-gaussian-7", "--set", "width=64", "--set", "epochs=8")
    assert result.exit_code == 0
    (tmp_path / "mine.toml").write_text(result.output, encoding="utf-8")
    recipe = recipes.load(tmp_path / "mine.toml")
    assert (recipe.depth, recipe.identity_init, recipe.width, recipe.epochs) == (7, False, 64, 8)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["mnits"], "did you mean mnist"), (["mnist", "--set", "widht=3"], "did you mean width?")],
)
def test_errors_are_told_without_a_traceback(run, arguments, complaint):
    result = run("show", *arguments)
    assert result.exit_code == 2
    assert complaint in result.output
    assert "Traceback" not in result.output
