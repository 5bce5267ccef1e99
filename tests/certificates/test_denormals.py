"""Whether denormal numbers are flushed to zero differs from thread to thread: no certificate may depend on it."""

from contextlib import contextmanager

import pytest
import torch

import linfdist as ld
from linfdist.models import DistNet
from linfdist.models.base import flush_error, rounding_error
from linfdist.nn.base import FLUSHED

from .nets import images, random_net

TINY = torch.finfo(torch.float32).tiny


@contextmanager
def flushing():
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormal numbers")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def tiny_gaps(std=3e38):
    """A network all of whose values are denormal: which class it gives hangs on how these are treated."""
    torch.manual_seed(0)
    net = DistNet((1, 2, 2), 3, 4, 1, [0.0], std).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.rand(3, 4) * 1e-38)
        net.last.bias.zero_()
    return net


@pytest.mark.parametrize("method", ["margin", "box"])
@pytest.mark.parametrize("eps", ["0", "0.001", "0.5"])
def test_nothing_is_certified_where_flushing_decides(method, eps):
    net, x = tiny_gaps(), torch.rand(200, 1, 2, 2)
    kept = net(x).argmax(1)
    with flushing():
        flushed = net(x).argmax(1)
    assert (kept != flushed).any()  # or this test shows nothing
    proof = ld.certify(net, x, eps, method=method)
    assert not proof.certified[kept != flushed].any()
    assert not (proof.radius[kept != flushed] > 0).any()


@pytest.mark.parametrize("method", ["margin", "box"])
def test_certificates_of_ordinary_networks_are_the_same_in_either_mode(method):
    net, x = random_net(1), images(50)
    before = ld.certify(net, x, "0.05", method=method)
    with flushing():
        after = ld.certify(net, x, "0.05", method=method)
    assert torch.equal(before.radius, after.radius)
    assert torch.equal(before.certified, after.certified)
    assert before.certified.any()


def test_the_slack_is_negligible_unless_a_weight_is_tiny():
    net = random_net(2)
    assert flush_error(net, rounding_error(net)) == FLUSHED * TINY < 1e-25
    with torch.no_grad():
        net.last.weight[0, 0] = 1e-30
    assert flush_error(net, rounding_error(net)) == 2 * rounding_error(net)
    with torch.no_grad():
        net.last.weight[0, 0] = 0.0
    assert flush_error(net, rounding_error(net)) == FLUSHED * TINY


def test_denormal_pixels_and_zero_weights():
    """Pixels that are flushed pass a weight of 0 as they are: certified images keep their class all the same."""
    net = DistNet((1, 2, 2), 2, 4, 1, [0.0], 1.0).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]))
        net.last.bias.copy_(torch.tensor([0.0, -1.0]))
    x = torch.tensor([1e-40, 0.0, 0.0, 0.0]).view(1, 1, 2, 2)
    proof = ld.certify(net, x, "0")
    with flushing():
        again = net(x).argmax(1)
    assert not proof.certified.any() or torch.equal(again, proof.prediction)
