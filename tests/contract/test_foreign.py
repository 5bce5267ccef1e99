"""What declares the contract is certified, attacked, evaluated and reported like a network of the package."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linfdist as ld
from linfdist.attacks import attack
from linfdist.eps import parse_eps
from linfdist.models import Composed, as_network
from linfdist.models.base import rounding_error
from linfdist.nn import Box, CenterCrop, DistLinear, Flatten, Logits, MeanShift, NearestClass, Normalize, Stack

from .foreign import Amplifier, GroupMean, exact_group_mean, group_net


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([1, 2, 7, 64]), scale=st.sampled_from([1e-30, 1.0, 1e6]))
def test_the_box_of_a_layer_whose_sums_round_encloses_them(seed, size, scale):
    """Also when the same sums are taken in another order, as another machine would."""
    torch.manual_seed(seed)
    layer, x = GroupMean(size), scale * torch.randn(5, 3 * size)
    box = layer.forward_box(Box(x, x))
    for order in (torch.arange(size), torch.arange(size).flip(0), torch.randperm(size)):
        total = torch.zeros(5, 3)
        for k in order.tolist():
            total = total + x.unflatten(1, (3, size))[..., k]
        for computed in (layer(x), total / size, total * (1 / size)):
            assert ((box.lower <= computed) & (computed <= box.upper)).all()
    exact = exact_group_mean(x[0].tolist(), size)
    assert all(
        low <= value <= high
        for low, value, high in zip(box.lower[0].tolist(), exact, box.upper[0].tolist(), strict=True)
    )


@pytest.mark.parametrize("method", ["margin", "box"])
def test_a_foreign_network_is_certified_and_never_broken(method):
    for seed in range(4):
        net = group_net(seed)
        x = torch.rand(40, 1, 5, 5)
        proof = ld.certify(net, x, "0.02", method=method)
        assert proof.margin_radius is not None
        assert (proof.radius >= proof.margin_radius).all()
        assert torch.equal(proof.prediction, net(x).argmax(1))
        sure = proof.certified.nonzero()[:, 0]
        assert len(sure)
        for name in ("pgd", "strong"):
            found = attack(name)(net, x[sure], proof.prediction[sure], parse_eps("0.02"))
            assert not found.broken.any()
        moved = (x + 0.999999 * proof.radius[:, None, None, None] * (2 * torch.rand_like(x) - 1).sign()).clamp(0, 1)
        assert torch.equal(net(moved.float()).argmax(1), proof.prediction)


def test_its_rounding_error_counts_the_sums():
    plain, grouped = group_net(0, size=1), group_net(0, size=64)
    assert rounding_error(grouped) > 10 * rounding_error(plain)


def test_sizes_and_counts_come_from_the_layers():
    net = group_net(0)
    assert net.terms() == 25 * 21 + 7 * 4
    assert net.classes == 4


def test_what_cannot_be_said_of_a_layer_is_refused_with_its_name():
    net = group_net(0)
    with pytest.raises(TypeError, match="GroupMean has no form in integers"):
        ld.exact.freeze(net)
    with pytest.raises(TypeError, match="GroupMean cannot be written as an ONNX file"):
        ld.export.to_onnx(net, "never.onnx")
    with pytest.raises(ValueError, match="GroupNet cannot be saved"):
        ld.models.save(net, "never.safetensors", {})


def stack():
    torch.manual_seed(3)
    return Stack(Normalize([0.3], 0.4), Flatten(), DistLinear(25, 9), MeanShift(9), DistLinear(9, 4)).eval()


def test_a_stack_of_layers_is_certified_as_it_is():
    layers, x = stack(), torch.rand(30, 1, 5, 5)
    proof = ld.certify(layers, x, "0.03")
    assert torch.equal(proof.prediction, layers(x).argmax(1))
    assert proof.certified.any()
    assert not proof.certified.all()
    for _ in range(20):
        moved = x + 0.03 * (2 * torch.rand_like(x) - 1).sign()
        same = layers(moved.clamp(0, 1)).argmax(1) == proof.prediction
        assert same[proof.certified].all()


def test_a_stack_is_the_network_with_the_same_layers():
    """Negated distances, read out as they are, prove what the plain readout proves."""
    body = stack()
    readout = NearestClass(4, 3).eval()
    x = torch.rand(20, 1, 5, 5)
    net = Composed(body, readout, (1, 5, 5))
    both = ld.certify(net, x, "0.03")
    assert torch.equal(both.prediction, net(x).argmax(1))
    nested = Stack(Stack(*list(body)[:2]), *list(body)[2:]).eval()
    assert torch.equal(ld.certify(nested, x, "0.03").radius, ld.certify(body, x, "0.03").radius)


def test_a_stack_with_a_foreign_layer_is_refused():
    layers = Stack(*stack(), Amplifier()).eval()
    with pytest.raises(TypeError, match="Amplifier"):
        ld.certify(layers, torch.rand(2, 1, 5, 5), "0.1")


def test_a_stack_must_end_with_logits():
    layers = Stack(Normalize([0.3], 0.4)).eval()
    with pytest.raises(ValueError, match=r"\(1, 5, 5\)"):
        ld.certify(layers, torch.rand(2, 1, 5, 5), "0.1")
    assert isinstance(as_network(stack(), (1, 5, 5)).readout, Logits)


def test_a_network_must_be_its_readout_of_its_body():
    class Louder(type(group_net(0)).__mro__[1]):  # of PixelNet itself, so that it is a contract of its own
        shapes = ((1, 5, 5),)  # which say how images are arranged

        def __init__(self):
            super().__init__((1, 5, 5), None)
            inner = group_net(0)
            self.config, self.body, self.far = {}, inner.body, inner.far

        @property
        def readout(self):
            return self.far

        def forward(self, x, p=math.inf):
            return 1000 * super().forward(x, p)

    with pytest.raises(TypeError, match="Louder has its own forward, shapes"):
        ld.certify(Louder().eval(), torch.rand(2, 1, 5, 5), "0.1")


def test_a_foreign_network_is_evaluated_and_reported(tmp_path):
    digits = ld.data.load("digits", split="test")
    net = group_net(1, shape=(1, 8, 8), classes=10, width=20)
    result = ld.evaluate(net, digits, "0.01", tmp_path, limit=30, attacks=("pgd",))
    assert result.summary["n"] == 30
    assert result.summary["certified"] <= result.summary["robust"] <= result.summary["clean"]
    assert "0.01" in ld.report.write(tmp_path).read_text()
    assert ld.evaluate(net, digits, "0.01", tmp_path, limit=30, attacks=("pgd",)).before
    with torch.no_grad():
        net.far.bias[0] += 0.5
    with pytest.raises(ValueError, match="model_sha256"):
        ld.evaluate(net, digits, "0.01", tmp_path, limit=30, attacks=("pgd",))


def test_a_stack_is_evaluated(tmp_path):
    digits = ld.data.load("digits", split="test")
    torch.manual_seed(0)
    layers = Stack(Normalize([0.3], 0.4), Flatten(), DistLinear(64, 10)).eval()
    assert ld.evaluate(layers, digits, "0.01", tmp_path, limit=10, attacks=("strong",)).summary["n"] == 10


def test_layers_that_cannot_be_folded_are_refused():
    """Two crops are not one where a margin is odd; a crop after the normalisation would need its means cropped."""
    twice = Composed(
        Stack(CenterCrop(3), CenterCrop(2), Normalize([0.0], 1.0), Flatten()), NearestClass(4, 2), (1, 6, 6)
    )
    late = Composed(Stack(Normalize([0.5], 1.0), CenterCrop(2), Flatten()), NearestClass(4, 2), (1, 6, 6))
    for net in (twice.eval(), late.eval()):
        with pytest.raises(TypeError, match="crops once, before everything else"):
            ld.exact.freeze(net)
        with pytest.raises(TypeError, match="crops once, before everything else"):
            ld.certify(net, torch.rand(2, 1, 6, 6), None, method="milp")
        assert ld.certify(net, torch.rand(2, 1, 6, 6), "0.01").radius.shape == (2,)
