"""Runs a small table of its own on the digits: trained, evaluated, kept, and not done twice."""

import json

import pytest

from linfdist import recipes
from linfdist.experiments.tables.plan import Planned
from linfdist.experiments.tables.reproduce import Job, epoch_times, missing, run, schedule_points
from linfdist.experiments.tables.rows import read_table_rows
from linfdist.runs.records import append_records
from linfdist.training import train

SETTINGS = {"width": 16, "epochs": 2}


def planned(table=3, **settings):
    chosen = SETTINGS | settings
    return Planned(table, "laptop", "A", None, chosen, recipes.load("digits-quick").override(chosen))


@pytest.fixture(scope="module")
def done(digits, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    said = []
    jobs = [Job(planned(), seed) for seed in (0, 1)]
    rows = run(jobs, out, out / "rows.jsonl", digits, quiet=True, tell=said.append)
    return out, jobs, rows, said


def test_every_run_has_a_row_of_what_was_measured(done):
    out, jobs, rows, said = done
    assert said == ["1 of 2: digits-quick-seed0", "2 of 2: digits-quick-seed1"]
    assert [row.recipe.seed for row in rows] == [0, 1]
    for job, row in zip(jobs, rows, strict=True):
        summary = json.loads((out / job.name / "summary.json").read_text())
        assert (row.clean, row.robust, row.certified) == (summary["clean"], summary["robust"], summary["certified"])
        assert summary["method"] == "box"
        assert row.certified <= row.robust <= row.clean
        assert json.loads((out / job.name / "recipe.json").read_text())["seed"] == row.recipe.seed
        last = json.loads((out / job.name / "metrics.jsonl").read_text().splitlines()[-1])
        assert row.train_clean == last["train_accuracy"]
        assert row.belongs_to(job.planned)
        assert row.recipe.width == SETTINGS["width"]


def test_what_has_a_row_is_not_run_again(done, tmp_path, digits):
    out, jobs, rows, _ = done
    said = []
    assert run(jobs, tmp_path / "nowhere", out / "rows.jsonl", digits, tell=said.append) == rows
    assert said == []
    assert not (tmp_path / "nowhere").exists()


def test_other_settings_or_another_table_are_other_runs(done):
    _, jobs, rows, _ = done
    assert missing(jobs, rows) == []
    for other in (planned(epochs=3), planned(table=7)):
        assert missing([Job(other, 0)], rows) == [Job(other, 0)]
    assert missing([Job(planned(), 2)], rows) == [Job(planned(), 2)]


def test_a_finished_run_without_a_row_is_only_read(done, tmp_path, digits):
    """Stopped between the run and its row: nothing is trained again."""
    out, jobs, rows, _ = done
    model = out / jobs[0].name / "model.safetensors"
    before = model.stat().st_mtime_ns
    again = run(jobs[:1], out, tmp_path / "rows.jsonl", digits, quiet=True)
    assert again == [rows[0].model_copy(update={"date": again[0].date})]
    assert model.stat().st_mtime_ns == before


def test_a_run_that_was_stopped_goes_on(tmp_path, digits):
    """An unfinished run in its folder is taken up, not an error."""
    job = Job(planned(), 0)

    def stop(*_: object) -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # at the end of the first epoch, after many checkpoints
        train(job.planned.with_seed(0), tmp_path / job.name, data_dir=digits, evaluate=stop, checkpoint_seconds=0)
    assert (tmp_path / job.name / "checkpoint.safetensors").exists()
    (row,) = run([job], tmp_path, tmp_path / "rows.jsonl", digits, quiet=True)
    assert row.belongs_to(job.planned)
    assert len((tmp_path / job.name / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_line_that_is_no_row_is_named(tmp_path, make_row):
    path = tmp_path / "rows.jsonl"
    row = make_row(3, "cifar10-ablation-a", clean=30.0)
    append_records(path, [row.model_dump(exclude_none=True)])
    assert read_table_rows(path) == [row]
    append_records(path, [row.model_dump() | {"clean": 130.0}])
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2 is no result: clean: "):
        read_table_rows(path)
    assert read_table_rows(tmp_path / "none.jsonl") == []


def test_epoch_times(digits):
    recipe = recipes.load("digits-quick").override({"width": 16, "e1": 1, "e2": 6, "e3": 1})
    times = epoch_times(recipe, digits, steps=1)
    ps = [float(p) for p in times.by_p]
    assert len(ps) == 8
    assert ps[0] == 8
    assert ps[1:7] == pytest.approx([8 * 125 ** ((k + 0.5) / 6) for k in range(6)], rel=0.05)
    assert ps[7] == float("inf")
    assert times.mean == pytest.approx(sum(times.by_p.values()) / 8)  # here every point stands for one epoch
    hard = epoch_times(recipe.override({"smooth": False}), digits, steps=1)
    assert list(hard.by_p) == ["inf"]
    assert hard.mean == pytest.approx(hard.by_p["inf"])


def test_the_points_stand_for_all_epochs():
    for name in ("cifar10", "digits-quick", "tinyimagenet-mlp"):
        recipe = recipes.load(name)
        points = schedule_points(recipe)
        assert sum(share for _, share in points) == pytest.approx(recipe.epochs)
        assert all(0 <= epoch <= recipe.epochs for epoch, _ in points)
    assert len(schedule_points(recipes.load("cifar10").override({"e1": 0, "e3": 0}))) == 6
