"""Rounding to the grid: near the float network everywhere, and never an overflow."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linfdist import exact
from linfdist.exact import network as network_module
from linfdist.exact.bounds import winners
from linfdist.exact.freeze import compare, to_grid
from linfdist.exact.network import FrozenLayer
from linfdist.exact.stem import Stem
from linfdist.models import ConvDistNetMLP, DistNet, DistNetMLP
from linfdist.ops import exact as kernels

from .nets import dense_logits, exact_logits, images, random_mlp, random_net, reference


@given(seed=st.integers(0, 10**6), k=st.integers(0, 7), depth=st.integers(1, 4), mean_shift=st.booleans())
def test_distance_to_the_network_in_exact_arithmetic(seed, k, depth, mean_shift):
    net = random_net(seed, shape=(2, 2, 2), width=5, depth=depth, mean_shift=mean_shift)
    frozen = exact.freeze(net, k=k)
    # rounding alone, which must stay below half a unit a layer, and half for the bias: no room for a wrong sign
    bound = Fraction(depth + 1, 2 * 255 * 2**k) + Fraction(1, 10**9)
    for image, logits in zip(images(2, (2, 2, 2), seed), frozen(images(2, (2, 2, 2), seed)), strict=True):
        for z, true in zip(logits.tolist(), exact_logits(net, image), strict=True):
            assert abs(Fraction(z, 255 * 2**k) - true) <= min(bound, Fraction(frozen.facts["distance"]))


def test_distance_to_the_float_network_on_all_images(trained):
    frozen = trained.frozen
    pixels = frozen(trained.images).double() / (255 * 2**frozen.k)
    float_logits = trained.network(trained.images.float() / 255).double() * frozen.facts["std"]
    seen = (pixels - float_logits).abs().max().item()
    assert 0 < seen <= frozen.facts["distance"] < 2 / (255 * 2**frozen.k) + 1e-5  # 3 layers and a bias, half each


def test_accuracy_stays(trained):
    result = compare(trained.network, trained.frozen, trained.images, trained.labels, Fraction(1, 10))
    assert result.n == 450
    assert result.clean[0] > 225  # else there would be nothing to keep
    assert result.certified[0] > 45
    assert abs(result.clean[0] - result.clean[1]) <= 2
    assert abs(result.certified[0] - result.certified[1]) <= 2
    assert result.certified[1] <= result.clean[1]


def test_the_crop_is_in_the_middle():
    net = random_net(3, shape=(3, 5, 6), crop=2)
    x = images(20, (3, 5, 6))
    frozen = exact.freeze(net, k=4)
    for image, z in zip(x, frozen(x), strict=True):
        true = exact_logits(net, image[:, 1:3, 2:4])
        assert all(abs(Fraction(a, 255 * 16) - b) < Fraction(1, 1000) for a, b in zip(z.tolist(), true, strict=True))


def test_means_shifts_and_hidden_biases_cost_no_rounding():
    """Only weights and the last bias are rounded: with those on the grid, the frozen network is exact."""
    net = DistNet((1, 1, 2), 2, 2, 2, [0.5], 1.0, identity_init=False).eval()
    with torch.no_grad():
        for tensor in net.state_dict().values():
            tensor.copy_(torch.rand_like(tensor).mul(64).round() / 64)
        next(iter(net.body)).std.fill_(1.0)
    frozen = exact.freeze(net, k=6)
    moved = to_grid(net, Stem(6))[1]
    assert moved < Fraction(1, 10**6)
    x = images(5, (1, 1, 2))
    for image, z in zip(x, frozen(x), strict=True):
        assert [Fraction(v, 255 * 64) for v in z.tolist()] == exact_logits(net, image)


def one_neuron(weight: int, others: int = 0) -> DistNet:
    """On the grid of k = 0, in units of 1/255: y = |x - weight|, then two classes at |y - others| and |y|."""
    net = DistNet((1, 1, 1), 2, 1, 2, [0.0], 1.0, identity_init=False, mean_shift=False).eval()
    with torch.no_grad():
        for tensor in net.parameters():
            tensor.zero_()
        next(layer for layer in net.body if hasattr(layer, "weight")).weight.fill_(weight / 255)
        net.last.weight[0] = others / 255
    return net


@pytest.mark.parametrize(
    ("weight", "others", "types"),
    [
        (-32512, 0, ["int16", "int16"]),  # 255 + 32512 = 32767
        (-32513, 0, ["int32", "int32"]),
        (32767, 0, ["int16", "int16"]),
        (32768, 0, ["int32", "int32"]),
        (0, -32512, ["int16", "int16"]),
        (0, -32513, ["int16", "int32"]),  # the last layer alone, from int16 inputs
        (-(10**6), 0, ["int32", "int32"]),
    ],
)
def test_the_edge_of_int16(weight, others, types):
    net = one_neuron(weight, others)
    frozen = exact.freeze(net, k=0)
    assert [str(layer.weight.dtype).removeprefix("torch.") for layer in frozen.layers] == types
    x = torch.arange(256, dtype=torch.uint8).reshape(-1, 1, 1, 1)
    y = (torch.arange(256) - weight).abs()
    assert torch.equal(frozen(x).long(), -torch.stack([(y - others).abs(), y], 1))


@given(seed=st.integers(0, 10**6), size=st.sampled_from([2**15 - 1, 2**31 - 1]), count=st.integers(1, 40))
def test_no_overflow_at_the_extremes_of_a_type(seed, size, count):
    """Layers that use the whole type, on inputs at the ends of their ranges, dense and pruned."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randint(-size, size + 1, shape, generator=generator)

    ends = draw(2, 6) // 2
    low, high = ends.amin(0), ends.amax(0)
    weight = draw(5, 6) // 2  # |x - w| <= size
    mask = winners(low, high, weight)
    layer = FrozenLayer.fitting(weight, mask, torch.zeros(5, dtype=torch.int64), low, high)
    assert layer.weight.dtype == (torch.int16 if size < 2**15 else torch.int32)
    x = torch.where(torch.rand(count, 6, generator=generator) < 0.5, low, high)
    y = (x[:, None] - weight).abs().amax(2).T
    feature_major = x.T.contiguous().to(layer.weight.dtype)
    start, index, kept, _ = layer.entries
    assert torch.equal(kernels.dense(feature_major, layer.weight, layer.bias).long(), y)
    sides = kernels.one_sided(start, index, kept, low, high)
    assert torch.equal(kernels.sided(feature_major, *sides, layer.bias).long(), y)


