"""`python -m benchmarks.exact`: every figure is measured, and what is raced computes the same."""

import io

import pytest
import torch
from rich.console import Console

from benchmarks import exact as bench
from linfdist.exact import freeze
from linfdist.models import DistNetMLP

from ..exact.averages import EVERYTHING
from ..exact.nets import random_net


def test_a_race_of_the_same_function(trained):
    unpruned = bench._unpruned(trained.network, trained.frozen)
    assert sum(layer.weight.numel() for layer in unpruned) == trained.frozen.facts["weights"]
    assert torch.equal(bench._dense(unpruned, trained.frozen, trained.images), trained.frozen(trained.images))


def test_a_race_with_a_head():
    network = DistNetMLP((1, 3, 3), 4, 7, 3, [0.2], 0.3, head=5).eval()
    images = torch.randint(0, 256, (11, 1, 3, 3), dtype=torch.uint8)
    frozen = freeze(network)
    torch.testing.assert_close(bench._dense(bench._unpruned(network, frozen), frozen, images), frozen(images))
    assert [speed.target for speed in bench.measure(network, images, turns=2).speeds[:4]] == [None] * 4


def test_a_race_with_averages():
    network = random_net(0, shape=(1, 4, 4), width=30, **EVERYTHING)
    images = torch.randint(0, 256, (11, 1, 4, 4), dtype=torch.uint8)
    frozen = freeze(network)
    assert torch.equal(bench._dense(bench._unpruned(network, frozen), frozen, images), frozen(images).long())
    assert all(speed.milliseconds > 0 for speed in bench.measure(network, images, turns=2).speeds)


def test_gains(trained):
    gains = bench.measure(trained.network, trained.images[:50], turns=2)
    assert gains.images == 50
    assert gains.exact_bytes == pytest.approx(trained.file.stat().st_size, abs=64)  # the facts differ a little
    assert gains.float_bytes == pytest.approx((trained.run / "model.safetensors").stat().st_size, rel=0.1)
    assert gains.kept == trained.frozen.facts["kept"] / trained.frozen.facts["weights"]
    assert [speed.target for speed in gains.speeds] == [None, 1.7, 5.0, None, None, 1.7, None, None]
    for speed in gains.speeds:
        assert speed.milliseconds > 0
        assert (speed.ratio == 1) == (speed.what == speed.over)
        assert speed.over.startswith("float32")


def test_ratios_are_formed_within_a_turn():
    """The machine got slower by 10 after the first turn: 2, 3 and 4 times faster."""
    seconds = {"slow": [2.0, 30.0, 40.0], "fast": [1.0, 10.0, 10.0]}
    speed = bench.gain(seconds, "fast", "slow", 1.7)
    assert (speed.milliseconds, speed.ratio) == (10_000, 3)


def test_the_table_says_it_all(trained):
    console = Console(width=200, file=io.StringIO())
    console.print(bench.terminal(bench.measure(trained.network, trained.images, turns=1), "digits test"))
    text = console.file.getvalue()
    assert f"digits test, {len(trained.images)} images" in text
    for what in ("int16, dense", "int16, pruned", "nothing to prune", "exact, one image", "times smaller than"):
        assert what in text
