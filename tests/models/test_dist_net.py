"""The networks: their architecture, their promise in pixels, their configuration."""

import json
import math

import pytest
import torch

from linfdist.models import ConvDistNet, ConvDistNetMLP, DistNet, DistNetMLP, from_config
from linfdist.nn import Box, DistConv2d, DistLinear, MeanShift

from ..nn.samples import assert_encloses, points_of

STD = 0.3081
SMALL = {"shape": (2, 6, 5), "classes": 4, "mean": [0.3, 0.6], "std": STD}
NETS = {
    "DistNet": lambda **k: DistNet(**{**SMALL, "width": 70, "depth": 4, **k}),
    "DistNetMLP": lambda **k: DistNetMLP(**{**SMALL, "width": 70, "depth": 3, "head": 9, **k}),
    "ConvDistNet": lambda **k: ConvDistNet(**{**SMALL, "width": 6, "depth": 5, "dense": 50, **k}),
    "ConvDistNetMLP": lambda **k: ConvDistNetMLP(**{**SMALL, "width": 6, "depth": 5, "head": 9, **k}),
}


@pytest.fixture(params=NETS)
def make(request):
    return NETS[request.param]


def images(count=8, dtype=torch.float32):
    return torch.rand(count, *SMALL["shape"], dtype=dtype)


def train_a_little(net, steps=5):
    """A few steps at p = 8, as in training, then eval mode."""
    dtype = next(net.parameters()).dtype
    x, y = images(16, dtype), torch.arange(16) % 4
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    net.train()
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x, 8.0), y).backward()
        optimiser.step()
    return net.eval()


# --- architecture ---------------------------------------------------------------------------------


MNIST = {"shape": (1, 28, 28), "classes": 10, "width": 5120, "mean": [0.1307], "std": 0.3081}
CIFAR = {"shape": (3, 32, 32), "classes": 10, "width": 5120, "mean": [0.4914, 0.4822, 0.4465], "std": 0.2009}
TINY = {"shape": (3, 64, 64), "classes": 200, "width": 5120, "mean": [0.48, 0.45, 0.4], "std": 0.2276, "crop": 56}


@pytest.mark.parametrize(
    ("network", "arguments", "flops", "unit"),
    [
        (DistNet, {**MNIST, "depth": 5}, 82.7, 0.1),
        (DistNetMLP, {**MNIST, "depth": 4}, 85.3, 0.1),
        (DistNet, {**CIFAR, "depth": 6}, 121, 1),
        (DistNetMLP, {**CIFAR, "depth": 5}, 123, 1),
        (DistNetMLP, {**TINY, "depth": 5}, 156, 1),
        (ConvDistNetMLP, {**CIFAR, "width": 128, "depth": 6}, 566, 1),
    ],
)
def test_flops_of_the_paper(network, arguments, flops, unit):
    with torch.device("meta"):
        net = network(**arguments)
    assert abs(net.terms() / 1e6 - flops) <= unit / 2


def learned(net):
    """How many numbers are learned."""
    return sum(parameter.numel() for parameter in net.parameters())


def test_parameters_by_hand():
    net = NETS["DistNet"]()
    assert learned(net) == 60 * 70 + 2 * 70 * 70 + 70 * 4 + 4
    assert net.terms() == 60 * 70 + 2 * 70 * 70 + 70 * 4
    assert learned(NETS["DistNet"](mean_shift=False)) == learned(net) + 3 * 70


def test_table_8():
    with torch.device("meta"):
        net = ConvDistNetMLP(**{**CIFAR, "width": 128, "depth": 6})
    convs = [layer for layer in net.modules() if isinstance(layer, DistConv2d)]
    assert [(c.in_channels, c.out_channels, c.geometry.stride[0]) for c in convs] == [
        (3, 128, 1), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 256, 1),
    ]  # fmt: skip
    (linear,) = (layer for layer in net.modules() if isinstance(layer, DistLinear))
    assert (linear.in_features, linear.out_features) == (256 * 16 * 16, 512)
    assert net.head.hidden.weight.shape == (512, 512)
    assert net.head.output.weight.shape == (10, 512)


def test_the_plain_convolutional_net_has_the_same_convolutions():
    with torch.device("meta"):
        net = ConvDistNet(**{**CIFAR, "width": 128, "depth": 7}, per_class=3)
        table = ConvDistNetMLP(**{**CIFAR, "width": 128, "depth": 6})
    assert [str(layer) for layer in net.body] == [str(layer) for layer in table.body]
    assert net.last.weight.shape == (30, 512)


