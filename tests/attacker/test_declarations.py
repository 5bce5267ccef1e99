"""Ways around the contract: what is not part of the network, or not what its class declares, is refused."""

import math
from fractions import Fraction

import pytest
import torch

import linfdist as ld
from linfdist.models import Composed, Mean, PixelNet
from linfdist.models.base import flush_error, rounding_error
from linfdist.nn import Clip, DistConv2d, DistLinear, Flatten, MeanShift, NearestClass, Normalize, Stack
from linfdist.nn.base import FLUSHED

X = torch.full((1, 1, 1, 1), 0.45)


def two_classes(readout=None):
    readout = readout or NearestClass(1, 2)
    with torch.no_grad():
        readout.weight.copy_(torch.tensor([[0.0], [1.0]]))
    return readout.eval()


class Hidden(PixelNet):
    """Its readout is in a list, where torch does not see it, nor a hook on it."""

    def __init__(self):
        super().__init__((1, 1, 1), None)
        self.config, self.body, self.heads = {}, Stack(Normalize([0.0], 1.0), Flatten()), [two_classes()]

    @property
    def readout(self):
        return self.heads[0]


class Called(PixelNet):
    """What is called is not what `forward` computes."""

    def __init__(self):
        super().__init__((1, 1, 1), None)
        self.config, self.body, self.last = {}, Stack(Normalize([0.0], 1.0), Flatten()), two_classes()

    @property
    def readout(self):
        return self.last

    def __call__(self, x, p=math.inf):
        return 100 * super().__call__(x, p)


def test_parts_that_torch_does_not_see():
    net = Hidden().eval()
    net.readout.register_forward_hook(lambda module, inputs, output: 100 * output)
    with pytest.raises(TypeError, match=r"Hidden\.readout is not a submodule"):
        ld.certify(net, X, "0.4")


def test_a_call_of_its_own():
    with pytest.raises(TypeError, match="__call__"):
        ld.certify(Called().eval(), X, "0.4")


def test_tensors_that_are_neither_parameters_nor_buffers():
    net = Composed(Stack(Normalize([0.0], 1.0), Flatten()), two_classes(), (1, 1, 1)).eval()
    weight = net.readout.weight.detach()
    del net.readout.weight
    net.readout.weight = weight
    with pytest.raises(ValueError, match=r"weight is a tensor, but neither"):
        ld.certify(net, X, "0.1")


def test_views_that_are_none():
    mean = Mean([Composed(Stack(Normalize([0.0], 1.0), Flatten()), two_classes(), (1, 1, 1)).eval()])
    mean.readout.views[0] = Clip(0.45, 0.55).eval()
    with pytest.raises(TypeError, match="views holds a Clip"):
        ld.certify(mean, X, "0.2")
    with pytest.raises(ValueError, match="at most 64"):
        Mean(mean.members, views=["same"] * 2)


def test_a_layer_that_shrinks_does_not_make_up_for_one_that_stretches():
    """In between, values are denormal, and are flushed or not; then the difference is stretched."""
    stretch = Normalize([0.0, 0.0], 2.0**-60)
    net = Stack(Normalize([0.0, 0.0], 2.0**60), stretch, DistConv2d(2, 2, 1, groups=2), Flatten())
    with torch.no_grad():
        net.layers[2].weight.zero_()
    net = net.eval()
    x = torch.tensor([0.5 * 2.0**-66, 0.99 * 2.0**-66]).view(1, 2, 1, 1)
    whole = ld.models.as_network(net, (2, 1, 1))
    assert flush_error(whole, rounding_error(whole)) > FLUSHED * torch.finfo(torch.float32).tiny
    for eps in ("0", "1e-23"):
        assert not ld.certify(net, x, eps).certified.any()


def test_one_layer_is_left_in_its_mode():
    inner = Stack(Normalize([0.0], 1.0), Flatten(), DistLinear(1, 2), MeanShift(2)).eval()
    inner.layers[3].train()
    with pytest.raises(ValueError, match="training mode"):
        ld.certify(inner, X, "0.1")
    assert inner.layers[3].training


def test_no_radius_is_larger_than_all_images():
    net = Composed(Stack(Normalize([0.0], 1.0), Flatten()), two_classes(), (1, 1, 1)).eval()
    with torch.no_grad():
        net.readout.bias.copy_(torch.tensor([0.0, 1000.0]))
    for eps in (None, "1"):
        proof = ld.certify(net, X, eps)
        assert proof.radius.item() == 1.0
        assert proof.certified is None or proof.certified.all()


def test_layers_without_tensors_and_constants_beyond_all_floats():
    with pytest.raises(TypeError, match="without any parameter or buffer"):
        ld.certify(Stack(Flatten()).eval(), torch.rand(1, 2, 1, 1), "0.1")
    steep = Stack(*[Normalize([0.0, 0.0], 1e-37) for _ in range(10)], Flatten()).eval()
    assert steep.lipschitz == math.inf
    with pytest.raises(ValueError, match="beyond all floats"):
        ld.certify(steep, torch.rand(3, 2, 1, 1), "0.1")


def test_a_proof_within_a_domain_says_so():
    net = Composed(Stack(Normalize([0.0], 1.0), Flatten()), two_classes(), (1, 1, 1)).eval()
    image = torch.full((1, 1, 1), 100, dtype=torch.uint8)
    narrow = ld.exact.freeze(net, k=0, domain=(image - 1, image + 1))
    proof = ld.certify(narrow, image[None], Fraction(1, 2))
    assert proof.certified.all()
    assert proof.domain == narrow.domain is not None
    assert ld.certify(ld.exact.freeze(net, k=0), image[None], None).domain is None


def test_products_in_less_than_float32(monkeypatch):
    net = ld.models.DistNetMLP((1, 2, 2), 3, 4, 1, [0.3], 0.4, head=4).eval()
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")
    with pytest.raises(ValueError, match="ONEDNN_DEFAULT_FPMATH_MODE=BF16"):
        ld.certify(net, torch.rand(1, 1, 2, 2), "0.1")


def test_a_bias_along_the_batch_is_refused():
    """It would give the same image another class at another place of the batch."""
    net = Composed(Stack(Normalize([0.0], 1.0), Flatten()), two_classes(), (1, 1, 1)).eval()
    net.readout.bias = torch.nn.Parameter(torch.tensor([[9.0, 0.0], [0.0, 9.0]]))
    with pytest.raises(ValueError, match=r"bias has shape \(2, 2\), but had shape \(2,\) when"):
        ld.certify(net, X.expand(2, 1, 1, 1).contiguous(), "0.1", method="margin")
