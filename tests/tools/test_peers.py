"""Networks of CTRAIN become networks of ours that compute the same, and their rows stand in the table."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from tools.peers import PeerRow, folded, tables
from tools.peers_ctrain import Loader, write_network

MEAN, STD = [0.49, 0.48, 0.45], [0.2, 0.25, 0.3]
TASK = {"mean": MEAN, "std": STD, "pad": 2}
ROW = {
    "data": "mnist", "eps": "0.3", "method": "ibp", "network": "small", "settings": {}, "budget": 75.0, "seed": 0,
    "epochs": 2.5, "seconds": 80.0, "cpu_seconds": 74.0, "parameters": 329606, "n": 2000, "clean": 90.0,
    "certified": 70.05, "certified_here": 70.0, "pgd20": 75.0, "strongest": 74.0, "only_there": 1, "only_here": 0,
    "broken": 0, "logits_differ": 1e-6, "certify_ms": 10.0, "certify_ms_here": 2.0,
    "versions": {"CTRAIN": "0.6.1"}, "command": "python -m tools.peers mnist", "machine": "an abacus",
    "date": "2026-11-19",
}  # fmt: skip


class Theirs(nn.Module):
    """A network as CTRAIN defines them: with batch norms, whose means and variances are not those of the start."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, kernel_size=(3, 3), stride=1, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
            nn.Conv2d(4, 5, kernel_size=(4, 4), stride=2), nn.ReLU(inplace=True), nn.Flatten(),
            nn.Linear(5 * 9, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 10),
        )  # fmt: skip
        for layer in self.layers:
            if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
                for value in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
                    nn.init.uniform_(value, 0.5, 2)

    def forward(self, x):
        return self.layers(x)


def batch(count=7):
    return torch.randint(256, (count, 3, 8, 8), dtype=torch.uint8), torch.arange(count)


def test_the_copy_computes_what_the_network_does(tmp_path):
    torch.manual_seed(0)
    network, (images, labels) = Theirs().eval(), batch()
    with torch.no_grad():
        logits = network(Loader(images, labels, TASK, 1).normalise(images))
    write_network(network, logits, tmp_path / "network.npz")
    copy, stored = folded(tmp_path / "network.npz", (3, 8, 8), MEAN, STD)
    assert torch.equal(stored, logits)
    with torch.no_grad():
        assert torch.allclose(copy(images / 255), logits, atol=1e-5)


def test_a_layer_that_is_not_known_is_refused(tmp_path):
    np.savez(tmp_path / "n.npz", layers=np.array(json.dumps([{"kind": "Tanh"}])), logits=np.zeros(3))
    with pytest.raises(ValueError, match="there is a layer Tanh, expected convolutions"):
        folded(tmp_path / "n.npz", (3, 8, 8), MEAN, STD)


def test_rounds_walk_through_all_images_and_crops_are_parts_of_them():
    torch.manual_seed(0)
    images = torch.arange(128)[:, None, None, None].expand(-1, 3, 8, 8).to(torch.uint8)
    loader = Loader(images, torch.arange(128), TASK, 1)
    seen = torch.cat([labels for _ in range(2) for _, labels in loader])
    assert len(loader) == 1
    assert torch.equal(seen.sort().values, torch.arange(128))
    ((x, y),) = Loader(images, torch.arange(128), TASK, 1)
    assert torch.equal(x, loader.normalise(images[y]))  # of one colour, as their crops are


def test_crops_shift_by_at_most_the_padding():
    torch.manual_seed(0)
    images = torch.arange(64, dtype=torch.uint8).reshape(1, 1, 8, 8).expand(256, 3, -1, -1)
    crops = Loader(images, torch.zeros(256), TASK, 1)._augmented(images)
    corners = {(int(crop[0, 0, 0]), int(crop[0, 7, 7])) for crop in crops}
    assert crops.shape == images.shape
    assert {(0, 45), (18, 63)} <= corners  # moved by two pixels both ways, with the edges repeated
    assert len({tuple(crop.flatten().tolist()) for crop in crops}) == 50  # 25 places, mirrored or not


def test_the_table_puts_rows_of_ours_beside_them():
    row = PeerRow.model_validate(ROW)
    other = PeerRow.model_validate(ROW | {"settings": {"lr": 0.001}, "certified_here": 71.0})
    text = tables([row, other], [])
    assert text.startswith("**mnist, ε = 0.3, 1.25m of training**, 2,000 test images; seed 0; CTRAIN 0.6.1; an abacus;")
    assert text.splitlines()[-2:] == [
        "| CTRAIN: IBP, lr = 0.001 | 70.05 | 71.00 | 90.00 | 74.00 | 2.5 | 329,606 |",
        "| CTRAIN: IBP | 70.05 | 70.00 | 90.00 | 74.00 | 2.5 | 329,606 |",
    ]
    assert tables([], []) == ""