def test_grids():
    net = random_net(0)
    automatic = exact.freeze(net)
    assert all(layer.weight.dtype == torch.int16 for layer in automatic.layers)
    assert automatic.k == 6 or any(
        layer.weight.dtype == torch.int32 for layer in exact.freeze(net, k=automatic.k + 1).layers
    )
    large = one_neuron(-(10**5))
    assert exact.freeze(large).k == 4
    with pytest.raises(ValueError, match="k = 8: must be between 0 and 7"):
        exact.freeze(net, k=8)


def test_whatever_cannot_be_frozen_is_refused():
    sizes = {"shape": (1, 8, 8), "classes": 3, "width": 4, "mean": [0.3], "std": 0.3}
    with pytest.raises(TypeError, match="a DistConv2d has no form in integers"):
        exact.freeze(ConvDistNetMLP(**sizes, depth=4, head=4).eval())

    class Other(DistNet):
        def forward(self, x, p=torch.inf):
            return 2 * super().forward(x, p)

    class OtherMLP(DistNetMLP):
        pass

    with pytest.raises(TypeError, match="Other is a Other, which inherits"):
        exact.freeze(Other(**sizes, depth=2).eval())
    with pytest.raises(TypeError, match="OtherMLP is a OtherMLP, which inherits"):
        exact.freeze(OtherMLP(**sizes, depth=2, head=4).eval())
    with pytest.raises(ValueError, match="training mode"):
        exact.freeze(DistNet(**sizes, depth=2))
    with pytest.raises(TypeError, match="only float32"):
        exact.freeze(DistNet(**sizes, depth=2).double().eval())
    net = random_net(0)
    with torch.no_grad():
        net.last.weight[0, 0] = torch.inf
    with pytest.raises(ValueError, match="not finite"):
        exact.freeze(net)
    net = random_mlp(0)
    for parameter in (net.head.hidden.weight, net.head.output.bias):
        before = parameter.detach().clone()
        with torch.no_grad():
            parameter.view(-1)[0] = torch.nan
        with pytest.raises(ValueError, match="not finite"):
            exact.freeze(net)
        parameter.data.copy_(before)
    with torch.no_grad():
        net.head.output.weight.fill_(3e38)
    with pytest.raises(ValueError, match="the float network could overflow"):
        exact.freeze(net)
    with pytest.raises(ValueError, match="too large for 32 bits"):
        exact.freeze(one_neuron(2**40), k=0)
    with pytest.raises(ValueError, match="which 32 bits cannot hold: take a smaller k"):
        exact.freeze(one_neuron(-(2**31 - 128)), k=0)


