"""A comparison is the same whether it was stopped or not, and says what does not fit."""

import json

import pytest
from typer.testing import CliRunner

from linfdist.cli import app
from linfdist.experiments.tables.compare import run
from linfdist.experiments.tables.rows import read_compare_rows
from linfdist.experiments.tables.rules import Rules
from linfdist.runs.records import append_records
from linfdist.training import Diverged

from .fakes import Fake


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Epochs of one second, few images to choose by, one round of attacks: time and attacks are tested elsewhere."""
    monkeypatch.setattr("linfdist.experiments.tables.entry.seconds_per_epoch", lambda *_: 1.0)
    monkeypatch.setattr("linfdist.experiments.tables.trials.HELD_OUT", 40)
    monkeypatch.setattr("linfdist.evaluation.gallery.ROUNDS", 1)


@pytest.fixture
def contend(monkeypatch, tmp_path, digits):
    def go(*fakes, budget=8.0, **rules):
        monkeypatch.setattr(
            "linfdist.experiments.tables.contenders.contenders", lambda: {each.name: each for each in fakes}
        )
        monkeypatch.setattr("linfdist.experiments.tables.entry.MEASURED_BY", ("pgd",))
        told = []
        rules = Rules("digits", budget, limit=20, **rules)
        return run(rules, [], tmp_path, tmp_path / "rows.jsonl", digits, told.append), told

    return go


def test_a_row_and_its_choice(contend):
    fake = Fake()
    ((row,), told) = contend(fake)
    assert [trial.setting for trial in row.trials] == [{"lr": 0.1}, {"lr": 0.2, "kappa": [1.0, 0.0]}, {"lr": 0.3}]
    best = max(row.trials, key=lambda trial: trial.rank)
    assert (row.led, row.chosen) == (best, best.setting)
    assert (row.data, row.eps, row.budget, row.seed, row.n) == ("digits", "0.1", 8.0, 0, 20)
    assert row.certified_by == "box,crown-ibp"
    assert row.certified <= row.strongest <= row.pgd20 <= row.clean
    assert row.memory_mb is None or row.memory_mb > 10
    assert [round(epochs, 1) for epochs in fake.calls[:3]] == [0.6, 0.6, 0.6]  # 95 % of 8 s / 4 / 3
    assert row.epochs == fake.calls[3] > 6  # its seconds per epoch are those of the trial: nearly nothing
    assert told[:2] == ["  Fake (fake): about 1s per epoch", "1 of 1: Fake (fake)"]


def test_nobody_takes_longer_than_the_others(contend, monkeypatch):
    """A training whose epochs take twice as long as its probes is done again, with half of the epochs."""
    now, fake = [0.0], Fake()
    monkeypatch.setattr("linfdist.experiments.tables.trials.time.perf_counter", lambda: now[0])
    train = fake.train

    def slow(task, setting, epochs, after_epoch):
        now[0] += 2 * epochs
        return train(task, setting, epochs, after_epoch)

    fake.train = slow
    ((row,), told) = contend(fake, trials=1)
    assert [round(epochs, 1) for epochs in fake.calls] == [
        7.3,
        3.8,
    ]  # 95 % of 8 s, at 1 s per epoch, held-out images aside; then at 2 s
    assert (row.epochs, row.seconds) == (fake.calls[1], pytest.approx(2 * fake.calls[1], abs=1e-3))
    assert "longer than the others have" in told[2]


@pytest.mark.parametrize("when", [1, 2, 4])
def test_what_is_finished_is_not_done_again(contend, tmp_path, when):
    fake = Fake(stop=when)
    with pytest.raises(KeyboardInterrupt):
        contend(fake)
    assert not (tmp_path / "rows.jsonl").exists()
    assert not list(tmp_path.rglob("*.tmp"))
    ((row,), _) = contend(fake)
    assert len(fake.calls) == 5  # three trials and a training, and the one that was stopped
    ((again,), told) = contend(fake)
    assert (again, told, len(fake.calls)) == (row, [], 5)
    contend(fake, trials=1)  # other rules have a row of their own, and files
    assert len(read_compare_rows(tmp_path / "rows.jsonl")) == 2
    assert len(fake.calls) == 6


def test_what_others_do_not_take_of_our_recipe_may_change(contend, monkeypatch):
    other, ours = Fake(), Fake("ours")
    ours.takes = None
    before, _ = contend(other, ours)
    changed = Rules("digits", 8.0).recipe.override({"width": 64})
    monkeypatch.setattr(Rules, "recipe", changed)
    after, _ = contend(other, ours)
    assert (len(other.calls), len(ours.calls)) == (4, 8)  # three trials and a training, ours twice
    assert [row.method for row in after] == ["fake", "ours"]
    assert after[0] == before[0]
    assert after[1].recipe != before[1].recipe
    monkeypatch.setattr(Rules, "recipe", changed.override({"flip": True}))  # which everyone takes
    contend(other, ours)
    assert (len(other.calls), len(ours.calls)) == (8, 12)


def test_a_file_that_is_no_trial_is_named(contend, tmp_path):
    rules = Rules("digits", 8.0)
    folder = tmp_path / rules.name / f"fake-{rules.shared}"
    folder.mkdir(parents=True)
    (folder / "trial-1.json").write_text('{"setting": 3}\n')
    with pytest.raises(ValueError, match=r"trial-1.json, line 1 is no result: setting: .*: remove this line"):
        contend(Fake())


def test_a_setting_that_diverges_is_not_chosen_and_a_method_that_does_stops_nobody(contend, tmp_path):
    ((row,), _) = contend(Fake(stop=2, error=Diverged))
    assert row.trials[1].problem == "lost at 0.2"
    assert row.chosen != row.trials[1].setting
    with pytest.raises(Diverged, match="lost: lost at"):
        contend(Fake("lost", stop=4, error=Diverged), Fake("other"))
    assert {row.method for row in read_compare_rows(tmp_path / "rows.jsonl")} == {"fake", "other"}


def test_a_pace_is_told_as_soon_as_it_is_measured(monkeypatch, tmp_path, digits):
    """The first one is known before the second one is timed."""
    told, fakes = [], {"one": Fake("one"), "two": Fake("two")}
    monkeypatch.setattr("linfdist.experiments.tables.contenders.contenders", lambda: fakes)

    def timed(contender, *_):
        if contender.name == "two":
            raise KeyboardInterrupt
        return 1.0

    monkeypatch.setattr("linfdist.experiments.tables.entry.seconds_per_epoch", timed)
    with pytest.raises(KeyboardInterrupt):
        run(Rules("digits", 8.0, limit=20), [], tmp_path, tmp_path / "rows.jsonl", digits, told.append)
    assert told[0].startswith("2 methods, 16s of training in all")
    assert told[1:] == ["  One (one): about 1s per epoch"]


def test_a_budget_that_is_too_small_says_what_is_needed(contend, tmp_path):
    fake = Fake()
    with pytest.raises(ValueError, match=r"budget = 1s: is too small for one epoch and 3 trials; .* fake 2s, late 2s"):
        contend(fake, Fake("late"), budget=1.0)
    assert fake.calls == []
    assert not (tmp_path / "rows.jsonl").exists()


def no_matplotlib():
    raise ImportError("matplotlib is missing")


def test_the_command(tmp_path, digits, monkeypatch):
    """Two real methods, twice: what they did is shown again, and nothing is done."""
    monkeypatch.setenv("COLUMNS", "100")
    command = ["compare", "--data", "digits", "--budget", "1.5s", "--methods", "ibp,dist", "--trials", "2",
               "--limit", "20", "--out", str(tmp_path), "--data-dir", str(digits)]  # fmt: skip
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    rows = read_compare_rows(tmp_path / "rows.jsonl")
    assert [row.method for row in rows] == ["dist", "ibp"]
    for row in rows:
        assert row.certified <= row.strongest <= row.pgd20 <= row.clean
        assert row.seconds > 0
        assert {"machine", "date", "trials", "chosen", "seed"} <= json.loads(row.model_dump_json()).keys()
    for word in ("ℓ∞-dist Net", "IBP", "digits, ε = 0.1, 1.5s for each", "2 settings tried on held-out images; seed 0"):
        assert word in first.output
    (folder,) = tmp_path.glob("digits-1.5s-trials2-seed0-*")
    assert (folder / "compare-dark.png").read_bytes().startswith(b"\x89PNG")
    # A later recipe of ours, and today's again: the picture is of today's.
    other = rows[0].model_copy(update={"recipe": "00000000", "certified": 0.0})
    append_records(tmp_path / "rows.jsonl", [other.model_dump(exclude_none=True)])
    before = (tmp_path / "rows.jsonl").read_bytes()
    monkeypatch.setattr("linfdist.report.charts.require_matplotlib", no_matplotlib)
    second = CliRunner().invoke(app, command)
    assert second.exit_code == 0
    assert "trial 1 of 2" in first.output
    assert "trial 1" not in second.output
    assert "no picture: matplotlib is missing" in second.output
    assert (tmp_path / "rows.jsonl").read_bytes() == before


def test_rows_that_cannot_be_written_are_told_before_anything_is_trained(tmp_path, digits):
    (tmp_path / "file").touch()
    rows = tmp_path / "file" / "rows.jsonl"
    with pytest.raises(ValueError, match=r"rows\.jsonl cannot be written .*: choose another --rows"):
        run(Rules("digits", 8.0), ["natural"], tmp_path, rows, digits)
    assert not list(tmp_path.glob("*/natural-*"))


def test_a_network_that_cannot_be_read_is_named(contend, tmp_path):
    contend(Fake())
    (network,) = tmp_path.glob("*/*/model.safetensors")
    network.write_bytes(network.read_bytes()[:99])
    (tmp_path / "rows.jsonl").unlink()
    with pytest.raises(ValueError, match=r"model\.safetensors .*; remove it, and it is trained again"):
        contend(Fake())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            ["--budget", "20x"],
            "Invalid value for --budget: budget = '20x': must be a time such as 90s, 20m, 1.5h or 1h30m",
        ),
        (["--data", "mnits"], "Invalid value for --data: data = 'mnits': must be one of mnist"),
        (["--methods", "ipb"], "there is no 'ipb'; did you mean ibp"),
        (["--methods", ","], "there is no ''; the methods are dist, natural"),
        (["--trials", "0"], "trials = 0: must be between 1 and 10,000"),
        (["--limit", "0"], "limit = 0: must be at least 1 image"),
    ],
)
def test_misuse(change, told, tmp_path):
    command = ["compare", "--data", "digits", "--budget", "2s", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*command, *change])
    assert result.exit_code == 2
    assert told in result.stderr
    assert not (tmp_path / "out").exists()
