"""A search goes on where it was stopped, sees no test image, and shows what nothing beats."""

import math
import shlex
import subprocess
import sys
import time
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from linfdist import data, recipes
from linfdist.baselines.methods.base import Span
from linfdist.cli import app
from linfdist.experiments.tables.contenders import MethodContender, Task, contenders
from linfdist.experiments.tables.rows import TuneRow, read_tune_rows
from linfdist.experiments.tables.trials import without_held_out
from linfdist.experiments.tables.tune import Search, run, searched, suggested
from linfdist.report.plots.fronts import front
from linfdist.training import Diverged

from .fakes import Fake


class Searched(Fake):
    """A fake with a space; `seen` has the number of images of each training."""

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.seen = []

    def space(self, recipe):
        return {"lr": Span(0.1, 10.0, first=1.0), "kappa": Span(0.0, 1.0, first=0.5, log=False)}

    def train(self, task, setting, epochs, *rest):
        self.seen.append(len(task.dataset))
        return super().train(task, setting, epochs, *rest)


@pytest.fixture(autouse=True)
def _few_held_out(monkeypatch):
    monkeypatch.setattr("linfdist.experiments.tables.trials.HELD_OUT", 40)


@pytest.fixture
def search(monkeypatch, tmp_path, digits):
    """Search among fakes whose epochs take a second; the test set is out of reach."""
    load = data.load

    def only_training_images(name, split, *rest, **named):
        assert split == "train"
        return load(name, split, *rest, **named)

    monkeypatch.setattr("linfdist.data.load", only_training_images)
    monkeypatch.setattr("linfdist.experiments.tables.tune.seconds_per_epoch", lambda *_: 1.0)

    def go(*fakes, budget=8.0, trials=4, seed=0, out=tmp_path, tell=str):
        monkeypatch.setattr(
            "linfdist.experiments.tables.contenders.contenders", lambda: {each.name: each for each in fakes}
        )
        monkeypatch.setattr("linfdist.experiments.tables.tune.contenders", lambda: {each.name: each for each in fakes})
        rules = Search(recipes.load("digits-quick"), budget, trials, seed)
        return run(rules, [each.name for each in fakes], out, digits, tell)

    return go


def measured(rows):
    """All of the rows except how long they took, where and when."""
    return [row.model_dump(exclude={"seconds", "epochs", "machine", "date"}) for row in rows]


def test_rows(search):
    fake, other, told = Searched(), Searched("other"), []
    rows = search(fake, other, tell=told.append)
    assert [(row.method, row.number) for row in rows] == [(name, k) for name in ("fake", "other") for k in range(4)]
    assert [row.point for row in rows[:4]] == [row.point for row in rows[4:]]  # their results are equal too
    assert rows[0].point == {"lr": 1.0, "kappa": 0.5}
    assert rows[0].setting == {"lr": 1.0, "kappa": 0.5}
    assert len({tuple(row.point.values()) for row in rows}) == 4
    assert {row.n for row in rows} == {40}
    (size,) = set(fake.seen)
    assert size + 40 == len(data.load("digits", "train"))
    assert all(row.certified <= row.pgd20 <= row.clean for row in rows)
    assert {(row.budget, row.data, row.eps, row.certified_by) for row in rows} == {
        (2.0, "digits", "0.1", "box,crown-ibp")
    }
    assert fake.calls[0] == pytest.approx(1.9, abs=0.1)  # of two seconds, at a second per epoch
    assert told[0] == "Fake (fake): about 1s per epoch"
    assert told[2].startswith("fake, trial 1 of 4, lr=1 kappa=0.5: ")


@pytest.mark.parametrize("when", [1, 3, 5])
def test_a_stopped_search_goes_on_as_if_it_had_not_been(search, tmp_path, when):
    whole = search(Searched(), trials=6)
    fake = Searched(stop=when)
    with pytest.raises(KeyboardInterrupt):
        search(fake, trials=6, out=tmp_path / "stopped")
    resumed = search(fake, trials=6, out=tmp_path / "stopped")
    assert measured(resumed) == measured(whole)
    assert len(fake.calls) == 7  # six trials, and the one that was stopped
    assert search(fake, trials=6, out=tmp_path / "stopped") == resumed
    assert len(fake.calls) == 7


