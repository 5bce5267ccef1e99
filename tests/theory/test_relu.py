"""Lemmas A.7 and A.8: the same function by ReLU neurons, to the last bit where numbers are whole."""

import math
import re

import pytest
import torch

import linfdist as ld
from linfdist import theory
from linfdist.models import DistNet
from linfdist.theory.relu import neuron_widths

from ..export.nets import SIZES, convolutional, filled, images, plain, with_head


@pytest.mark.parametrize("changes", [{}, {"mean_shift": False}, {"crop": 5}, {"depth": 1}, {"width": 1}])
def test_the_same_logits(changes):
    """In float32 up to the declared error, in float64 up to some roundings; so only rounding is different."""
    network = plain(**changes)
    relu, pixels = theory.to_relu(network), images(50).float() / 255
    apart = (relu(pixels) - network(pixels)).abs().max()
    assert 0 < apart <= relu.error < 1e-4
    wide = plain(**changes).double()
    assert (theory.to_relu(wide)(pixels) - wide(pixels.double())).abs().max() <= theory.to_relu(wide).error < 1e-12


def test_weights_of_few_binary_digits_lose_nothing():
    """Nothing rounds where float64 holds all that occurs: std 1/2, weights and pixels that are multiples of 1/64."""
    network = plain(std=0.5, mean=[0.25, 0.5], mean_shift=False)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_((parameter * 64).round() / 64)
    pixels = (images(50) // 4).float() / 64
    assert torch.equal(theory.to_relu(network)(pixels), network(pixels).double())


@pytest.mark.parametrize("k", [0, 4])
def test_exact_networks_stay_exact(k):
    for changes in ({}, {"crop": 5}, {"depth": 2, "classes": 2}):
        frozen = ld.exact.freeze(plain(**changes), k=k)
        relu = theory.to_relu(frozen)
        assert relu.error == 0
        assert torch.equal(relu(images(100)), frozen(images(100)).double())


def test_width_and_depth():
    """2 d for the distances, then d, d/2 ...: O(d) wide, 1 + ⌈log₂ d⌉ deep, for each neuron."""
    assert neuron_widths(1) == [2]
    assert neuron_widths(5) == [10, 5, 3, 2]
    for inputs in (2, 7, 8, 9, 100):
        assert len(neuron_widths(inputs)) == 1 + math.ceil(math.log2(inputs))
    relu = theory.to_relu(plain())
    assert relu.widths == [o * width for i, o in ((84, 11), (11, 11), (11, 5)) for width in neuron_widths(i)]
    assert relu.depth == 8 + 5 + 5


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (with_head, "Head"),
        (convolutional, "DistConv2d"),
        (lambda: plain(pool=[2]), "clip, pool or several"),
        (lambda: plain(per_class=2), "clip, pool or several"),
        (lambda: plain(clip=[0.2, 0.8]), "clip, pool or several"),
        (lambda: torch.nn.Linear(2, 2), "a Linear has no ReLU form"),
        (lambda: ld.exact.freeze(with_head()), "with a head"),
        (lambda: ld.exact.freeze(plain(pool=[2])), "clip, pool or several"),
        (lambda: ld.exact.freeze(plain(per_class=2)), "clip, pool or several"),
        (lambda: ld.exact.freeze(plain(clip=[0.2, 0.8])), "clip, pool or several"),
        (lambda: "mnist-0.3", "a str has no ReLU form"),
    ],
)
def test_what_has_no_such_form_is_refused(model, message):
    with pytest.raises(TypeError, match=message):
        theory.to_relu(model())


def test_training_mode_and_domains_are_refused():
    with pytest.raises(ValueError, match="training mode"):
        theory.to_relu(plain().train())
    least, most = torch.zeros(2, 6, 7).byte(), torch.full((2, 6, 7), 9).byte()
    with pytest.raises(ValueError, match="some images only"):
        theory.to_relu(ld.exact.freeze(plain(), k=4, domain=(least, most)))
    with pytest.raises(ValueError, match="need images"):
        theory.to_relu(plain())(torch.zeros(3, 2, 6, 6))


@pytest.mark.parametrize("crop", [None, 4])
def test_onnx(tmp_path, crop):
    """Verifiers get Gemm and Relu; an exact network's logits are exact in float32 too."""
    onnxruntime, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    network = filled(DistNet(**{**SIZES, "width": 4, "depth": 2, "identity_init": False, "crop": crop}))
    frozen, x = ld.exact.freeze(network, k=4), images(20)
    theory.relu_to_onnx(theory.to_relu(frozen), tmp_path / "exact.onnx")
    theory.relu_to_onnx(theory.to_relu(network), tmp_path / "float.onnx", torch.float64)
    operators = {node.op_type for node in onnx.load(tmp_path / "exact.onnx").graph.node}
    assert operators == {"Flatten", "Gemm", "Relu"} | ({"Slice"} if crop else set())

    def run(name, pixels):
        session = onnxruntime.InferenceSession(str(tmp_path / name))
        return torch.tensor(session.run(["logits"], {"images": pixels.numpy()})[0])

    assert torch.equal(run("exact.onnx", x.float()), frozen(x).float())
    relu = theory.to_relu(network)
    assert torch.allclose(run("float.onnx", x.double() / 255), relu(x.double() / 255), rtol=0, atol=1e-12)


def test_a_network_that_no_file_can_hold(tmp_path):
    wide = filled(DistNet((1, 28, 28), 10, width=64, depth=2, mean=[0.0], std=1.0))
    with pytest.raises(ValueError, match="bytes of dense matrices"):
        theory.relu_to_onnx(theory.to_relu(wide), tmp_path / "large.onnx")


def test_vnnlib(tmp_path):
    """The ball is outside ours by less than 10⁻¹⁹, and all classes but one are asked for."""
    relu = theory.to_relu(plain())
    image = images(1)[0].float() / 255
    theory.write_vnnlib(relu, tmp_path / "ball.vnnlib", image, "0.3", 2)
    text = (tmp_path / "ball.vnnlib").read_text()
    lower, upper = (
        torch.tensor([float(v) for v in re.findall(rf"\({sign} X_\d+ (\S+?)\)", text)]).double()
        for sign in (">=", "<=")
    )
    pixels = image.flatten().double()
    assert torch.allclose(lower, (pixels - 0.3).clamp(min=0), rtol=0, atol=1e-6)
    assert torch.allclose(upper, (pixels + 0.3).clamp(max=1), rtol=0, atol=1e-6)
    assert re.findall(r"Y_(\d) Y_2", text) == ["0", "1", "3", "4"]
    with pytest.raises(ValueError, match="label = 5"):
        theory.write_vnnlib(relu, tmp_path / "ball.vnnlib", image, "0.3", 5)
    with pytest.raises(ValueError, match="image must have"):
        theory.write_vnnlib(relu, tmp_path / "ball.vnnlib", image + 1, "0.3", 2)