def dist_layers(net):
    return [layer for layer in net.modules() if getattr(layer, "holds_distances", False)]


def test_hidden_layers_have_shifts_and_no_biases(make):
    net = make()
    hidden = [layer for layer in net.body if isinstance(layer, DistLinear | DistConv2d)]
    assert all(layer.bias is None for layer in hidden)
    assert sum(isinstance(layer, MeanShift) for layer in net.modules()) == len(hidden)


def test_biases_take_the_place_of_shifts(make):
    net = make(mean_shift=False)
    assert all(layer.bias is not None and not layer.bias.any() for layer in dist_layers(net))
    assert not any(isinstance(layer, MeanShift) for layer in net.modules())
    assert net(images()).shape == (8, 4)


def test_depth_counts_dist_layers():
    assert len(dist_layers(NETS["DistNet"](depth=1))) == 1
    for name, net in NETS.items():
        assert len(dist_layers(net(depth=5))) == 5, name


def test_identity_wherever_it_fits_and_never_last(make):
    for layer in dist_layers(make(identity_init=False)):
        assert not (layer.weight == -10).any()
    net = make()
    for layer in dist_layers(net):
        outputs, inputs = layer.weight.shape[:2]
        hidden = layer is not getattr(net, "last", None)
        assert (layer.weight == -10).sum() == (outputs if hidden and inputs <= outputs else 0)
    narrow = NETS["DistNet"](width=59)  # below the 60 pixels
    assert [bool((layer.weight == -10).any()) for layer in dist_layers(narrow)] == [False, True, True, False]
    few_classes = NETS["DistNet"](width=3)  # the last layer stays as it is, though it would have room
    assert not (few_classes.last.weight == -10).any()


def test_a_deep_network_starts_as_the_identity():
    net = NETS["DistNet"](depth=11)
    x = images(32)
    pixels = ((x - torch.tensor(SMALL["mean"])[:, None, None]) / STD).flatten(1)
    expected = (pixels - pixels.mean(0))[:, torch.arange(70) % 60]
    torch.testing.assert_close(net.features(x), expected, rtol=0, atol=1e-4)
    for _ in range(150):  # so does its running mean
        net(x)
    torch.testing.assert_close(net.eval().features(x), expected, rtol=0, atol=1e-4)


def test_output_is_the_negated_distance_plus_bias():
    net = train_a_little(NETS["DistNet"]())
    x = images()
    features = net.features(x)
    distance = (features[:, None] - net.last.weight).abs().amax(2)
    assert torch.equal(net(x), -(distance + net.last.bias))
    assert net.last.bias.any()


def test_mlp_output_is_the_head_of_the_features():
    for name in ("DistNetMLP", "ConvDistNetMLP"):
        net = train_a_little(NETS[name]())
        x = images()
        assert torch.equal(net(x), net.head(net.features(x)))


def test_p_reaches_every_layer_and_stays_nowhere(make):
    net = train_a_little(make())
    x = images()
    at_infinity = net(x)
    h = x
    for layer in net.body:
        h = layer(h, 3.0)
    assert torch.equal(net.features(x, 3.0), h)
    assert not torch.equal(net(x, 3.0), at_infinity)
    assert torch.equal(net(x), at_infinity)


# --- the promise ----------------------------------------------------------------------------------


def test_lipschitz_in_pixels_after_training(make):
    net = train_a_little(make().double())
    assert net.lipschitz == pytest.approx(1 / STD, rel=1e-6)
    x = images(64, torch.float64)
    output = net if isinstance(net, DistNet) else net.features
    for radius in (1e-3, 0.1, 1.0):
        sign = torch.randint(0, 2, x.shape) * 2 - 1
        for step in (sign, torch.rand_like(x) * 2 - 1, torch.ones_like(x)):
            other = x + radius * step
            distance = (other - x).abs().flatten(1).amax(1)
            change = (output(other) - output(x)).abs().amax(1)
            assert (change <= net.lipschitz * distance * (1 + 1e-10)).all()


def test_the_lipschitz_constant_is_attained():
    """So L = 1/std is not wrong by a factor."""
    net = NETS["DistNet"]().double().eval()
    x = images(8, torch.float64)
    change = (net.features(x + 0.01) - net.features(x)).abs().amax(1)
    torch.testing.assert_close(change / 0.01, torch.full_like(change, net.lipschitz), rtol=1e-6, atol=0)


