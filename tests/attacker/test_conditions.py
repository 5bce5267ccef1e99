"""Certificates under conditions that nobody would choose: extreme weights, strange tensors, other threads and modes."""

import math
import threading

import pytest
import torch

import linfdist as ld
from linfdist.exact import freeze
from linfdist.models import DistNet

from ..certificates.nets import attacks, count_flips, head_net, images, random_net, trained_net, two_classes

KINDS = ["plain", "head", "convolution"]
LARGEST = torch.finfo(torch.float32).max


def network(kind):
    return trained_net()[0] if kind == "plain" else head_net(2, conv=kind == "convolution")


def same(one, other):
    return (
        torch.equal(one.prediction, other.prediction)
        and torch.equal(one.radius, other.radius)
        and torch.equal(one.certified, other.certified)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["margin", "box"])
def test_the_memory_of_images_does_not_matter(kind, method):
    net, x = network(kind), images(7, 3)
    expected = ld.certify(net, x, "0.02", method=method)
    with torch.inference_mode():
        made_there = x.clone()
    negated = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert negated.is_neg()
    wide = torch.zeros(7, 2, 6, 6)
    wide[:, :1, ::2, ::2] = x
    for strange in (
        made_there,
        negated,
        x.clone().requires_grad_(),
        torch.nn.Parameter(x.clone()),
        x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        x.to(memory_format=torch.channels_last),
        wide[:, :1, ::2, ::2],
        x.flip(0).contiguous().flip(0),
    ):
        proof = ld.certify(net, strange, "0.02", method=method)
        assert same(proof, expected)
        assert not proof.radius.requires_grad
    with torch.inference_mode():
        assert same(ld.certify(net, x, "0.02", method=method), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_one_image_many_times_over(kind):
    """Stride 0: the same memory for all images, or for all pixels."""
    net = network(kind)
    for one in (images(1, 3), torch.tensor(0.3).expand(1, 1, 3, 3)):
        many = ld.certify(net, one.expand(5, 1, 3, 3), "0.02")
        alone = ld.certify(net, one.contiguous(), "0.02")
        assert torch.equal(many.prediction, alone.prediction.expand(5))
        assert torch.allclose(many.radius, alone.radius.expand(5), rtol=1e-3, atol=2**-13)
        assert count_flips(net, one, attacks(net, one.contiguous(), many.radius[:1])) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_no_images(kind):
    net, x = network(kind), images(3)[:0]
    for method in ("margin", "box"):
        for eps in (None, "0.1", 0):
            proof = ld.certify(net, x, eps, y=torch.zeros(0, dtype=torch.int64), method=method)
            assert proof.prediction.shape == proof.radius.shape == (0,)
            assert (proof.certified is None) == (eps is None)
    assert ld.certify(net, x, torch.zeros(3, 3)).certified.shape == (0,)
    assert ld.predict(net, x, "0.1").shape == (0,)


@pytest.mark.parametrize("kind", ["plain", "head"])
def test_modes_of_torch_and_numbers_of_threads(kind):
    net, x = network(kind), images(12, 5)
    expected = ld.certify(net, x, "0.02")
    found = {}

    def there(name):
        found[name] = ld.certify(net, x, "0.02")

    try:
        torch.set_default_dtype(torch.float64)
        there("default of float64")
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(True)
        there("deterministic algorithms")
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(2)
        there("two threads")
        others = [threading.Thread(target=there, args=(f"thread {k}",)) for k in range(2)]
        for other in others:
            other.start()
        for other in others:
            other.join()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(1)
    assert len(found) == 5
    for name, proof in found.items():
        assert torch.equal(proof.prediction, expected.prediction), name
        assert torch.allclose(proof.radius, expected.radius, rtol=1e-3, atol=2**-13), name
        if kind == "plain":  # no sums: to the bit
            assert same(proof, expected), name


@pytest.mark.parametrize("kind", KINDS)
def test_flushed_here_and_not_there(kind):
    """Proved by a thread that flushes denormals and attacked by one that does not, and the other way round."""
    net = network(kind)
    x = torch.where(images(24, 6) < 0.5, images(24, 8) * torch.finfo(torch.float32).tiny, images(24, 6))
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot")
    try:
        proof = ld.certify(net, x, None)
        torch.set_flush_denormal(False)
        assert count_flips(net, x, attacks(net, x, proof.radius, tries=4)) == 0
        proof = ld.certify(net, x, None)
        near = list(attacks(net, x, proof.radius, tries=4))
        torch.set_flush_denormal(True)
        assert torch.equal(net(x).argmax(1), proof.prediction)
        assert count_flips(net, x, near) == 0
    finally:
        torch.set_flush_denormal(False)


def test_zeros_with_a_sign():
    net, x = trained_net()[0], images(20, 4)
    x[:, :, 0] = 0.0
    minus = torch.where(x == 0, -0.0, x)
    assert torch.signbit(minus).any()
    assert same(ld.certify(net, minus, "0.02"), ld.certify(net, x, "0.02"))
    with torch.no_grad():
        weight = net.body.layers[2].weight
        weight[:, 0] = 0.0
        plus = ld.certify(net, x, "0.02")
        weight[:, 0] = -0.0
    assert same(ld.certify(net, x, "0.02"), plus)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [-1e-45, 1 + 2**-23, -math.inf, math.nan])
