"""ONNX files of float networks, run by onnxruntime: the same bits, and no radius above ours."""

import sys

import pytest
import torch
from torch import nn

import linfdist as ld
from linfdist.export import to_onnx
from linfdist.models import DistNet

from ..certificates.nets import margin
from . import nets

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

LEVELS = {
    "optimised": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "as written": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
PLAIN = {
    "plain": {},
    "one layer": {"depth": 1},
    "biases": {"mean_shift": False},
    "cropped": {"crop": 5},
    "std above 1": {"std": 1.7},
}


def session(path, level="optimised"):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(path, x, level="optimised"):
    return [torch.from_numpy(each) for each in session(path, level).run(None, {"images": x.numpy()})]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", PLAIN)
def test_logits_have_the_same_bits(tmp_path, kind, level):
    network = nets.plain(**PLAIN[kind])
    to_onnx(network, tmp_path / "net.onnx")
    for count in (1, 2, 33):
        x = nets.images(count).float() / 255
        logits, radius = run(tmp_path / "net.onnx", x, level)
        assert torch.equal(logits, network(x))
        assert radius.shape == (count,)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("std", [0.31, 0.5, 1.0, 2.0, 1.9999999], ids=str)
def test_no_radius_is_above_ours(tmp_path, std, level):
    """At std = 2 the factor 1/2L is 1 up to its rounding down, which an optimiser must not take for 1."""
    network = nets.plain(std=std)
    x = nets.images(200).float() / 255
    with torch.no_grad():
        network.last.bias += 1000  # a large error E: some images have no radius
    for _ in range(2):
        to_onnx(network, tmp_path / "net.onnx")
        _, radius = run(tmp_path / "net.onnx", x, level)
        ours = margin(network, x).radius
        assert (radius <= ours).all()
        assert torch.allclose(radius, ours, rtol=1e-5, atol=1e-15)
        assert (radius > 0).any()
        with torch.no_grad():
            network.last.bias -= 1000


def test_the_radius_is_that_of_certify(tmp_path):
    network = nets.plain()
    x = nets.images(50).float() / 255
    to_onnx(network, tmp_path / "net.onnx")
    _, radius = run(tmp_path / "net.onnx", x)
    ours = ld.certify(network, x, None, method="margin").radius
    assert (radius <= ours).all()
    assert torch.allclose(radius, ours, rtol=1e-12, atol=0)


def test_ties_prove_nothing(tmp_path):
    network = nets.plain()
    with torch.no_grad():
        network.last.weight[:] = network.last.weight[:1]
        network.last.bias[:] = 0
    to_onnx(network, tmp_path / "net.onnx")
    _, radius = run(tmp_path / "net.onnx", nets.images(5).float() / 255)
    assert (radius == 0).all()


@pytest.mark.parametrize("pixel", [-1e-30, 1.0000001, float("nan"), float("inf")])
def test_images_outside_the_cube_prove_nothing(tmp_path, pixel):
    network = nets.plain()
    x = nets.images(3).float() / 255
    x[1, 1, 5, 6] = pixel
    to_onnx(network, tmp_path / "net.onnx")
    _, radius = run(tmp_path / "net.onnx", x)
    assert radius[1] == 0
    assert radius[0] > 0
    assert radius[2] > 0


def test_possible_overflow_proves_nothing(tmp_path):
    network = nets.plain()
    with torch.no_grad():
        network.last.weight[0, 0] = 3e38
    to_onnx(network, tmp_path / "net.onnx")
    _, radius = run(tmp_path / "net.onnx", nets.images(3).float() / 255)
    assert (radius == 0).all()


@pytest.mark.parametrize("make", [nets.with_head, nets.convolutional], ids=["mlp", "convolutional"])
@pytest.mark.parametrize("changes", [{}, {"crop": 5, "mean_shift": False}], ids=["plain", "cropped"])
def test_networks_with_a_head_have_logits_only(tmp_path, make, changes):
    network = make(**changes)
    to_onnx(network, tmp_path / "net.onnx", chunk=500)
    x = nets.images(9).float() / 255
    (logits,) = run(tmp_path / "net.onnx", x)
    with torch.no_grad():
        torch.testing.assert_close(logits, network(x))


def test_chunks_change_no_bit_and_bound_the_memory(tmp_path):
    """All values in between have at most `chunk` elements an image, or those of one neuron."""
    network = nets.plain(width=23)
    x = nets.images(4).float() / 255
    for chunk, largest in ((1, 84), (200, 200), (1000, 1000)):
        to_onnx(network, tmp_path / "net.onnx", chunk)
        model = onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "net.onnx"))
        sizes = [[dim.dim_value for dim in value.type.tensor_type.shape.dim[1:]] for value in model.graph.value_info]
        assert max(torch.Size(size).numel() for size in sizes) <= largest
        assert torch.equal(run(tmp_path / "net.onnx", x)[0], network(x))


def test_the_file_says_what_it_is(tmp_path):
    to_onnx(nets.plain(), tmp_path / "net.onnx")
    described = session(tmp_path / "net.onnx")
    assert [each.name for each in described.get_outputs()] == ["logits", "radius"]
    assert described.get_inputs()[0].shape == ["batch", *nets.SHAPE]
    assert '"DistNet"' in described.get_modelmeta().custom_metadata_map["linfdist"]


def test_networks_that_cannot_be_written_are_refused(tmp_path):
    class Other(DistNet):
        pass

    path = tmp_path / "net.onnx"
    with pytest.raises(TypeError, match="Other"):
        to_onnx(Other(**nets.SIZES).eval(), path)
    with pytest.raises(ValueError, match="eval"):
        to_onnx(nets.plain().train(), path)
    with pytest.raises(TypeError, match="only float32"):
        to_onnx(nets.plain().double(), path)
    hooked = nets.plain()
    hooked.last.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="hooks"):
        to_onnx(hooked, path)
    broken = nets.plain()
    nn.init.constant_(broken.last.bias, float("nan"))
    with pytest.raises(ValueError, match="not finite"):
        to_onnx(broken, path)
    assert list(tmp_path.iterdir()) == []


def test_without_onnx_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install onnx"):
        to_onnx(nets.plain(), tmp_path / "net.onnx")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net.onnx"
    to_onnx(nets.plain(), path)
    before = path.read_bytes()

    def refuse(*_, **__):
        raise onnx.checker.ValidationError("refused")

    monkeypatch.setattr(onnx.checker, "check_model", refuse)
    with pytest.raises(onnx.checker.ValidationError):
        to_onnx(nets.plain(std=0.5), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
