"""`torch.export` programs of whole networks: any batch size, saved and loaded, the same bits."""

import pytest
import torch

from linfdist.export import to_torch_export

from . import nets

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.mark.parametrize("make", [nets.plain, nets.with_head, nets.convolutional])
def test_any_batch_size(tmp_path, make):
    network = make()
    to_torch_export(network, tmp_path / "net.pt2")
    loaded = torch.export.load(tmp_path / "net.pt2")
    assert [path.name for path in tmp_path.iterdir()] == ["net.pt2"]
    with torch.no_grad():
        for count in (1, 2, 40):
            x = nets.images(count).float() / 255
            assert torch.equal(loaded.module()(x), network(x))


def test_a_crop_is_part_of_the_program(tmp_path):
    network = nets.plain(crop=5)
    to_torch_export(network, tmp_path / "net.pt2")
    x = nets.images(3).float() / 255
    with torch.no_grad():
        assert torch.equal(torch.export.load(tmp_path / "net.pt2").module()(x), network(x))


def test_training_mode_is_refused(tmp_path):
    with pytest.raises(ValueError, match="eval"):
        to_torch_export(nets.plain().train(), tmp_path / "net.pt2")
    assert list(tmp_path.iterdir()) == []
