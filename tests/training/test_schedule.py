"""Schedules, against values computed by hand at every corner."""

import math
import re
from itertools import pairwise
from pathlib import Path

import pytest

from linfdist import recipes
from linfdist.training.schedule import PRODUCTS, p_between, state_at, total_steps

STEPS = 10  # an epoch
IBP = {"model": "dist_net_mlp", "loss": "ibp", "threshold": "none", "kappa": "0.5", "eps_train": "0.4"}


def recipe(name="mnist", **changes):
    """e1 = 2, e2 = 5, e3 = 3."""
    return recipes.load(name).override({"e1": 2.0, "e2": 5.0, "e3": 3.0, "lr": 0.02, **changes})


def test_p():
    r = recipe()
    p = [state_at(r, step, STEPS).p for step in range(total_steps(r, STEPS))]
    assert len(p) == 100
    assert p[0] == p[19] == p[20] == 8
    assert p[45] == pytest.approx(math.sqrt(8 * 1000))  # half-way, geometrically
    assert p[69] < 1000 == pytest.approx(p[69] * (1000 / 8) ** (1 / 50))
    assert set(p[70:]) == {math.inf}
    for before, after in pairwise(p[20:70]):  # grows by the same factor with every step
        assert after / before == pytest.approx(125 ** (1 / 50))


def test_p_that_stays_small_for_longer():
    """With p_bend = 0.5, p^-0.5 falls by the same amount with every step."""
    r = recipe(p_bend=0.5)
    p = [state_at(r, step, STEPS).p for step in range(total_steps(r, STEPS))]
    assert p[0] == p[19] == p[20] == 8  # exactly: kernels know that power
    falls = [before**-0.5 - after**-0.5 for before, after in pairwise(p[20:70])]
    assert falls == pytest.approx([(8**-0.5 - 1000**-0.5) / 50] * 49)
    assert set(p[70:]) == {math.inf}
    assert p_between(8, 1000, 1e-20, 0.3) == pytest.approx(p_between(8, 1000, 0, 0.3))  # the limit


def test_p_snapped_to_products():
    smooth, snapped = recipe(), recipe(p_snap=True)
    for step in range(total_steps(smooth, STEPS)):
        p, near = state_at(smooth, step, STEPS).p, state_at(snapped, step, STEPS).p
        if p > 32:
            assert near == p
        else:
            assert near in PRODUCTS
            assert all(abs(math.log(near / p)) <= abs(math.log(other / p)) for other in PRODUCTS)
    assert state_at(recipe(p_snap=True, p_start=2.0), 0, STEPS).p == 2


def test_products_are_those_of_the_kernels():
    source = (Path(__file__).parents[2] / "csrc" / "series.h").read_text()
    numbers = re.search(r"kProducts\[\] = {([^}]*)}", source)
    assert numbers is not None
    assert (8, *(int(p) for p in numbers[1].split(","))) == PRODUCTS


def test_last_epochs_on_boxes():
    r = recipe(e4=2.0, box_lr=0.01, box_threshold="0.2")
    plain = recipe()
    assert total_steps(r, STEPS) == 120
    for step in range(100):  # up to e4, nothing changes
        assert state_at(r, step, STEPS) == state_at(plain, step, STEPS)
        assert not state_at(r, step, STEPS).boxes
    last = [state_at(r, step, STEPS) for step in range(100, 121)]
    assert all(state.boxes and state.p == math.inf for state in last)
    assert (last[0].lr, last[10].lr) == (0.01, pytest.approx(0.005))
    assert last[20].lr == pytest.approx(0, abs=1e-12)
    shorter = r.override({"epochs": 6})
    assert [shorter.e1, shorter.e2, shorter.e3, shorter.e4] == pytest.approx([1, 2.5, 1.5, 1])


def test_learning_rate():
    r = recipe()
    lr = [state_at(r, step, STEPS).lr for step in range(101)]
    assert set(lr[:21]) == {0.02}
    assert lr[60] == pytest.approx(0.01)
    assert lr[40] == pytest.approx(0.01 * (1 + math.cos(math.pi / 4)))
    assert 0 < lr[99] < 1e-5
    assert lr[100] == pytest.approx(0, abs=1e-12)


def test_learning_rate_over_all_epochs():
    lr = [state_at(recipe(lr_schedule="cosine"), step, STEPS).lr for step in (0, 25, 50, 100)]
    assert lr == pytest.approx([0.02, 0.01 * (1 + math.sqrt(0.5)), 0.01, 0], abs=1e-12)


def test_eps_warms_up_over_e1():
    r = recipe(**IBP)
    eps = [state_at(r, step, STEPS).loss["eps_train"] for step in (0, 5, 10, 19, 20, 50, 99)]
    assert eps == pytest.approx([0, 0.1, 0.2, 0.38, 0.4, 0.4, 0.4])
    assert state_at(recipe(**IBP, e1=0.0), 0, STEPS).loss["eps_train"] == pytest.approx(0.4)
    assert state_at(recipe(), 50, STEPS).loss == {}  # the hinge loss schedules nothing


def test_weight_of_the_cross_entropy():
    r = recipe("mnist-ce", ce_start=0.04, ce_end=0.0004)
    weights = [state_at(r, step, STEPS).loss["ce_weight"] for step in (0, 20, 45, 70, 99)]
    assert weights == pytest.approx([0.04, 0.04, 0.004, 0.0004, 0.0004])


def test_without_smoothing_p_is_infinite_and_all_else_the_same():
    smooth, rough = recipe(**IBP), recipe(**IBP, smooth=False)
    for step in (0, 19, 20, 45, 69, 70, 99):
        one, other = state_at(smooth, step, STEPS), state_at(rough, step, STEPS)
        assert other.p == math.inf
        assert (one.epoch, one.lr, one.loss) == (other.epoch, other.lr, other.loss)


@pytest.mark.parametrize(("changes", "steps"), [({}, 100), ({"epochs": 0.25}, 2), ({"epochs": 1e-6}, 1)])
def test_number_of_steps(changes, steps):
    assert total_steps(recipe().override(changes), STEPS) == steps


def test_no_phase_needs_to_be_there():
    r = recipe(e1=0.0, e3=0.0)
    assert state_at(r, 0, STEPS).p == 8
    assert 900 < state_at(r, 49, STEPS).p < 1000
    assert state_at(r, 0, STEPS).lr == 0.02
