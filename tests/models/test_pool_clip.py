"""Networks that see means of blocks, clipped pixels, and several neurons per class: certified like all others."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linfdist as ld
from linfdist.attacks import attack
from linfdist.eps import parse_eps
from linfdist.exact import freeze
from linfdist.models import ConvDistNet, ConvDistNetMLP, DistNet, DistNetMLP, from_config, load, save
from linfdist.models.base import rounding_error
from linfdist.models.folded import fold_network
from linfdist.nn import Box, Clip, Flatten, MeanPool

from ..certificates.nets import attacks, count_flips
from ..nn.flushing import flushing
from ..nn.samples import assert_encloses, points_of

SMALL = {"shape": (1, 5, 6), "classes": 4, "mean": [0.3], "std": 0.31}
KINDS = {
    "pool": {"pool": (1, 2)},
    "clip": {"clip": (0.2, 0.8)},
    "both": {"pool": [4, 2], "clip": [0.1, 0.6]},
    "cropped": {"pool": [2, 1], "clip": (0.0, 0.5), "crop": 4},
    "per class": {"pool": (1, 3), "per_class": 3},
    "mirror pairs": {"pool": (1, 3), "mirror_pairs": True},
    "odd mirror pairs": {"mirror_pairs": True, "clip": (0.2, 0.8), "crop": 5},
}


def net(kind, seed=0, width=40, depth=3, size=1.0, **changes):
    torch.manual_seed(seed)
    network = DistNet(**{**SMALL, "width": width, "depth": depth, **KINDS[kind], **changes})
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name.endswith("weight"):
                tensor.mul_(size)
            elif name.endswith(("bias", "running_mean")):
                tensor.copy_(torch.randn_like(tensor) * size)
    return network.eval()


def images(count, seed=0, shape=SMALL["shape"]):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, *shape), generator=generator).float() / 255


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_the_order_of_layers():
    layers = list(net("cropped").body)
    names = [type(layer).__name__ for layer in layers]
    assert names[:5] == ["CenterCrop", "Clip", "Normalize", "MeanPool", "DistLinear"]
    assert (layers[3].sizes, layers[4].in_features) == ((2, 1), 4 + 16)
    assert isinstance(list(DistNet(**SMALL, width=9, depth=2).body)[1], Flatten)


def test_mirror_pairs_come_before_the_means():
    names = [type(layer).__name__ for layer in net("mirror pairs").body]
    assert names[:4] == ["Normalize", "MirrorPairs", "MeanPool", "DistLinear"]


@pytest.mark.parametrize("network", [DistNet, DistNetMLP, ConvDistNet, ConvDistNetMLP])
def test_mirror_images_have_the_same_logits(network):
    torch.manual_seed(0)
    own = network(**SMALL, width=8, depth=3, mirror_pairs=True).eval()
    x = images(9)
    assert torch.equal(own(x), own(x.flip(3)))
    torch.manual_seed(0)
    plain = network(**SMALL, width=8, depth=3).eval()  # with the same weights
    assert not torch.equal(plain(x), plain(x.flip(3)))


def test_mirror_pairs_are_refused_where_they_have_no_form():
    network = net("mirror pairs")
    for refused in (fold_network, freeze):
        with pytest.raises(TypeError, match="a MirrorPairs has no form in integers, nor in mixed-integer programs"):
            refused(network)


def test_pooled_inputs_count_for_the_identity_and_the_flops():
    inputs = 30 + 6
    network = DistNet(**SMALL, width=inputs, depth=3, pool=(1, 2))
    assert (network.body.layers[2].weight == -10).sum() == inputs
    assert network.terms() == inputs * inputs * 2 + inputs * 4
    narrow = DistNet(**SMALL, width=inputs - 1, depth=3, pool=(1, 2))
    assert not (narrow.body.layers[2].weight == -10).any()


def test_clipping_makes_it_steeper():
    plain, clipped = DistNet(**SMALL, width=9, depth=2), net("clip")
    assert clipped.lipschitz == pytest.approx(plain.lipschitz / 0.6, rel=1e-6)


def test_weights_have_the_names_that_they_have_without():
    """So that a network can be trained with its pool in front, and put together later."""
    plain = DistNet(**SMALL, width=40, depth=3).state_dict()
    assert net("pool").state_dict().keys() == plain.keys()


@pytest.mark.parametrize("radius", [1e-7, 0.05])
def test_boxes_enclose(kind, radius):
    network, x = net(kind), images(8)
    box = Box((x - radius).clamp(0, 1), (x + radius).clamp(0, 1))
    for flush in ((False, False), (True, False), (False, True)):
        with flushing(flush[0]):
            features, logits = network.features_box(box), network.forward_box(box)
        with flushing(flush[1]):
            for point in points_of(box, 5):
                assert_encloses(features, network.features(point))
                assert_encloses(logits, network(point))


@pytest.mark.parametrize("method", ["margin", "box"])
def test_no_image_within_the_radius_flips(kind, method):
    network, x = net(kind), images(40)
    proof = ld.certify(network, x, "0.02", method=method)
    assert torch.equal(proof.prediction, network(x).argmax(1))
    assert proof.certified.any()
    assert count_flips(network, x, attacks(network, x, proof.radius)) == 0
    sure = proof.certified.nonzero()[:, 0]
    for name in ("pgd", "strong"):
        assert not attack(name)(network, x[sure], proof.prediction[sure], parse_eps("0.02")).broken.any()


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6), kind=st.sampled_from(list(KINDS)), depth=st.integers(1, 4),
    size=st.sampled_from([1e-30, 1e-3, 1.0, 1e5, 1e30]), method=st.sampled_from(["margin", "box"]),
)  # fmt: skip
def test_weights_of_any_size(seed, kind, depth, size, method):
    network, x = net(kind, seed, 11, depth, size), images(20, seed)
    assert count_flips(network, x, attacks(network, x, ld.certify(network, x, None, method=method).radius, 3)) == 0


def test_the_rounding_error_holds(kind):
    network, x = net(kind), images(200)
    bound = rounding_error(network)
    difference = (network(x).double() - net(kind).double()(x.double())).abs().max().item()
    assert 0.001 * bound < difference <= bound


def test_clipped_pixels_give_room():
    """Images of black and white are far from the clip's slope: no small change reaches the network."""
    network = net("clip")
    x = images(20).round()
    proof = ld.certify(network, x, "0.15")
    assert proof.certified.all()
    assert (ld.certify(network, x, "0.15", method="margin").certified.float().mean()) < 1


