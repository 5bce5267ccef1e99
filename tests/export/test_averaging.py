"""ONNX files of networks with sums: equal up to the rounding that their certificates account for."""

import pytest
import torch

from linfdist.export import to_onnx, to_torch_export
from linfdist.models import Mean
from linfdist.models.base import rounding_error

from ..certificates.nets import margin
from . import nets
from .test_onnx import LEVELS, run

KINDS = {
    "pool": {"pool": [1, 2, 4]},
    "pool of another size": {"pool": [5]},
    "clip": {"clip": [0.2, 0.7]},
    "per class": {"per_class": 3},
    "mirror pairs": {"mirror_pairs": True},
    "mirror pairs, even": {"mirror_pairs": True, "crop": 4},
    "all": {"pool": [2, 1], "clip": [0.1, 0.9], "per_class": 2, "crop": 5},
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_within_the_rounding_of_ours(tmp_path, kind, level):
    network = nets.plain(**KINDS[kind])
    x = nets.images(50).float() / 255
    to_onnx(network, tmp_path / "net.onnx")
    logits, radius = run(tmp_path / "net.onnx", x, level)
    apart = (logits.double() - network(x).double()).abs().max().item()
    assert apart <= 2 * rounding_error(network)  # each is within the error of the exact ones
    assert ("pairs" not in kind and kind != "clip") or apart == 0  # nothing is summed
    torch.testing.assert_close(radius, margin(network, x).radius, rtol=1e-4, atol=1e-5)
    assert (radius > 0).any()


@pytest.mark.parametrize("level", LEVELS)
def test_radii_of_means_may_be_above_ours_and_hold_for_every_execution(tmp_path, level):
    """The logits of two executions may differ by 2E, and radii by 2E / L. Each radius leaves room for all of them."""
    network = nets.plain(per_class=7)
    x = nets.images(400).float() / 255
    to_onnx(network, tmp_path / "net.onnx")
    _, radius = run(tmp_path / "net.onnx", x, level)
    error, steep, ours = rounding_error(network), network.lipschitz, margin(network, x).radius
    assert (radius > ours).any()
    assert ((radius - ours) <= 2 * error / steep).all()
    best, second = network.double()(x.double()).topk(2).values.T  # all but exact
    proved = radius > 0
    assert proved.any()
    assert (2 * steep * radius + 2 * error <= best - second + 1e-12)[proved].all()


def means(*members):
    return Mean(members, ["same", "mirror", "shift:1,-2"])


@pytest.mark.parametrize("level", LEVELS)
def test_the_mean_of_plain_networks_has_a_radius(tmp_path, level):
    network = means(nets.plain(), nets.plain(depth=2, pool=[2], crop=5))
    x = nets.images(50).float() / 255
    to_onnx(network, tmp_path / "net.onnx")
    logits, radius = run(tmp_path / "net.onnx", x, level)
    assert (logits.double() - network(x).double()).abs().max() <= 2 * rounding_error(network)
    torch.testing.assert_close(radius, margin(network, x).radius, rtol=1e-4, atol=1e-5)
    assert (radius > 0).any()


def test_the_mean_of_networks_with_heads_has_logits_only(tmp_path):
    network = means(nets.with_head(), nets.convolutional(), nets.plain())
    x = nets.images(9).float() / 255
    to_onnx(network, tmp_path / "net.onnx")
    (logits,) = run(tmp_path / "net.onnx", x)
    torch.testing.assert_close(logits, network(x))


@pytest.mark.filterwarnings("default")  # torch.export's own
def test_the_program_of_a_mean_has_the_same_bits(tmp_path):
    network = means(nets.plain(), nets.plain(depth=2))
    to_torch_export(network, tmp_path / "net.pt2")
    x = nets.images(7).float() / 255
    assert torch.equal(torch.export.load(tmp_path / "net.pt2").module()(x), network(x))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("default")  # torch.export's own
def test_programs_have_the_same_bits(tmp_path, kind):
    network = nets.plain(**KINDS[kind])
    to_torch_export(network, tmp_path / "net.pt2")
    program = torch.export.load(tmp_path / "net.pt2").module()
    x = nets.images(7).float() / 255
    assert torch.equal(program(x), network(x))
