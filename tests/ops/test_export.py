"""torch.export: programs with any batch size, saved and loaded, with gradients."""

import io
import math

import pytest
import torch
from torch.export import Dim, export

from .layers import TwoLayers, gradients, images

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class At(torch.nn.Module):
    """Values and bounds, p fixed."""

    def __init__(self, p: float):
        super().__init__()
        self.net, self.p = TwoLayers(), p

    def forward(self, x):
        return self.net(x, self.p), *self.net.forward_box(x - 0.1, x + 0.1)


@pytest.mark.parametrize("p", [1.0, 8.0, 30.5, math.inf])
def test_any_batch_size(p):
    model = At(p)
    program = export(model, (images(6),), dynamic_shapes={"x": {0: Dim("n")}})
    for n in (1, 6, 40):
        x = images(n)
        for actual, expected in zip(program.module()(x), model(x), strict=True):
            assert torch.equal(actual, expected)


@pytest.mark.parametrize("p", [8.0, math.inf])
def test_saved_and_loaded(p):
    model, file = At(p), io.BytesIO()
    torch.export.save(export(model, (images(),)), file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    x = images()
    for actual, expected in zip(loaded(x), model(x), strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("p", [8.0, math.inf])
@pytest.mark.parametrize("grad", [True, False], ids=["with gradients", "without gradients"])
def test_an_exported_program_can_be_trained(p, grad):
    """Also one that was exported under no_grad: its bare operators know their gradients."""
    model, x = At(p), images()
    with torch.set_grad_enabled(grad):
        exported = export(model, (x,)).module()
    names = [name for name, _ in model.named_parameters()]
    for k in range(3):
        actual = dict(
            zip([n for n, _ in exported.named_parameters()], gradients(exported, exported(x)[k]), strict=True)
        )
        for name, right in zip(names, gradients(model, model(x)[k]), strict=True):
            assert torch.equal(actual[name], right)


def test_p_as_an_input():
    model, x = TwoLayers(), images()
    exported = export(model, (x, torch.tensor(8.0))).module()
    for p in (8.0, 20.0, math.inf):
        assert torch.equal(exported(x, torch.tensor(p)), model(x, p))


def test_decompositions():
    program = export(At(math.inf), (images(),)).run_decompositions()
    names = {str(node.target) for node in program.graph.nodes}
    assert any(name.startswith("linfdist.") for name in names)