def test_heads_take_them_too():
    torch.manual_seed(0)
    headed = DistNetMLP(**SMALL, width=40, depth=2, head=7, pool=(1, 2), clip=(0.1, 0.9))
    conv = ConvDistNetMLP(**SMALL, width=3, depth=3, head=7, clip=(0.1, 0.9))
    for network in (headed, conv):
        for _ in range(40):
            network(images(32, seed=3))
        network.eval()
        x = images(20)
        radius = ld.certify(network, x, None).radius
        assert (radius > 0).any()
        assert count_flips(network, x, attacks(network, x, radius)) == 0
        again = from_config(json.loads(json.dumps(network.config)))
        again.load_state_dict(network.state_dict())
        assert torch.equal(again(x), network(x))
    assert isinstance(headed.body.layers[0], Clip)
    assert isinstance(headed.body.layers[2], MeanPool)


def test_round_trip_through_a_file(kind, tmp_path):
    network, x = net(kind), images(9)
    for compact in (False, True):
        save(network, tmp_path / "model.safetensors", {}, compact=compact)
        again = load(tmp_path)
        assert again.config == network.config == json.loads(json.dumps(network.config))
        assert again.lipschitz == network.lipschitz
        assert compact or torch.equal(again(x), network(x))


def test_old_configurations_are_networks_without():
    config = DistNet(**SMALL, width=9, depth=2).config
    old = {key: value for key, value in config.items() if key not in ("pool", "clip", "per_class")}
    assert from_config(old).config == config


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"pool": [6]}, ValueError, "an image of 5x6 has no block of 6x6"),
        ({"pool": [1, 5], "crop": 4}, ValueError, "an image of 4x4 has no block of 5x5"),
        ({"pool": [0]}, ValueError, "between 1 and 1024 pixels, got 0"),
        ({"pool": 2}, TypeError, "a list of whole numbers"),
        ({"clip": [0.5]}, TypeError, r"two numbers, \[low, high\], or None; got \[0.5\]"),
        ({"clip": 0.5}, TypeError, "two numbers"),
        ({"clip": "01"}, TypeError, "two numbers"),
        ({"clip": [0.9, 0.1]}, ValueError, "0 <= low < high <= 1, got low = 0.9 and high = 0.1"),
        ({"per_class": 0}, ValueError, "per_class must be at least 1, got 0"),
    ],
)
def test_impossible_networks(wrong, error, message):
    with pytest.raises(error, match=message):
        DistNet(**SMALL, width=9, depth=2, **wrong)


def test_a_convolutional_network_has_no_pool():
    config = ConvDistNetMLP(**SMALL, width=3, depth=3, head=7).config
    with pytest.raises(ValueError, match="a ConvDistNetMLP: unknown 'pool'"):
        from_config({**config, "pool": [2]})
