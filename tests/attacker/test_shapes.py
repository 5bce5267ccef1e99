"""Every tensor of every layer has the shape that its class gave it, or nothing is certified and nothing exported.

A mean along the batch gave the same image another class in another order of the batch, with a certificate for both.
"""

import copy

import pytest
import torch
from torch import nn

import linfdist as ld
from linfdist import baselines
from linfdist.exact import freeze
from linfdist.models import ConvDistNet, ConvDistNetMLP, DistNet, DistNetMLP, Mean

SHAPE = (1, 4, 4)
NETWORKS = {
    "plain": lambda: DistNet(SHAPE, 3, 5, 2, [0.3], 0.31, per_class=2, pool=[1, 2], clip=[0.1, 0.9]),
    "head": lambda: DistNetMLP(SHAPE, 3, 5, 2, [0.3], 0.31, head=4),
    "plain convolutional": lambda: ConvDistNet(SHAPE, 3, 3, 4, [0.3], 0.31, dense=4),
    "convolutional": lambda: ConvDistNetMLP(SHAPE, 3, 3, 4, [0.3], 0.31, head=4),
    "mean": lambda: Mean([DistNet(SHAPE, 3, 5, 2, [0.3], 0.31)], views=("same", "mirror")),
    "ReLU": lambda: baselines.ReLUNet(SHAPE, 3, [0.3], 0.31, convolutions=[[2, 2, 1, 0]], hidden=[5]),
    "sorted": lambda: baselines.GroupSortNet(SHAPE, 3, [0.3], 0.31, hidden=[6]),
    "sorted sums": lambda: baselines.SortNet(SHAPE, 3, [0.3], 0.31, hidden=[5, 5]),
    "adder": lambda: baselines.AdderNet(SHAPE, 3, [0.3], 0.31, hidden=[5]),
}
X = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(0))


def names(network):
    return [name for name, _ in (*network.named_parameters(), *network.named_buffers())]


def place(network, name):
    owner, _, own = name.rpartition(".")
    return network.get_submodule(owner), own


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_tensor_with_one_more_dimension_anywhere(kind):
    for name in names(NETWORKS[kind]()):
        network = NETWORKS[kind]().eval()
        owner, own = place(network, name)
        tensor = getattr(owner, own)
        wrong = torch.stack([tensor.detach()] * len(X))  # one for each image of the batch
        setattr(owner, own, nn.Parameter(wrong) if isinstance(tensor, nn.Parameter) else wrong)
        with pytest.raises(ValueError, match=rf"{own} has shape .*, but had shape .* when the layer was made"):
            ld.certify(network, X, None)
        with pytest.raises(ValueError, match="when the layer was made"):
            ld.Certifier(copy.deepcopy(network))


def test_a_mean_along_the_batch_is_not_exported(tmp_path):
    from linfdist.export import to_onnx

    network = NETWORKS["plain"]().eval()
    first = next(module for module in network.modules() if isinstance(module, ld.nn.Normalize))
    first.mean = torch.zeros(2, 1, 1, 1)
    for make in (lambda: freeze(network), lambda: to_onnx(network, tmp_path / "model.onnx")):
        with pytest.raises(ValueError, match=r"mean has shape \(2, 1, 1, 1\), but had shape \(1, 1, 1\) when"):
            make()
    assert list(tmp_path.iterdir()) == []


def test_a_tensor_that_was_not_there():
    network = NETWORKS["plain"]().eval()
    layer = next(module for module in network.modules() if isinstance(module, ld.nn.DistLinear))
    layer.bias = nn.Parameter(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"bias has shape \(2, 5\), but was not there when the layer was made"):
        ld.certify(network, X, None)


@pytest.mark.parametrize("kind", NETWORKS)
def test_other_values_copies_and_precisions_are_fine(kind, tmp_path):
    network = NETWORKS[kind]().eval()
    expected = ld.certify(network, X, None).radius
    owner, own = place(network, names(network)[0])
    tensor = getattr(owner, own).detach().clone()
    setattr(owner, own, nn.Parameter(tensor) if own in owner._parameters else tensor)
    ld.models.save(network, tmp_path / "network.safetensors")
    for same in (network, copy.deepcopy(network), ld.load(tmp_path / "network.safetensors")):
        assert torch.equal(ld.certify(same, X, None).radius, expected)
    ld.certify(network.double(), X.double(), None)
