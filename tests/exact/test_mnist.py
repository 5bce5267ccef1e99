"""The figures that the documentation states, on MNIST itself."""

from fractions import Fraction

import pytest
import torch

from linfdist import data, exact, models, recipes
from linfdist.exact.freeze import compare, to_grid
from linfdist.exact.stem import Stem
from linfdist.training import train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_mnist(tmp_path):
    """Accuracy within 0.1 points, most weights pruned, 8 times smaller, and the same bits on all 10,000 images."""
    try:
        test = data.load("mnist", split="test")
    except data.DataError as error:
        pytest.skip(f"MNIST cannot be had: {error}")
    torch.set_num_threads(2)
    short = ["e1=0.4", "e2=3", "e3=0.6", "e4=0", "box_lr=none", "box_threshold=none", "box_clip=none"]  # a minute
    recipe = recipes.override(recipes.load("mnist-quick"), ["width=128", "per_class=1", *short])
    train(recipe, tmp_path / "run", quiet=True)
    network = models.load(tmp_path / "run")
    frozen = exact.freeze(network)
    assert all(layer.weight.dtype == torch.int16 for layer in frozen.layers)
    result = compare(network, frozen, test.images, test.labels, Fraction(3, 10))
    assert abs(result.clean[0] - result.clean[1]) <= 10  # 0.1 points
    assert abs(result.certified[0] - result.certified[1]) <= 10
    assert frozen.facts["kept"] < 0.2 * frozen.facts["weights"]
    exact.save(frozen, tmp_path / "frozen")
    size = (tmp_path / "run" / "model.safetensors").stat().st_size
    assert size >= 8 * (tmp_path / "frozen").stat().st_size

    again = exact.load(tmp_path / "frozen")
    layers = [(w.double(), b.double()) for w, b in to_grid(network, frozen.stem)[0]]  # whole numbers, exactly
    for x in test.images.split(500):
        y = Stem(frozen.k)(x).double()
        for weight, bias in layers:
            y = torch.cdist(y, weight, p=torch.inf) + bias
        assert torch.equal(again(x).double(), -y)