def test_a_longer_search_goes_on_with_a_shorter_one(search):
    fake = Searched()
    short = search(fake, budget=4.0, trials=2)
    assert search(fake, budget=12.0, trials=6)[:2] == short
    assert len(fake.calls) == 6
    search(fake, budget=6.0, trials=2)  # longer trials are others
    search(fake, budget=4.0, trials=2, seed=1)
    assert len(fake.calls) == 10
    assert search(fake, budget=4.0, trials=2) == short


def test_a_trial_that_diverges_has_a_row(search):
    rows = search(Searched(stop=2, error=Diverged))
    assert [row.problem is None for row in rows] == [True, False, True, True]
    assert (rows[1].clean, rows[1].certified) == (0.0, 0.0)
    assert rows[1].problem.startswith("lost at")


def test_rows_of_a_method_that_has_changed_are_of_others(search):
    """The same numbers made another setting then: other steps of the attack, other weights of the loss."""

    class Changed(Searched):
        settings = ({**Searched.settings[0], "steps": 1},)

    before = search(Searched(), trials=2)
    after = search(Changed(), trials=2)
    assert [row.point for row in after] == [row.point for row in before]
    assert [row.setting["steps"] for row in after] == [1, 1]


def test_a_rehearsal_that_diverges_is_a_trial_that_does(search, monkeypatch):
    lost = [Diverged("lost at once", 0)] * 3  # when the budgets are checked, and in the first trial
    lost_at_once = str(lost[0])

    def timed(*_):
        if lost:
            raise lost.pop()
        return 1.0

    monkeypatch.setattr("linfdist.experiments.tables.tune.seconds_per_epoch", timed)
    rows = search(Searched(), Searched("other"), trials=2)
    assert [row.problem for row in rows] == [lost_at_once, None, None, None]


def test_networks_that_may_have_seen_the_held_out_images_are_refused():
    recipe = recipes.load("mnist-quick")
    for change in ({"start": "mnist-0.3"}, {"mean_with": ["mnist-0.3"]}, {"teachers": ["mnist-0.3"]}):
        with pytest.raises(ValueError, match="may have seen the held-out images"):
            searched(["dist"], recipe.override(change))


def test_few_images_and_large_batches_are_named(tmp_path, digits):
    huge = Search(recipes.load("digits-quick").override({"batch_size": 5000}), 5.0)
    with pytest.raises(ValueError, match=r"1,?\d+ images are left to train on, fewer than a batch of dist has"):
        run(huge, ["dist"], tmp_path, digits)
    six = data.Dataset("digits", torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.zeros(6, dtype=torch.int64), ())
    few = Task(six, data.info("digits"), recipes.load("digits-quick"), 0)
    with pytest.raises(ValueError, match="6 training images: some are held out, which takes at least 7"):
        without_held_out(few)


def test_images_are_resized_as_the_recipe_says(tmp_path):
    folder = tmp_path / "pictures"
    for label, grey in (("dark", 40), ("light", 200)):
        for k in range(20):
            path = folder / label / f"{k}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (12, 14), grey + k).save(path)
    recipe = recipes.load("digits-quick").override({"data": str(folder), "resize": 8, "batch_size": 8, "width": 8})
    rows = run(Search(recipe, 1.0, 1), ["dist"], tmp_path / "out")
    assert rows[0].shared != run(Search(recipe.override({"resize": 6}), 1.0, 1), ["dist"], tmp_path / "out")[0].shared


def test_rows_of_others_stay_and_what_is_no_row_is_named(search, tmp_path):
    (row,) = search(Searched(), trials=1)
    other = row.model_copy(update={"point": {"lr": 1.0}})  # of a space that was another one then
    (tmp_path / "trials.jsonl").write_text(other.model_dump_json(exclude_none=True) + "\n")
    assert [each.point for each in search(Searched(), trials=1)] == [row.point]
    assert [each.point for each in read_tune_rows(tmp_path / "trials.jsonl")] == [other.point, row.point]
    with (tmp_path / "trials.jsonl").open("a") as file:
        file.write('{"method": "fake"}\n')
    with pytest.raises(ValueError, match=r"trials\.jsonl, line 3 is no result: setting: .*: remove this line"):
        search(Searched(), trials=1)


