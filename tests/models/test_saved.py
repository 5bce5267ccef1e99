"""A network from a file is the certified one: eval mode, p = inf, the same bits."""

import torch

from linfdist.models import DistNetMLP, load, save


def test_round_trip_through_a_file(tmp_path):
    net = DistNetMLP((1, 4, 4), 3, 20, 2, [0.5], 0.3, head=6)
    for _ in range(3):
        net(torch.rand(8, 1, 4, 4), 8.0)
    save(net, tmp_path / "model.safetensors", {})
    again = load(tmp_path)
    assert net.training
    assert not any(module.training for module in again.modules())
    x = torch.rand(8, 1, 4, 4)
    assert torch.equal(again(x), net.eval()(x))
    assert again.lipschitz == net.lipschitz
    assert again.config == net.config
