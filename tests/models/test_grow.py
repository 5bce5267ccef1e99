"""Grown networks compute the same: on every image of the digits, with networks that have learned something."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from linfdist import certify, data, recipes
from linfdist.models import ConvDistNet, ConvDistNetMLP, DistNet, Mean, load, save
from linfdist.models.base import rounding_error
from linfdist.models.grow import LEAD, add_head, clip_pixels, deepen, grow, multiply_classes, replace_last, widen
from linfdist.training import train
from linfdist.training.memory import train as train_in_memory

SMALL = {"width": 24, "epochs": 3}
HEAD = {
    "model": "dist_net_mlp", "loss": "ibp", "kappa": 0.5, "eps_train": "0.1", "head": 16, "threshold": "none",
    "ce_start": "none", "ce_end": "none", "depth": 2,
}  # fmt: skip
NETS = {"plain": {}, "learned bias": {"mean_shift": False}, "head": HEAD}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    pytest.importorskip("sklearn", reason="scikit-learn brings the digits")
    folder = tmp_path_factory.mktemp("data")
    data.fetch("digits", folder)
    return folder


@pytest.fixture(scope="module")
def images(digits):
    sets = [data.load("digits", split, digits) for split in ("train", "test")]
    return torch.cat([each.images for each in sets]) / 255  # all there are


@pytest.fixture(scope="module")
def labels(digits):
    return torch.cat([data.load("digits", split, digits).labels for split in ("train", "test")])


@pytest.fixture(scope="module", params=NETS)
def network(request, digits, tmp_path_factory):
    recipe = recipes.load("digits-quick").override(SMALL | NETS[request.param])
    return load(train(recipe, tmp_path_factory.mktemp("runs") / "run", data_dir=digits, quiet=True))


@pytest.mark.parametrize("noise", [0.0, 1.0])
@torch.no_grad()
def test_deeper_is_the_same(network, images, noise):
    deeper = deepen(network, noise)
    assert deeper.config["depth"] == network.config["depth"] + 1
    assert not deeper.training
    before, after = network.features(images), deeper.features(images)
    largest = float(next(reversed([*deeper.body.parameters()])).abs().max())  # C, or more
    assert (after - before).abs().max() <= largest * 2**-23
    assert torch.equal(deeper(images).argmax(1), network(images).argmax(1))
    exact = deeper.double()(images.double()) - network.double()(images.double())
    network.float()
    assert exact.abs().max() < 1e-13


@torch.no_grad()
def test_deeper_is_the_same_where_features_are_largest(network):
    """Black, white and extreme images lie at the ends of the range that C is made for."""
    corners = torch.cat([torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8), torch.rand(500, 1, 8, 8).round()])
    deeper = deepen(deepen(network))
    assert (deeper(corners) - network(corners)).abs().max() < 1e-4


@pytest.mark.parametrize("factor", [1, 2, 3])
@torch.no_grad()
def test_wider_is_the_same(network, images, factor):
    wider = widen(network, factor)
    assert wider.config["width"] == factor * network.config["width"]
    assert torch.equal(wider.features(images), network.features(images).repeat(1, factor))
    if isinstance(network, DistNet):
        assert torch.equal(wider(images), network(images))
    else:  # a head's sums
        assert torch.allclose(wider(images), network(images), rtol=0, atol=1e-4)
        assert torch.equal(wider(images).argmax(1), network(images).argmax(1))


@torch.no_grad()
@pytest.mark.parametrize("last", [{"head": 5}, {"dense": 7, "per_class": 2}])
def test_wider_convolutions(last):
    network = (ConvDistNetMLP if "head" in last else ConvDistNet)((3, 8, 8), 4, 3, 6, [0.4] * 3, 0.3, **last)
    x = torch.rand(40, 3, 8, 8)
    for _ in range(3):
        network(x, 8.0)
    wider = widen(network.eval(), 2)
    assert torch.equal(wider.features(x), network.features(x).repeat(1, 2 if "head" in last else 1))
    assert torch.allclose(wider(x), network(x), rtol=0, atol=1e-5)


@torch.no_grad()
def test_noise_tells_copies_apart(network):
    wider = widen(network, 2, noise=0.1)
    width = network.config["width"]
    grown = next(weight for name, weight in wider.named_parameters() if name.endswith("weight"))
    original = next(weight for name, weight in network.named_parameters() if name.endswith("weight"))
    assert torch.equal(grown[:width], original)
    assert not torch.equal(grown[width:], original)
    assert float((grown[width:] - original).std()) == pytest.approx(0.1, rel=0.2)


def test_the_original_is_left_alone(network, images):
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    network.train()
    deepen(network)
    assert network.training
    network.eval()
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_what_cannot_grow_says_why():
    with pytest.raises(TypeError, match="only DistNet and DistNetMLP can be deepened, not ConvDistNetMLP"):
        deepen(ConvDistNetMLP((3, 8, 8), 4, 3, 6, [0.4] * 3, 0.3, head=5))
    with pytest.raises(ValueError, match="depth 1 has no hidden layer"):
        deepen(DistNet((1, 4, 4), 3, 20, 1, [0.5], 0.3))
    with pytest.raises(ValueError, match="factor = 0"):
        widen(DistNet((1, 4, 4), 3, 20, 2, [0.5], 0.3), 0)


@torch.no_grad()
def test_a_wider_network_at_finite_p_is_not_the_same(network, images):
    """Why a widened network is to be trained on at large p: distances grow by factor^(1/p) there."""
    few = images[:50]
    near = (widen(network, 2).features(few, 1000.0) - network.features(few, 1000.0).repeat(1, 2)).abs().max()
    far = (widen(network, 2).features(few, 8.0) - network.features(few, 8.0).repeat(1, 2)).abs().max()
    assert far > 10 * near
    assert math.isfinite(float(far))


@torch.no_grad()
def test_growing_in_every_way(network, images):
    larger = {"depth": network.config["depth"] + 2, "width": 3 * network.config["width"]}
    grown = grow(network, {**network.config, **larger})
    assert grown.config == {**network.config, **larger}
    assert torch.allclose(grown(images), network(images), rtol=0, atol=1e-3)


@pytest.mark.parametrize("changes", [{}, {"per_class": 2}, {"mean_shift": False}])
def test_a_head_starts_as_the_plain_network(digits, images, labels, changes):
    """The same classes and, by interval bounds, the same radii; in training mode too, where shifts are batch means."""
    network = train_in_memory("digits-quick", data.load("digits", "train", digits), settings=SMALL | changes)
    with torch.no_grad():
        headed = add_head(network, 16, (images, labels))
        assert (headed.config["depth"], headed.config["head"]) == (network.config["depth"], 16)
        assert (headed(images).argmax(1) == network(images).argmax(1)).float().mean() > 0.999  # ties are rounded anew
        proof, plain = (certify(each, images, None, method="margin").radius for each in (headed, network))
        assert plain.mean() > 0.01
        assert (proof - plain).abs().max() < 1e-3
        loss, *others = (float(cross_entropy(times * headed(images), labels)) for times in (1, 0.5, 2))
        assert loss < min(others)  # logits are about as large as is best; tanh bends
        batch = images[: len(images) // 2]
        assert (headed.train()(batch).argmax(1) == network.train()(batch).argmax(1)).float().mean() > 0.98


def test_logits_of_a_head_are_as_sure_as_the_network_is_right(digits, images, labels):
    """Where it is mostly wrong, the cross-entropy is that of a guess and no worse; where it is always right, there is
    no best size, and images lead by `LEAD`.
    """
    network = train_in_memory("digits-quick", data.load("digits", "train", digits), settings=SMALL)
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    with torch.no_grad():
        assert float(cross_entropy(add_head(network, 16, (images, shuffled))(images), shuffled)) < math.log(10) + 0.01
        best = add_head(network, 16, (images, network(images).argmax(1)))(images).topk(2, 1).values
    assert float((best[:, 0] - best[:, 1]).mean()) == pytest.approx(LEAD, rel=0.3)  # tanh bends


@torch.no_grad()
def test_a_random_head_on_top_of_the_same_features(images):
    network = small()
    headed = grow(network, {**replace_last(network, 7).config, "width": 40})
    assert (headed.config["depth"], headed.config["head"]) == (2, 7)
    assert torch.equal(headed.features(images), network.features(images).repeat(1, 2))


def test_a_head_needs_room_for_the_classes():
    with pytest.raises(
        ValueError, match=r"a head of 16 neurons on layers of 20 cannot start .* 10 classes and 30 neurons"
    ):
        add_head(small(per_class=3), 16)
    with pytest.raises(ValueError, match="a head of 7 neurons"):
        add_head(small(), 7)
    with pytest.raises(TypeError, match="only a DistNet with hidden layers"):
        add_head(add_head(small(), 16), 16)


def small(**changes):
    network = DistNet(
        **{"shape": (1, 8, 8), "classes": 10, "width": 20, "depth": 3, "mean": [0.5], "std": 0.3, **changes}
    )
    with torch.no_grad():
        network.last.bias.normal_()
    return network.eval()


@pytest.mark.parametrize("per_class", [1, 3])
@pytest.mark.parametrize("factor", [1, 2, 5])
@torch.no_grad()
def test_more_neurons_per_class_are_the_same(images, per_class, factor):
    network = small(per_class=per_class)
    larger = multiply_classes(network, factor)
    assert larger.config == {**network.config, "per_class": factor * per_class}
    assert torch.equal(larger.features(images), network.features(images))
    for p in (math.inf, 8.0):
        assert (larger(images, p) - network(images, p)).abs().max() <= 2 * rounding_error(larger)


@torch.no_grad()
def test_noise_tells_the_neurons_of_a_class_apart():
    network = small(per_class=2, width=200)
    before = network.last.weight.unflatten(0, (10, 2))
    after = multiply_classes(network, 3, noise=0.1).last.weight.unflatten(0, (10, 6))
    assert torch.equal(after[:, :2], before)
    assert float((after[:, 2:] - before.repeat(1, 2, 1)).std()) == pytest.approx(0.1, rel=0.05)


@torch.no_grad()
def test_growing_in_every_way_at_once(images):
    network = small(pool=[1, 2], clip=[0.1, 0.9])
    larger = {"per_class": 4, "width": 40, "depth": 4}
    grown = grow(network, {**network.config, **larger})
    assert grown.config == {**network.config, **larger}
    assert torch.allclose(grown(images), network(images), rtol=0, atol=1e-3)
    headed = grow(network, {**add_head(network, 11).config, "width": 40, "depth": 4})
    assert (headed.config["pool"], headed.config["clip"]) == ([1, 2], [0.1, 0.9])
    assert (headed(images).argmax(1) == network(images).argmax(1)).float().mean() > 0.99


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"per_class": 5}, "per_class: 2 there, 5 here"),
        ({"per_class": 1}, "per_class: 2 there, 1 here"),
        ({"pool": [1, 2]}, r"pool: \[\] there, \[1, 2\] here"),
        ({"width": 30}, "width: 20 there, 30 here"),
    ],
)
def test_what_it_cannot_become_is_said(wanted, message):
    network = small(per_class=2)
    with pytest.raises(ValueError, match=rf"another shape \({message}\).* more neurons per class by a whole factor"):
        grow(network, {**network.config, **wanted})


def test_other_classes_are_refused_before_labels_are_looked_at():
    headed = {**add_head(small(), 16).config, "classes": 12}
    with pytest.raises(ValueError, match="it has 10 classes, and cannot become one of 12"):
        grow(small(), headed, samples=(torch.rand(3, 1, 8, 8), torch.tensor([0, 10, 11])))


@torch.no_grad()
def test_a_network_that_tells_nothing_apart_gets_a_finite_head():
    same = small()
    same.last.weight.zero_()
    same.last.bias.zero_()
    headed = add_head(same, 16, (torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2])))
    assert max(float(each.abs().max()) for each in headed.head.parameters()) < 1e3


def test_networks_that_cannot_grow():
    network = small()
    with pytest.raises(TypeError, match="a Mean cannot grow: only DistNet, DistNetMLP, ConvDistNet, "):
        grow(Mean([network]), network.config)
    with pytest.raises(TypeError, match="only a DistNet has neurons for each class in its last layer, not DistNetMLP"):
        multiply_classes(add_head(network, 11), 2)
    with pytest.raises(ValueError, match="factor = 0"):
        multiply_classes(network, 0)


@torch.no_grad()
def test_a_clip_in_front_keeps_black_and_white_images(network, images):
    clipped = clip_pixels(network, [0.3, 0.7])
    assert clipped.config == {**network.config, "clip": [0.3, 0.7]}
    assert not clipped.training
    stretched = ((images - 0.3) / (torch.tensor(0.7) - 0.3)).clamp(0, 1)
    assert torch.equal(clipped(images), network(stretched))
    black_and_white = images.round()
    assert torch.equal(clipped(black_and_white), network(black_and_white))
    for parameter in network.parameters():
        parameter.add_(0)  # the clipped network owns its tensors
    assert not {each.data_ptr() for each in clipped.parameters()} & {each.data_ptr() for each in network.parameters()}


def test_training_puts_a_clip_in_front_of_a_trained_network(network, digits, tmp_path):
    save(network, tmp_path / "start.safetensors")
    settings = {**SMALL, **HEAD} if network.config["class"] == "DistNetMLP" else {**SMALL}
    changes = {
        "start": str(tmp_path / "start.safetensors"),
        "clip": [0.3, 0.7],
        "mean_shift": network.config["mean_shift"],
    }
    recipe = recipes.load("digits-quick").override({**settings, **changes, "epochs": 1})
    clipped = load(train(recipe, tmp_path / "run", data_dir=digits, quiet=True))
    assert clipped.config["clip"] == [0.3, 0.7]


def test_a_clip_is_not_replaced(network):
    clipped = clip_pixels(network, [0.3, 0.7])
    with pytest.raises(ValueError, match=r"clip: \[0.3, 0.7\] there, \[0.2, 0.8\] here"):
        grow(clipped, {**clipped.config, "clip": [0.2, 0.8]})