def test_one_ulp_outside(kind, value):
    net, x = network(kind), images(3)
    x[1, 0, 2, 2] = value
    for method in ("margin", "box"):
        with pytest.raises(ValueError, match=r"pixels must lie in \[0, 1\]"):
            ld.certify(net, x, "0.02", method=method)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_bad_weight_that_nothing_uses(value):
    """The neuron is never the largest, nor is its column ever seen: the network is refused all the same."""
    net, x = trained_net()[0], images(3)
    with torch.no_grad():
        net.body.layers[2].weight[5, 4] = value
    for method in ("margin", "box", "milp"):
        with pytest.raises(ValueError, match="not finite"):
            ld.certify(net, x, "0.02", method=method)


@pytest.mark.parametrize("where", ["weight", "bias", "shift", "last", "mean"])
@pytest.mark.parametrize("value", [LARGEST, -LARGEST, 1e30, 1e15])
def test_one_huge_number(where, value):
    """What could overflow proves nothing; what could not is attacked."""
    net, x = trained_net()[0], images(16, 2)
    tensors = dict(net.state_dict())
    place = {
        "weight": tensors["body.layers.2.weight"], "bias": tensors["last.bias"], "last": tensors["last.weight"],
        "shift": tensors["body.layers.3.running_mean"], "mean": tensors["body.layers.0.mean"],
    }[where]  # fmt: skip
    place.view(-1)[0] = value
    for method in ("margin", "box"):
        proof = ld.certify(net, x, "0.001", method=method)
        assert proof.radius.isfinite().all()
        assert count_flips(net, x, attacks(net, x, proof.radius, tries=3)) == 0
        if abs(value) == LARGEST and where != "bias":
            assert not proof.certified.any()


@pytest.mark.parametrize("std", [1.2e-38, 1e-30, 1e-6, 1e6, 1e30, 3e38])
@pytest.mark.parametrize("size", [1e-38, 1.0, 1e5])
def test_a_std_at_the_ends(std, size):
    net, x = random_net(0, width=12, depth=2, size=size), images(12)
    net.body.layers[0].std.fill_(std)
    for method in ("margin", "box"):
        proof = ld.certify(net, x, "0.001", method=method)
        assert proof.radius.isfinite().all()
        assert count_flips(net, x, attacks(net, x, proof.radius.clamp(max=1), tries=3)) == 0


def test_no_radius_is_infinite():
    """A std so large that the margin over L overflows."""
    net = two_classes(0.0, 1.0).double()
    net.body.layers[0].std.fill_(1e308)
    with torch.no_grad():
        net.last.weight.mul_(1e5)
    proof = ld.certify(net, torch.rand(2, 1, 1, 1, dtype=torch.float64), "0.1")
    assert proof.certified.all()
    assert proof.radius.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_float64(kind):
    net, x = network(kind).double(), images(16, 2).double()
    x[:8] += torch.rand(8, 1, 3, 3, dtype=torch.float64) * 2**-30
    x.clamp_(0, 1)
    for method in ("margin", "box"):
        radius = ld.certify(net, x, None, method=method).radius
        assert (radius > 0).any()
        assert count_flips(net, x, attacks(net, x, radius, tries=4)) == 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("other", ["sparse", "mkldnn", "nested", "meta"])
def test_tensors_that_are_not_ordinary(other):
    net, x = trained_net()[0], images(3)
    strange = {
        "sparse": lambda: x.to_sparse(), "mkldnn": lambda: x.to_mkldnn(), "meta": lambda: x.to("meta"),
        "nested": lambda: torch.nested.as_nested_tensor([x[0], x[1]], layout=torch.strided),
    }[other]()  # fmt: skip
    for model in (net, freeze(net)):
        with pytest.raises(TypeError, match="x must be an ordinary dense tensor"):
            ld.certify(model, strange, "0.1")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.uint64])
def test_labels_of_any_integers(dtype):
    net, x = trained_net()[0], images(20, 3)
    y = net(x).argmax(1)
    expected = ld.certify(net, x, "0.01").certified
    assert expected.any()
    assert torch.equal(ld.certify(net, x, "0.01", y=y.to(dtype)).certified, expected)
    frozen, levels = freeze(net), (x * 255).round().to(torch.uint8)
    y = frozen(levels).argmax(1)
    assert ld.certify(frozen, levels, "0.01", y=y.to(dtype)).certified.any()


def test_a_class_that_no_image_has():
    """Weights so far away that two logits are infinite, or all are equal: nothing is proved."""
    net = DistNet((1, 3, 3), 3, 4, 2, [0.3], 0.31, identity_init=False).eval()
    with torch.no_grad():
        net.last.weight.fill_(LARGEST)
        net.last.bias.fill_(LARGEST)
    for method in ("margin", "box", "milp"):
        proof = ld.certify(net, images(4), 0, method=method)
        assert not proof.certified.any()
        assert not proof.radius.any()
