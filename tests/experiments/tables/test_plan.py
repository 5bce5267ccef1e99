"""Every table has all rows of the paper's own networks, each compared with the right one."""

import pytest

from linfdist import recipes
from linfdist.experiments.tables.plan import SCALES, numbers, plan
from linfdist.experiments.tables.reproduce import jobs
from linfdist.recipes import Recipe
from linfdist.report.published import tables


def test_the_tables():
    assert numbers() == [1, 2, 3, 4, 7, 9]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("table", numbers())
def test_every_published_row_has_one_recipe(table, scale):
    own = [row for row in tables()[table].rows if row.cited is None]
    found = [each.published for each in plan(table, scale) if each.published is not None]
    assert len(found) == len(own)
    assert all(any(row is each for each in found) for row in own)


@pytest.mark.parametrize("table", numbers())
def test_paper_scale_is_the_recipe_as_it_is(table):
    for each in plan(table, "paper"):
        assert each.settings == {}
        assert each.recipe.width == (128 if "conv" in each.name else 5120)


@pytest.mark.parametrize("table", numbers())
def test_laptop_scale_changes_size_and_length_alone(table):
    for small, large in zip(plan(table, "laptop"), plan(table, "paper"), strict=False):
        changed = {
            key for key in Recipe.model_fields if getattr(small.recipe, key) != getattr(large.recipe, key)
        }  # what a row is about must stay
        assert changed <= {"width", "batch_size", "p_snap", "e1", "e2", "e3", "source"}
        assert small.recipe.e1 / small.recipe.epochs == pytest.approx(large.recipe.e1 / large.recipe.epochs)
        assert small.recipe.width <= 512


def test_rows_that_only_we_have_are_of_the_laptop_and_have_no_published_number():
    more = [each for each in plan(3, "laptop") if each.published is None]
    assert [(each.name, each.label, each.recipe.mean_shift) for each in more] == [
        ("cifar10-ablation-no-shift", "E without mean shift", False),
        ("cifar10-mlp-ablation-no-shift", "E without mean shift", False),
    ]
    assert all(each.published is not None for each in plan(3, "paper"))


def test_quick_recipes_run_as_they_are():
    own = {each.name: each for each in plan(1, "laptop") if each.published is None}
    assert list(own) == ["mnist-quick", "fashion-quick", "cifar10-quick"]
    assert all(each.settings == {} and each.recipe == recipes.load(name) for name, each in own.items())


def test_published_numbers_by_hand():
    """Read off the paper: a row matched with another's numbers would be worse than none."""
    certified = {each.name: str(each.published.certified) for each in plan(3, "paper")}
    assert certified["cifar10-ablation-a"] == "7.02"
    assert certified["cifar10-ablation-d"] == "29.01"
    assert certified["cifar10-mlp-ablation-b"] == "29.71"
    test = {each.name: str(each.published.test) for each in plan(7, "laptop")}
    assert test["cifar10-depth-gaussian-10"] == "55.04"
    assert test["cifar10-depth-identity-7"] == "57.06"
    assert [str(each.published.certified) for each in plan(1, "paper")] == [
        "92.64", "93.09", "77.48", "79.23", "33.30", "35.42",
    ]  # fmt: skip


def test_jobs():
    assert [job.name for job in jobs(9, "laptop", seeds=3)] == [f"cifar10-conv-mlp-seed{seed}" for seed in range(3)]
    assert len(jobs(3, "paper")) == 10
    assert [job.name for job in jobs(1, "laptop", 2, ["fashion"])] == ["fashion-seed0", "fashion-seed1"]
    assert [job.planned.with_seed(job.seed).seed for job in jobs(1, "laptop", 2, ["fashion"])] == [0, 1]
    assert len(jobs(4, "laptop", seeds=5)) == 2  # times have no seed
    with pytest.raises(ValueError, match=r"table 3 has no row 'cifar10-ablation-f'; did you mean .*cifar10-ablation-e"):
        jobs(3, "paper", only=["cifar10-ablation-f"])
    with pytest.raises(ValueError, match="seeds = 0"):
        jobs(3, "paper", seeds=0)
