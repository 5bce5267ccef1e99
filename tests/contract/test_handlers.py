"""Functions by exact class: what is registered is called, what is not is refused by name."""

import math
import re

import pytest
import torch

import linfdist as ld
from linfdist.bounds import pull_back
from linfdist.nn import CenterCrop, Flatten, Handlers, MeanShift, Stack

from ..ops.processes import ROOT
from .foreign import group_net


class Renamed(Flatten):
    """Inherits all of its declarations."""


def test_a_function_speaks_for_the_exact_class():
    shapes = Handlers("here.shapes", "has no shape")

    @shapes.register(Flatten, CenterCrop)
    def _(layer, x):
        return layer(x).shape

    assert shapes(Flatten(), torch.zeros(2, 3, 4, 4)) == (2, 48)
    assert shapes(CenterCrop(2), torch.zeros(2, 3, 4, 4)) == (2, 3, 2, 2)
    assert Flatten() in shapes
    assert Renamed() not in shapes
    with pytest.raises(TypeError, match=r"a MeanShift has no shape; for a class of your own, here.shapes.register"):
        shapes(MeanShift(3), torch.zeros(2, 3))
    with pytest.raises(TypeError, match=r"a Renamed has no shape \(it inherits from Flatten, but may compute"):
        shapes(Renamed(), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"here.shapes has a function for Flatten already"):
        shapes.register(Flatten)


def test_a_default_is_for_all_other_classes():
    names = Handlers("here.names", "has no name", lambda layer: "other")
    names.register(Flatten)(lambda layer: "flat")
    assert (names(Flatten()), names(Renamed()), names(Stack())) == ("flat", "other", "other")


def test_a_foreign_layer_gets_its_bounds_by_registering_them():
    net = group_net(0)
    for method in ("crown", "zonotope"):
        with pytest.raises(TypeError, match=r"linfdist.bounds.\w+.register"):
            ld.certify(net, torch.rand(2, 1, 5, 5), "0.1", method=method)
    assert not any(layer in pull_back for layer in list(net.body)[2:])


def test_margins_without_a_lipschitz_constant_are_registered():
    """The default margins take the error off logits; without a constant it speaks of features."""

    class Steep(ld.nn.Readout):
        classes = 2
        lipschitz = None

        def forward(self, x, p=math.inf):
            return x

        def forward_box(self, box):
            return box

    with pytest.raises(TypeError, match="Steep has no bounds of its logits that hold without a Lipschitz constant"):
        ld.bounds.margins(Steep())


def test_contributors_find_every_registry_in_the_table():
    registries = re.compile(r'Handlers\(\s*"linfdist\.([\w.]+)"')
    found = {name for file in (ROOT / "src").rglob("*.py") for name in registries.findall(file.read_text("utf-8"))}
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("Registries by class: ")[1].split("\n\n")[1]
    first_cells = " ".join(line.split(" | ")[0] for line in table.splitlines())
    assert set(re.findall(r"`([\w.]+)`", first_cells)) == found
