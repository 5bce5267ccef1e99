"""`linfdist.train(network=...)`: a network of one's own, trained as a recipe says."""

import pytest
import torch
from torch import nn

import linfdist as ld
from linfdist import data, recipes
from linfdist.models import Composed, prune
from linfdist.nn import CenterCrop, DistLinear, Flatten, Head, MeanShift, NearestClass, Normalize, Stack
from linfdist.training.objective import build_network

from .runs import same_bits

SHORT = {"batch_size": 16, "epochs": 1}


@pytest.fixture(scope="module")
def digits_set(digits):
    return data.load("digits", data_dir=digits)


def layers(width=32):
    torch.manual_seed(0)
    first, second = (DistLinear(size, width, identity_init=size <= width) for size in (64, width))
    return Normalize([0.3], 0.37), Flatten(), first, MeanShift(width), second, MeanShift(width)


def headed():
    return Composed(Stack(*layers()), Head(32, 9, 10), (1, 8, 8))


def test_it_learns_is_saved_and_is_certified(digits_set, tmp_path):
    network = Composed(Stack(*layers(64)), NearestClass(64, 10), (1, 8, 8))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    epochs = []
    trained = ld.train("digits-quick", digits_set, network=network, settings={"epochs": 12}, callback=epochs.append)
    assert len(epochs) == 12
    assert same_bits(network.state_dict(), before)
    assert network.training
    assert not trained.training
    assert trained.class_names == digits_set.classes
    ld.models.save(trained, tmp_path / "model.safetensors")
    again, x = ld.load(tmp_path), digits_set.images / 255
    assert torch.equal(again(x), trained(x))
    assert again.class_names == digits_set.classes
    assert (again(x).argmax(1) == digits_set.labels).double().mean() > 0.7
    assert ld.certify(again, x, "0.02", y=digits_set.labels).certified.double().mean() > 0.2


def test_a_pruned_network_is_trained_with_a_warning_and_counts_as_whole_again(digits_set):
    pruned = prune(Composed(Stack(*layers()), NearestClass(32, 10), (1, 8, 8)).eval())
    with pytest.warns(UserWarning, match="weights that never count there are lost"):
        trained = ld.train("digits-quick", digits_set, network=pruned, settings=SHORT)
    assert (pruned.pruned, trained.pruned) == (True, False)


def test_the_recipes_own_network_is_trained_to_the_same_bits(digits_set):
    recipe = recipes.load("digits-quick").override({**SHORT, "width": 8, "depth": 3})
    torch.manual_seed(recipe.seed)
    start = build_network(recipe, data.info("digits"))
    expected = ld.train(recipe, digits_set)
    assert same_bits(ld.train(recipe, digits_set, network=start).state_dict(), expected.state_dict())
    composed = Composed(start.body, start.last, start.shape)
    assert same_bits(ld.train(recipe, digits_set, network=composed).state_dict(), expected.state_dict())


def test_it_is_trained_on_boxes_as_the_recipes_network_is(digits_set):
    boxes = {"e4": 1, "box_threshold": "0.1", "box_lr": 0.01}
    recipe = recipes.load("digits-quick").override({"batch_size": 16, "e1": 0, "e2": 1, "e3": 0, **boxes, "width": 8})
    torch.manual_seed(recipe.seed)
    start = build_network(recipe, data.info("digits"))
    trained = ld.train(recipe, digits_set, network=Composed(start.body, start.last, start.shape))
    assert same_bits(trained.state_dict(), ld.train(recipe, digits_set).state_dict())


@pytest.mark.parametrize("container", [Stack, nn.Sequential])
def test_layers_are_trained_in_their_container(digits_set, container):
    model = container(*layers(), NearestClass(32, 10))
    trained = ld.train("digits-quick", digits_set, network=model, settings=SHORT)
    assert type(trained) is Composed
    assert not torch.equal(trained.last.weight, list(model.modules())[-1].weight)
    assert ld.certify(trained, digits_set.images[:5] / 255, "0.01").radius.shape == (5,)


def test_a_head_is_trained_with_a_loss_of_heads(digits_set):
    recipe = recipes.load("mnist-mlp").override({"data": "./digits", "pad": 0, "batch_size": 16, "epochs": 0.5})
    trained = ld.train(recipe, digits_set, network=headed())
    assert isinstance(trained.readout, Head)
    with pytest.raises(ValueError, match=r"loss = 'ibp' needs a Head, and this one ends in a NearestClass; .* hinge"):
        ld.train(recipe, digits_set, network=Stack(*layers(), NearestClass(32, 10)))
    with pytest.raises(ValueError, match=r"needs a readout with a Lipschitz constant.* ends in a Head; .* ibp"):
        ld.train("digits-quick", digits_set, network=headed(), settings=SHORT)


def test_images_are_cropped_in_training(digits_set):
    own = CenterCrop(6), Normalize([0.3], 0.37), Flatten(), DistLinear(36, 12), MeanShift(12), NearestClass(12, 10)
    trained = ld.train("digits-quick", digits_set, network=Stack(*own), settings={**SHORT, "crop": 6})
    assert trained(digits_set.images[:2] / 255).shape == (2, 10)
    with pytest.raises(ValueError, match=r"crop = 6: put a CenterCrop\(6\) in front"):
        ld.train("digits-quick", digits_set, network=Stack(*layers(), own[-1]), settings={**SHORT, "crop": 6})


def test_what_does_not_fit_is_refused_before_the_first_step(digits_set):
    own = Stack(*layers(), NearestClass(32, 10))

    def refused(error, match, network=own, **settings):
        with pytest.raises(error, match=match):
            ld.train("digits-quick", digits_set, network=network, settings=settings)

    refused(ValueError, "settings: depth, width would have no effect, because the network is given", width=3, depth=2)
    refused(ValueError, "has 9 classes, but there are 10", Stack(*layers(), NearestClass(32, 9)))
    refused(ValueError, "float32", Stack(*layers(), NearestClass(32, 10)).double())
    wider = ld.models.DistNet((1, 9, 9), 10, 5, 2, [0.5], 0.3)
    refused(ValueError, r"takes images \(1, 9, 9\), but these are \(1, 8, 8\)", wider)
    refused(TypeError, "Sequential.6 is a Linear", nn.Sequential(*layers(), nn.Linear(32, 10)))
    refused(TypeError, "Linear cannot be certified", nn.Linear(64, 10))
    boxes = {"e4": 1, "box_threshold": "0.1", "box_lr": 0.01}
    refused(ValueError, "no place for the recipe's box_clip: put a Clip", **boxes, box_clip=[0.2, 0.8])
    mean = ld.models.Mean([ld.models.DistNet((1, 8, 8), 10, 5, 2, [0.5], 0.3)])
    refused(ValueError, "a MeanLogits has no bounds", mean, **boxes)
