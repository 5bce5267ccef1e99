"""The command of a recipe trains with that very recipe."""

import shlex

import pytest

from linfdist import recipes
from linfdist.models import zoo
from linfdist.recipes import Recipe, changes, command

LABELS = {"name", "source"}


def again(recipe):
    program, train, name, *options = shlex.split(command(recipe))
    assert (program, train) == ("linfdist", "train")
    assert options[::2] == ["--set"] * (len(options) // 2)
    return recipes.override(recipes.load(name), options[1::2])


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["width=1024", "lr=0.1", "seed=3"],
        ["loss=hinge", "ce_start=none", "ce_end=none"],
        ["e1=0.30000000000000004", "adam_eps=1e-12", "pad=0"],
        ["eps=0.1"],
        ["eps=0.1", "threshold=0.75"],
        ["eps=0.9", "threshold=2"],
        ["threshold=48/255", "start=runs/with a space", "p_snap=false"],
    ],
)
def test_the_command_gives_the_recipe_again(settings):
    recipe = recipes.override(recipes.load("mnist-quick"), settings)
    assert again(recipe).resolved().model_dump(exclude=LABELS) == recipe.resolved().model_dump(exclude=LABELS)
    assert set(changes(recipe)) == {each.partition("=")[0] for each in settings}


def test_a_margin_that_is_the_same_multiple_of_eps_is_no_change():
    assert changes(recipes.override(recipes.load("mnist-quick"), ["threshold=0.75"])) == {}
    assert changes(recipes.override(recipes.load("mnist-quick"), ["eps=0.1", "threshold=0.25"])) == {"eps": "0.1"}


def test_the_command_leaves_out_what_has_no_effect():
    """Such as a key of another loss, whose default was written down before the package's recipe got another value."""
    head = ["model=dist_net_mlp", "loss=ibp", "kappa=0", "eps_train=0.005", "smooth=false"]
    removed = [f"{key}=none" for key in ("threshold", "ce_start", "ce_end")]
    recipe = recipes.override(recipes.load("tinyimagenet-quick"), head + removed)
    older = recipe.model_copy(update={"scale_start": 1.0, "p_bend": 0.0})
    assert again(older).loss == "ibp"


@pytest.mark.parametrize("name", zoo.names())
def test_networks_of_the_zoo_can_be_trained_again(name):
    recipe = Recipe.model_validate(zoo.card(name).recipe)
    assert again(recipe).resolved().model_dump(exclude=LABELS) == recipe.resolved().model_dump(exclude=LABELS)


def test_a_recipe_of_another_name_is_all_changes():
    recipe = recipes.load("mnist-quick").model_copy(update={"name": "mine"})
    assert changes(recipe) == recipe.model_dump(exclude=LABELS, exclude_none=True)
    with pytest.raises(recipes.RecipeError, match="no such recipe"):
        command(recipe)