def test_a_budget_that_is_too_small_says_what_is_needed(search, tmp_path):
    fake = Searched()
    with pytest.raises(ValueError, match=r"budget = 1s: .* each of 20 trials; needed are at least: fake 2s\. Give"):
        search(fake, budget=1.0, trials=20)
    assert fake.calls == []
    assert not (tmp_path / "trials.jsonl").exists()


def test_without_optuna_the_error_says_what_to_install(search, monkeypatch):
    fake = Searched()
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"linfdist tune needs the package optuna .*: pip install optuna"):
        search(fake)
    assert fake.calls == []


def test_suggestions(make_tune_row):
    """They are within their spans, short, determined by seed and rows, and learn from the rows."""
    import optuna

    level = optuna.logging.get_verbosity()
    space = {"lr": Span(1 / 3000, 0.1, first=0.01), "kappa": Span(0.0, 1.0, first=0.5, log=False)}

    def off(point):
        """The front is at lr = 0.01; kappa trades one accuracy for the other."""
        return abs(math.log10(point["lr"] / 0.01))

    early, late = [], []
    for seed in range(4):
        rows = []
        for _ in range(20):
            point = suggested(space, rows, seed)
            assert point == suggested(space, rows, seed)
            assert all(span.low <= point[key] <= span.high for key, span in space.items())
            assert all(float(f"{value:.4g}") == value for value in point.values())
            clean, certified = 100 * point["kappa"] - 40 * off(point), 100 * (1 - point["kappa"]) - 40 * off(point)
            rows.append(make_tune_row(point=point, clean=max(0.0, clean), certified=max(0.0, certified)))
        assert rows[0].point == {"lr": 0.01, "kappa": 0.5}
        early += [off(suggested(space, rows[:1], other)) for other in range(20)]
        late += [off(suggested(space, rows, other)) for other in range(20)]
    assert sum(late) < 0.75 * sum(early)
    assert optuna.logging.get_verbosity() == level


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20))
def test_a_front_is_what_nothing_beats(pairs):
    rows = [TuneRow.model_construct(clean=float(clean), certified=float(certified)) for clean, certified in pairs]

    def beats(one, other):
        at_least = one.clean >= other.clean and one.certified >= other.certified
        return at_least and (one.clean, one.certified) != (other.clean, other.certified)

    best = front(rows)
    assert sorted(map(id, best)) == sorted(id(row) for row in rows if not any(beats(other, row) for other in rows))
    assert all(one.clean >= two.clean and one.certified <= two.certified for one, two in pairwise(best))


SEARCHABLE = [name for name, each in contenders().items() if each.space(recipes.load("mnist-quick"))]


@pytest.mark.parametrize("name", SEARCHABLE)
def test_the_first_trial_takes_what_is_declared(name):
    recipe, contender = recipes.load("mnist-quick"), contenders()[name]
    space = contender.space(recipe)
    assert {"lr"} < set(space)
    assert all(span.low <= span.first <= span.high for span in space.values())
    setting = contender.setting(space, {key: span.first for key, span in space.items()})
    if isinstance(contender, MethodContender):
        task = Task(None, data.info("mnist"), recipe, 0)
        (tried, plan), (first, usual) = (contender._parts(task, each, 9.0) for each in (setting, contender.settings[0]))
        assert (plan, vars(tried).get("share")) == (usual, vars(first).get("share"))
        assert setting.get("width") == contender.settings[0].get("width")
    else:
        assert recipe.override(setting).resolved().model_dump(exclude={"source"}) == recipe.resolved().model_dump(
            exclude={"source"}
        )


