"""Experiments are kept once, with what was changed, and only if their numbers are of held-out images."""

import shutil

import pytest

from linfdist import recipes
from linfdist.evaluation import watch
from linfdist.runs.folder import Run
from linfdist.runs.records import append_records
from linfdist.training import train
from tools.study import experiment, main, read, settings


@pytest.fixture(scope="module")
def runs(digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    small = recipes.load("digits-quick").override({"width": 16, "epochs": 2, "lr": 0.05})
    for name, recipe in {"held-out": small.override({"holdout": 200, "seed": 4}), "seen": small}.items():
        train(recipe, folder / name, data_dir=digits, quiet=True, evaluate=watch(recipe))
    return folder


def test_a_row(runs):
    run = Run(runs / "held-out")
    row = experiment(run)
    assert (row.name, row.recipe) == ("held-out", run.recipe)
    assert settings(row.recipe) == {"width": 16, "lr": 0.05, "e1": 0.2, "e2": 50 / 30, "e3": 4 / 30}
    assert (row.certified, row.clean) == (run.metrics[-1]["certified"], run.metrics[-1]["clean"])
    assert row.certified * 2 == int(row.certified * 2)  # of 200 images


def test_runs_are_kept_once(runs, tmp_path, capsys):
    path = tmp_path / "results" / "study.jsonl"
    arguments = [str(runs / "held-out"), str(runs / "held-out"), "--file", str(path)]
    assert main(arguments) == 0
    assert "1 new rows" in capsys.readouterr().out
    assert main(arguments) == 0
    assert "0 new rows" in capsys.readouterr().out
    assert len(read(path)) == 1
    path.write_text(path.read_text() + "{}\n")
    assert main(arguments) == 1
    assert "line 2 is no result" in capsys.readouterr().err


def test_a_row_has_both_kinds_of_images(runs):
    row = experiment(Run(runs / "held-out"))
    last = Run(runs / "held-out").metrics[-1]
    assert (row.certified, row.seen_certified) == (last["certified"], last["seen_certified"])
    assert "seen_certified" not in Run(runs / "seen").metrics[-1]


def test_images_that_were_seen_prove_nothing(runs, tmp_path, capsys):
    path = tmp_path / "study.jsonl"
    assert main([str(runs / "held-out"), str(runs / "seen"), "--file", str(path)]) == 1
    assert "held no images out" in capsys.readouterr().err
    assert not path.exists()  # all or none


def test_a_row_without_held_out_images_is_no_experiment(runs, tmp_path):
    row = experiment(Run(runs / "held-out")).model_dump(exclude_none=True)
    path = tmp_path / "study.jsonl"
    append_records(path, [row | {"recipe": row["recipe"] | {"holdout": 0}}])
    with pytest.raises(ValueError, match=r"line 1 is no result: .*held no images out"):
        read(path)


def test_a_run_that_was_not_watched(runs, tmp_path):
    copy = shutil.copytree(runs / "held-out", tmp_path / "run")
    (copy / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="no certified accuracy in its last epoch"):
        experiment(Run(copy))


def test_an_unknown_recipe_is_told_in_full():
    recipe = recipes.load("digits-quick")
    assert settings(recipe) == {}
    own = settings(recipe.model_copy(update={"name": "mine"}))
    assert own["width"] == 256
    assert own["lr"] == 0.03
    assert "source" not in own