@pytest.mark.parametrize(
    ("x", "error", "complaint"),
    [
        (torch.zeros(1, 1, 3, 3), TypeError, r"8-bit pixels \(uint8, 0 ... 255\), got torch.float32"),
        (torch.zeros(1, 3, 3, dtype=torch.uint8), ValueError, r"need images \(B, 1, 3, 3\), got \(1, 3, 3\)"),
        (torch.zeros(1, 1, 3, 4, dtype=torch.uint8), ValueError, r"got \(1, 1, 3, 4\)"),
    ],
)
def test_inputs_are_checked(x, error, complaint):
    with pytest.raises(error, match=complaint):
        exact.freeze(random_net(0))(x)


def test_the_engine_computes_the_reference(trained):
    x = torch.cat([trained.images, images(100, (1, 8, 8))])
    assert torch.equal(trained.frozen(x), reference(trained.frozen, x))
    rounded, _ = to_grid(trained.network, trained.frozen.stem)
    whole = dense_logits(rounded, Stem(trained.frozen.k)(x).long())
    assert torch.equal(trained.frozen(x).long(), whole)
    assert trained.frozen(x[:0]).shape == (0, 10)


@pytest.mark.parametrize("crop", [None, 2])
@pytest.mark.parametrize(
    "k", [0, 3, 6, 7]
)  # all in 8 bits, all int16, both types and all int32 (from their floors in int16)
def test_every_way_of_evaluation_is_the_same_function(monkeypatch, k, crop):
    """One image, all layers in one kernel, layer by layer: pruned and dense."""
    x = images(70, (1, 3, 3))
    net = random_net(5, crop=crop)
    for below in (0.0, 2.0):  # never, and always, worth it
        monkeypatch.setattr(network_module, "SIDED_BELOW", below)
        frozen = exact.freeze(net, k=k)
        one_type = len({layer.weight.dtype for layer in frozen.layers}) == 1
        assert one_type == (k != 6)
        assert (frozen._chain is not None) == (below > 0)
        assert frozen.in_bytes == (k == 0)
        for count in (0, 1, 2, len(x)):
            assert torch.equal(frozen(x[:count]), reference(frozen, x[:count]))


@given(st.data())
def test_eight_bits_are_enough(data):
    """A dist net moves by no more than its input: 255 levels in, 255 levels out, whatever the weights are."""
    seed, depth = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.integers(1, 4))
    net = random_net(seed, width=data.draw(st.integers(1, 40)), depth=depth)
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(data.draw(st.sampled_from([0.01, 1.0, 30.0])))
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(256, (2, 1, 3, 3), generator=generator).to(torch.uint8)
    small = (ends.amin(0), torch.minimum(ends.amin(0).int() + 31, ends.amax(0).int()).to(torch.uint8))
    k, domain = data.draw(st.sampled_from([(0, None), (0, (ends.amin(0), ends.amax(0))), (3, small)]))
    frozen = exact.freeze(net, k=k, domain=domain)
    assert frozen.in_bytes
    x = images(200, seed=seed)
    if domain is not None:
        x = torch.minimum(torch.maximum(x, domain[0]), domain[1])
    assert torch.equal(frozen(x), reference(frozen, x))
    chain = frozen._chain
    assert chain is None or chain.sides.weight.dtype == torch.uint8
