"""What every contender gets: time that people can write, and that is enough."""

import re

import pytest

from linfdist import recipes
from linfdist.data import NAMES, info, load
from linfdist.experiments.tables.contenders import MethodContender, Task, chosen, contenders
from linfdist.experiments.tables.rules import Rules, data_sets, parse_budget, rounded_up_time, time_text
from linfdist.experiments.tables.trials import epochs_within, seconds_per_epoch

from .fakes import Fake


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("20m", 1200),
        ("1.5h", 5400),
        (" 2 m ", 120),
        ("1h30m", 5400),
        ("1h 5s", 3605),
        ("0.5s", 0.5),
        ("1000h", 3.6e6),
    ],
)
def test_times(text, seconds):
    assert parse_budget(text) == seconds
    assert parse_budget(time_text(seconds)) == seconds


@pytest.mark.parametrize("text", ["20x", "20", "", "m", "-1m", "0s", "1e3s", "nan", "1001h", "20 minutes", "1m1m"])
def test_what_is_no_time(text):
    with pytest.raises(
        ValueError, match=re.escape(f"budget = {text!r}: must be a time such as 90s, 20m, 1.5h or 1h30m")
    ):
        parse_budget(text)


def test_how_time_is_shared():
    rules = Rules("mnist", 1200)
    assert (rules.trials, rules.trial_seconds, rules.training_seconds) == (3, 100, 900)
    assert rules.needed(90) == pytest.approx(120)  # three quarters of which are an epoch
    assert Rules("mnist", 1200, trials=9).needed(100) == pytest.approx(360)  # a ninth of a quarter: a tenth of an epoch
    alone = Rules("mnist", 1200, trials=1)
    assert (alone.trial_seconds, alone.training_seconds, alone.needed(90)) == (0, 1200, 90)
    assert rules.name.startswith("mnist-20m-trials3-seed0-")
    assert [rounded_up_time(value) for value in (0.2, 179.1, 181, 10700, 10801)] == ["1s", "180s", "4m", "179m", "4h"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"data": "mnits"}, "data = 'mnits': must be one of mnist, .*; did you mean mnist"),
        ({"budget": 0.0}, "budget = 0.0: must be more than 0"),
        ({"budget": float("nan")}, "budget = nan"),
        ({"trials": 0}, "trials = 0: must be between 1 and 10,000"),
        ({"seed": -1}, "seed = -1"),
        ({"limit": 0}, "limit = 0"),
    ],
)
def test_terms_that_cannot_be(change, told):
    with pytest.raises(ValueError, match=told):
        Rules(**{"data": "mnist", "budget": 60.0} | change)


def test_everyone_is_there_and_declares_settings_that_work(digits):
    everyone = contenders()
    assert {"dist", "ibp", "crown-ibp", "natural"} <= everyone.keys()
    task = Task(load("digits", data_dir=digits), info("digits"), Rules("digits", 1).recipe, 0)
    for contender in everyone.values():
        assert len(contender.settings) >= 3, contender.name
        assert contender.certified_by
        for setting in contender.settings:
            assert contender.steps_per_epoch(task, setting) > 0
    method, plan = MethodContender(type(everyone["sabr"].method()))._parts(task, everyone["sabr"].settings[1], 40.0)
    assert (method.share, plan.kappa, plan.lr, plan.warm_up, plan.ramp) == (0.4, (0.0, 0.0), 1e-3, 2.0, 20.0)
    _, plan = everyone["crown-ibp"]._parts(task, everyone["crown-ibp"].settings[1], 40.0)
    assert plan.eps == pytest.approx(0.1 * 4 / 3)


@pytest.mark.parametrize("name", ["dist", "natural"])
def test_a_training_tells_how_it_is_after_each_epoch(digits, name):
    task, told = Task(load("digits", data_dir=digits), info("digits"), Rules("digits", 1).recipe, 0), []
    contender = contenders()[name]
    contender.train(task, contender.settings[0], 2.0, lambda *each: told.append(each))
    assert [epoch for epoch, _ in told] == [1, 2]
    assert 0 < told[0][1] < told[1][1] <= 100


def test_unknown_names_and_too_many_trials():
    assert [each.name for each in chosen(["ibp", "dist"], 3)] == ["dist", "ibp"]
    assert len(chosen([], 1)) == len(contenders())
    with pytest.raises(ValueError, match="there is no 'ipb'; did you mean ibp"):
        chosen(["ipb"], 3)
    with pytest.raises(ValueError, match=r"trials = 99: must be at most \d+, for dist has so many settings"):
        chosen([], 99)


def test_the_pace_is_that_of_what_is_added(digits, monkeypatch):
    """A training of n steps that takes 5 + 2 n seconds: an epoch of 13 takes 26, whatever its beginning costs."""
    task = Task(load("digits", data_dir=digits), info("digits"), Rules("digits", 1).recipe, 0)
    fake, now = Fake(), [0.0]
    monkeypatch.setattr("linfdist.experiments.tables.trials.time.perf_counter", lambda: now[0])
    train = fake.train

    def slow(task, setting, epochs):
        now[0] += 5 + 2 * epochs * fake.steps_per_epoch(task, setting)
        return train(task, setting, epochs)

    fake.train = slow
    assert fake.steps_per_epoch(task, {}) == 13
    assert seconds_per_epoch(fake, task, fake.settings[0], long=1e4) == pytest.approx(26)
    assert fake.calls == [4 / 13, 8 / 13, 16 / 13]
    assert epochs_within(260, 26, 13) == 123 / 13  # 95 % of it, in whole steps
    assert epochs_within(0.001, 26, 13) == 1 / 13


@pytest.mark.parametrize("name", data_sets())
def test_quick_recipes_have_no_augmentation_that_others_do_not_take(name):
    """Otherwise ours alone would be trained with it: whoever adds some must pass it on to everyone."""
    recipe = recipes.load(f"{name}-quick")
    assert (recipe.crop, recipe.pad_share, recipe.turn, recipe.stretch, recipe.slide) == (None, 1, 0, 0, 0)


def test_data_sets_whose_quick_recipe_crops_are_left_out():
    assert set(data_sets()) == {name for name in NAMES if recipes.load(f"{name}-quick").crop is None}
    assert "tinyimagenet" not in data_sets()
