"""What is declared once agrees with what uses it: losses, their keys, and the networks of recipes."""

from inspect import signature

import pytest
import torch

from linfdist import models, recipes
from linfdist.data import Info
from linfdist.models.loading import CLASSES, MODELS
from linfdist.recipes import Recipe
from linfdist.recipes.losses import DECLARED, KEYS, Geometric, WarmUp
from linfdist.recipes.networks import NETWORKS
from linfdist.training.losses import LOSSES
from linfdist.training.objective import Objective, build_network
from linfdist.training.schedule import state_at

INFO = Info("noise", "noise", (1, 6, 6), 3, 8, 0, (0.5,), 0.3)
SHIPPED = [recipes.load(name) for name in recipes.names()]


def example(key: str):
    """A value of a key: that of the first shipped recipe that has it, or else the first example of its field."""
    shipped = [value for recipe in SHIPPED if (value := getattr(recipe, key)) is not None]
    values = shipped or Recipe.model_fields[key].examples
    assert values, f"no shipped recipe sets {key}: give its field in recipes/schema.py examples=[...]"
    return values[0]


VALUES = {key: example(key) for loss in DECLARED.values() for key in loss.required}


def recipe_for(loss: str, model: str) -> Recipe:
    values = {key: VALUES[key] for key in DECLARED[loss].required}
    sizes = {"width": 4, "depth": NETWORKS[model].depths[1] or 6, "e1": 2, "e2": 4, "e3": 2}
    labels = {"name": "mine", "source": "ours", "data": "./noise", "eps": "0.1"}
    return Recipe.model_validate({**labels, **sizes, **values, "loss": loss, "model": model})


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_what_is_declared_of_it(name):
    """It has the declared ending, and each of the keys that a recipe must have is an argument of its constructor."""
    declared, network = NETWORKS[name], MODELS[name]
    keys = signature(network).parameters.keys()
    assert CLASSES[network.__name__] is network
    assert {"width", "depth"} <= keys
    assert ("pool" in keys) == declared.pools
    least = declared.depths[0]
    loss = next(loss for loss, each in DECLARED.items() if each.ending == declared.ending)
    recipe = recipe_for(loss, name).override({"depth": least})
    readout = build_network(recipe, INFO).readout
    assert (readout.lipschitz is not None) == (declared.ending == "plain")
    for depth in (least - 1, *(most + 1 for most in declared.depths[1:] if most is not None)):
        with pytest.raises(ValueError, match=f"depth = {depth}|depth: must be at least 1"):
            recipe.override({"depth": depth})


def test_recipes_and_formulas_have_one_list_of_losses():
    assert set(DECLARED) == set(LOSSES)


@pytest.mark.parametrize("loss", DECLARED.values(), ids=DECLARED)
def test_declared_keys_are_those_of_the_schema(loss):
    fields = Recipe.model_fields
    assert set(loss.keys) <= fields.keys()
    assert all(fields[key].default is None for key in loss.required)
    assert all(fields[key].default is not None for key in loss.optional)
    for kind in loss.schedule.values():
        used = (kind.key,) if isinstance(kind, WarmUp) else (kind.start, kind.end)
        assert isinstance(kind, WarmUp | Geometric)
        assert set(used) <= set(loss.keys)


@pytest.mark.parametrize("loss", DECLARED)
@pytest.mark.parametrize("model", MODELS)
def test_every_loss_trains_the_networks_it_declares_and_no_others(loss, model):
    if DECLARED[loss].ending != NETWORKS[model].ending:
        with pytest.raises(ValueError, match=f"loss = '{loss}': must be .* for model = '{model}'"):
            recipe_for(loss, model)
        return
    recipe = recipe_for(loss, model)
    objective = Objective(recipe, build_network(recipe, INFO)).train()
    state = state_at(recipe, 3, 1)
    assert state.loss.keys() == DECLARED[loss].schedule.keys()
    value, logits = objective(torch.rand(8, 1, 6, 6), torch.arange(8) % 3, state)
    value.backward()
    assert logits.shape == (8, 3)
    assert all(parameter.grad is not None for parameter in objective.parameters())
    names = dict(objective.named_parameters()).keys()
    assert objective.lr_factors().keys() <= names
    assert objective.dist_weights() < names
    assert {name.split(".")[0] for name in names} <= {"network", loss}  # the names that checkpoints have


@pytest.mark.parametrize("loss", DECLARED)
def test_a_loss_reads_no_key_that_it_does_not_declare(loss):
    """Keys of other losses are either refused, or idle."""
    model = next(model for model, each in NETWORKS.items() if each.ending == DECLARED[loss].ending)
    recipe = recipe_for(loss, model)
    for key in set(KEYS) - set(DECLARED[loss].keys):
        given = VALUES.get(key, 0.5)
        with pytest.raises(recipes.RecipeError, match=f"{key} = "):
            recipe.override({key: given})
        assert getattr(recipe, key) is None or key in recipe.unused_keys()


def test_arguments_of_a_network_come_from_the_keys_of_its_recipe():
    recipe = recipe_for("ibp", "dist_net_mlp").override({"head": 7, "mean_shift": False, "crop": 5})
    config = build_network(recipe, INFO).config
    assert {key: config[key] for key in ("head", "mean_shift", "crop", "width", "depth", "identity_init")} == {
        "head": 7, "mean_shift": False, "crop": 5, "width": 4, "depth": 6, "identity_init": True,
    }  # fmt: skip
    assert models.from_config(config).config == config
