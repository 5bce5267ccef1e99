"""ONNX files of integer networks: bit for bit ours, in onnxruntime."""

from dataclasses import replace

import pytest
import torch

from linfdist import data, exact
from linfdist.export import exact_to_onnx
from linfdist.models import DistNet

from . import nets

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from .test_onnx import LEVELS, run, session

STAGES = {"per_class": 3, "pool": [1, 3, 2], "clip": [0.2, 0.9], "crop": 4}


def margin_levels(frozen, images):
    return torch.tensor([each.levels for each in exact.certificates(frozen, images, "margin")], dtype=torch.int32)


def prototypes(images, width=40):
    """A network whose first neurons are training images, so that logits of images differ in earnest."""
    torch.manual_seed(0)
    net = DistNet(tuple(images.shape[1:]), 10, width, 3, [0.3], 0.4, identity_init=False).eval()
    with torch.no_grad():
        first = next(layer for layer in net.body if hasattr(layer, "in_features"))
        first.weight.copy_((images[:width].flatten(1).float() / 255 - 0.3) / 0.4)
    return net


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    pytest.importorskip("sklearn", reason="scikit-learn brings the digits")
    folder = tmp_path_factory.mktemp("data")
    data.fetch("digits", folder)
    return torch.cat([data.load("digits", split=split, data_dir=folder).images for split in ("train", "test")])


def test_all_digits(tmp_path, digits):
    frozen = exact.freeze(prototypes(digits))
    exact_to_onnx(frozen, tmp_path / "net.onnx")
    logits, levels = run(tmp_path / "net.onnx", digits)
    assert logits.dtype == levels.dtype == torch.int32
    assert torch.equal(logits, frozen(digits))
    assert torch.equal(levels, margin_levels(frozen, digits))
    assert (levels > 0).any()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("k", [0, 3, 7])
@pytest.mark.parametrize("changes", [{}, {"crop": 4, "depth": 1}, {"std": 9.0}, STAGES], ids=str)
def test_random_networks(tmp_path, changes, k, level):
    """At k = 7 and with large weights some layers need int32."""
    frozen = exact.freeze(nets.plain(**changes), k)
    images = torch.cat([nets.images(20), (nets.images(20) > 127).to(torch.uint8) * 255])
    exact_to_onnx(frozen, tmp_path / "net.onnx", chunk=100)
    for part in (images, images[:1]):
        logits, levels = run(tmp_path / "net.onnx", part, level)
        assert torch.equal(logits, frozen(part))
        assert torch.equal(levels, margin_levels(frozen, part))


def test_images_outside_the_domain_are_marked(tmp_path):
    lower, upper = torch.full(nets.SHAPE, 10, dtype=torch.uint8), torch.full(nets.SHAPE, 200, dtype=torch.uint8)
    frozen = exact.freeze(nets.plain(), 3, (lower, upper))
    exact_to_onnx(frozen, tmp_path / "net.onnx")
    images = nets.images(4).clamp(10, 200)
    images[1, 1, 5, 6], images[2, 0, 0, 0] = 201, 9
    inside = images[[0, 3]]
    logits, levels = run(tmp_path / "net.onnx", images)
    assert levels[1:3].tolist() == [-1, -1]
    assert torch.equal(levels[[0, 3]], margin_levels(frozen, inside))
    assert torch.equal(logits[[0, 3]], frozen(inside))


@pytest.mark.parametrize("network", [nets.plain, nets.with_head])
def test_the_file_names_the_network(tmp_path, network):
    frozen = exact.freeze(network(), 2)
    exact_to_onnx(frozen, tmp_path / "net.onnx")
    assert frozen.sha256 in session(tmp_path / "net.onnx").get_modelmeta().custom_metadata_map["linfdist"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("k", [0, 3, 7])
@pytest.mark.parametrize("changes", [{}, {"crop": 4, "depth": 1}, {"std": 9.0}, {"head": 1}], ids=str)
def test_heads(tmp_path, changes, k, level):
    """Features bit for bit, logits within the bound of two executions, which is small."""
    frozen = exact.freeze(nets.with_head(**changes), k)
    images = torch.cat([nets.images(20), (nets.images(20) > 127).to(torch.uint8) * 255])
    exact_to_onnx(frozen, tmp_path / "net.onnx", chunk=100)
    for part in (images, images[:1]):
        logits, features = run(tmp_path / "net.onnx", part, level)
        assert (logits.dtype, features.dtype) == (torch.float64, torch.int32)
        assert torch.equal(features, frozen.features(part))
        error = 2 * frozen.head.error(features)
        assert ((logits - frozen(part)).abs() <= error).all()
        assert error.max() < 1e-9


@pytest.mark.parametrize("level", LEVELS)
def test_a_tiny_bias_is_not_left_out(tmp_path, level):
    """It is 0 as a float32, and decides: an optimiser that drops its addition would make a tie of it."""
    frozen = exact.freeze(nets.with_head(head=1, classes=2), 3)
    nothing = torch.zeros_like(frozen.head.w1)
    sides = torch.tensor([[1e60], [-1e60]], dtype=torch.float64)
    head = exact.FrozenHead(nothing, frozen.head.b1 * 0 + 1e-60, sides, frozen.head.b2 * 0)
    exact_to_onnx(replace(frozen, head=head), tmp_path / "net.onnx")
    logits, _ = run(tmp_path / "net.onnx", nets.images(3), level)
    torch.testing.assert_close(logits, torch.tensor([[1.0, -1.0]], dtype=torch.float64).expand(3, 2))


def test_heads_know_nothing_of_images_outside_the_domain(tmp_path):
    lower, upper = torch.full(nets.SHAPE, 10, dtype=torch.uint8), torch.full(nets.SHAPE, 200, dtype=torch.uint8)
    frozen = exact.freeze(nets.with_head(), 3, (lower, upper))
    exact_to_onnx(frozen, tmp_path / "net.onnx")
    images = nets.images(4).clamp(10, 200)
    images[1, 1, 5, 6], images[2, 0, 0, 0] = 201, 9
    logits, features = run(tmp_path / "net.onnx", images)
    assert logits.isnan().all(1).tolist() == [False, True, True, False]
    assert torch.equal(features[[0, 3]], frozen.features(images[[0, 3]]))
    assert (logits[[0, 3]] - frozen(images[[0, 3]])).abs().max() < 1e-9


@pytest.mark.slow
def test_all_mnist_test_images(tmp_path):
    try:
        images = data.load("mnist", split="test").images
    except data.DataError as error:
        pytest.skip(str(error))
    frozen = exact.freeze(prototypes(images, width=64))
    exact_to_onnx(frozen, tmp_path / "net.onnx")
    for part in images.split(500):
        logits, levels = run(tmp_path / "net.onnx", part)
        assert torch.equal(logits, frozen(part))
        assert torch.equal(levels, margin_levels(frozen, part))