@pytest.mark.parametrize("name", [name for name in recipes.names() if recipes.load(name).crop is None])
def test_every_corner_of_our_space_is_a_recipe(name):
    recipe, ours = recipes.load(name), contenders()["dist"]
    space = ours.space(recipe)
    for corner in ("low", "high"):
        recipe.override(ours.setting(space, {key: getattr(span, corner) for key, span in space.items()}))


def test_a_crop_is_for_ours_alone():
    recipe = recipes.load("tinyimagenet-quick")
    assert [each.name for each in searched(["dist"], recipe)] == ["dist"]
    with pytest.raises(ValueError, match="'ibp' cannot take the crop of recipe tinyimagenet-quick: search dist alone"):
        searched([], recipe)


def test_the_command(tmp_path, digits, monkeypatch):
    """Ours and a rival, for real; then once more, when nothing is left to do."""
    monkeypatch.setenv("COLUMNS", "120")
    words = ["tune", "--data", "digits", "--budget", "2s", "--methods", "ibp,dist", "--trials", "2",
             "--out", str(tmp_path), "--data-dir", str(digits)]  # fmt: skip
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    rows = read_tune_rows(tmp_path / "trials.jsonl")
    assert [(row.method, row.number) for row in rows] == [("dist", 0), ("dist", 1), ("ibp", 0), ("ibp", 1)]
    assert "2 trials per method, 1s of training each; seed 0" in first.output
    for name in ("digits-quick-2s-trials2-seed0.png", "digits-quick-2s-trials2-seed0-dark.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    command = next(line for line in first.output.splitlines() if "linfdist train" in line)
    (row,) = [row for row in front(rows[:2]) if f"{row.certified:g} % certified, {row.clean:g} %" in command][:1]
    name, *settings = shlex.split(command.partition("linfdist train ")[2].replace("--set ", ""))
    recipe = recipes.override(recipes.load(name), settings)
    assert (recipe.lr, recipe.threshold) == (row.point["lr"], f"{row.point['threshold']:g} eps")
    assert recipe.epochs == pytest.approx(row.epochs, rel=1e-3)
    second = CliRunner().invoke(app, words)
    assert second.exit_code == 0
    assert "trial 1 of 2" in first.output
    assert "trial 1" not in second.output
    assert read_tune_rows(tmp_path / "trials.jsonl") == rows


def test_a_killed_search_resumes(tmp_path, digits):
    words = [sys.executable, "-m", "linfdist", "tune", "--data", "digits", "--budget", "3s", "--methods", "dist",
             "--trials", "3", "--out", str(tmp_path), "--data-dir", str(digits)]  # fmt: skip
    file = tmp_path / "trials.jsonl"
    killed = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while killed.poll() is None and not (file.exists() and file.read_bytes()):
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    before = file.read_text()
    assert 1 <= len(before.splitlines()) < 3
    resumed = subprocess.run(words, capture_output=True, encoding="utf-8", check=True)
    assert file.read_text().startswith(before)
    assert [row.number for row in read_tune_rows(file)] == [0, 1, 2]
    assert "trial 1 of 3" not in resumed.stdout


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (["--budget", "20x"], "Invalid value for --budget: budget = '20x': must be a time such as 90s"),
        (["--data", "mnits"], "Invalid value for --data: data = 'mnits': must be one of mnist"),
        (["--recipe", "digits-quick"], "give one of the two: --data (mnist, fashion, cifar10, digits) or --recipe"),
        (["--methods", "ipb"], "there is no 'ipb'; did you mean ibp"),
        (["--methods", "natural"], "nothing is searched of 'natural'; choose from dist, ibp"),
        (["--trials", "0"], "trials = 0: must be between 1 and 10,000"),
        (["--trials", "9" * 400], "must be between 1 and 10,000"),
        (["--seed", "-1"], "seed = -1: must be between 0 and 2**63 - 1"),
    ],
)
def test_misuse(change, told, tmp_path):
    command = ["tune", "--data", "digits", "--budget", "2s", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*command, *change])
    assert result.exit_code == 2
    assert told in result.stderr
    assert not (tmp_path / "out").exists()
