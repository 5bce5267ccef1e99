"""ONNX files of integer networks: bit for bit ours, in onnxruntime."""

import pytest
import torch

from linfdist import data
from linfdist.certificates import exact
from linfdist.export import exact_to_onnx
from linfdist.models import DistNet

from . import nets

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from .test_onnx import LEVELS, run, session


def margin_levels(frozen, images):
    return torch.tensor([each.levels for each in exact.certify(frozen, images, "margin")], dtype=torch.int32)


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
@pytest.mark.parametrize("changes", [{}, {"crop": 4, "depth": 1}, {"std": 9.0}], ids=str)
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


def test_the_file_names_the_network(tmp_path):
    frozen = exact.freeze(nets.plain(), 2)
    exact_to_onnx(frozen, tmp_path / "net.onnx")
    assert frozen.sha256 in session(tmp_path / "net.onnx").get_modelmeta().custom_metadata_map["linfdist"]


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