@pytest.mark.parametrize("radius", [1e-7, 0.05])
def test_boxes_enclose_without_slack(make, radius):
    net = train_a_little(make())
    x = images()
    box = Box((x - radius).clamp(0, 1), (x + radius).clamp(0, 1))
    bounds = net.features_box(box)
    for point in points_of(box):
        assert_encloses(bounds, net.features(point))
    if isinstance(net, DistNet):
        bounds = net.forward_box(box)
        for point in points_of(box):
            assert_encloses(bounds, net(point))


def test_boxes_of_points_are_the_outputs(make):
    net = train_a_little(make())
    x = images()
    assert torch.equal(net.features_box(Box(x, x)).lower, net.features(x))
    assert torch.equal(net.features_box(Box(x, x)).upper, net.features(x))


def test_boxes_need_eval_mode(make):
    x = images()
    with pytest.raises(RuntimeError, match=r"model\.eval\(\)"):
        make().features_box(Box(x, x))


# --- images ---------------------------------------------------------------------------------------


def test_crop_is_the_first_layer():
    net = DistNet((1, 8, 8), 4, 40, 2, [0.5], 0.25, crop=6).eval()
    x = torch.rand(3, 1, 8, 8)
    inner = x[:, :, 1:7, 1:7]
    assert torch.equal(net(x), net(inner))  # augmentation has cropped already
    assert net.features_box(Box(x, x)).lower.shape == (3, 40)
    with pytest.raises(ValueError, match=r"need images \(B, 1, 8, 8\) or \(B, 1, 6, 6\), got \(3, 1, 7, 7\)"):
        net(x[:, :, 1:, 1:])


def test_wrong_images(make):
    net = make().eval()
    with pytest.raises(ValueError, match=r"need images \(B, 2, 6, 5\), got \(8, 60\)"):
        net(images().flatten(1))
    with pytest.raises(TypeError, match=r"torch\.uint8: for bytes, x\.float\(\) / 255"):
        net((images() * 255).byte())
    assert net(images(0)).shape == (0, 4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"classes": 0}, "classes must be at least 1, got 0"),
        ({"shape": (6, 5)}, "shape must be"),
        ({"mean": [0.5]}, "each of the 2 channels"),
        ({"std": 0.0}, "std must be positive"),
        ({"crop": 6}, "crop must be between 1 and the image's size 6x5, got 6"),
    ],
)
def test_impossible_networks(make, wrong, message):
    with pytest.raises(ValueError, match=message):
        make(**wrong)


def test_convolutions_below_two_dist_layers():
    with pytest.raises(ValueError, match="depth must be at least 3, got 2"):
        NETS["ConvDistNet"](depth=2)


# --- configuration --------------------------------------------------------------------------------


def test_config_round_trip(make):
    net = train_a_little(make(identity_init=False, crop=5))
    config = json.loads(json.dumps(net.config))
    assert config == net.config
    again = from_config(config)
    assert type(again) is type(net)
    assert again.config == net.config
    again.load_state_dict(net.state_dict())
    x = images()
    assert not again.training  # at once: the running mean counts, p = inf
    assert torch.equal(again(x), net(x))
    assert again.lipschitz == net.lipschitz


def test_wrong_configs():
    config = NETS["DistNet"]().config
    with pytest.raises(ValueError, match="no network of class 'ResNet': the classes are DistNet, DistNetMLP, Conv"):
        from_config({**config, "class": "ResNet"})
    with pytest.raises(ValueError, match="a DistNet: unknown 'head', 'width' is missing"):
        from_config({**{key: value for key, value in config.items() if key != "width"}, "head": 3})


# --- torch ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default")  # torch.compile's own
@pytest.mark.parametrize("name", [pytest.param("DistNet", marks=pytest.mark.slow), "ConvDistNetMLP"])  # every kind
def test_compiles_as_one_graph(name):
    net = NETS[name](depth=2)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    x = images()
    for training, p in [(True, 8.0), (True, 9.5), (False, math.inf)]:
        net.train(training)
        before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
        y = compiled(x, p)
        after = {key: tensor.clone() for key, tensor in net.state_dict().items()}
        net.load_state_dict(before)
        torch.testing.assert_close(y, net(x, p))
        torch.testing.assert_close(after, dict(net.state_dict()))
