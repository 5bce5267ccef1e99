"""Integer layers: the definition's integers, and the engine's on a network of the zoo."""

import pytest
import torch

import linfdist as ld
from linfdist import exact
from linfdist.ops import exact as ops

from ..ops.test_exact import TYPES, bad, definition, entries, problem, some

SHAPES = [(1, 1, 1), (7, 67, 5), (9, 11, 70)]  # images, inputs, neurons


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dense(shape, dtype):
    x, w, b = problem(*shape, dtype)
    assert torch.equal(ops.dense(x, w, b), definition(x, w, b))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_side_each(shape, dtype):
    x, w, b = problem(*shape, dtype, size=torch.iinfo(dtype).max // 4)
    mask = some(*w.shape)
    sides = ops.one_sided(*entries(w, mask), x.long().amin(1), x.long().amax(1))
    assert torch.equal(ops.sided(x, *sides, b), definition(x, w, b, mask))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_edges_of_the_type(dtype):
    """|x - w| at the largest number, outputs at both ends, and a bias that alone would not fit int16."""
    top = torch.iinfo(dtype).max
    x, w = torch.zeros(3, 2, dtype=dtype), torch.zeros(3, 3, dtype=dtype)
    x[2], w[:, 1] = top, -1
    b = torch.tensor([0, -top, -top - 9000 if dtype == torch.int16 else -top])
    expected = (top + b)[:, None].expand(3, 2).to(dtype)
    assert torch.equal(ops.dense(x, w, b.int()), expected)
    high = torch.tensor([top, top - 1, top])
    sides = ops.one_sided(*entries(w, torch.ones(3, 3, dtype=torch.bool)), torch.zeros(3), high)
    assert torch.equal(ops.sided(x, *sides, b.int()), expected)


def test_nothing_and_neurons_without_entries():
    x, w, b = problem(0, 3, 4, torch.int16)
    assert ops.dense(x, w, b).shape == (4, 0)
    assert ops.sided(**bad(b=torch.tensor([3, 4, 5], dtype=torch.int32)))[2].tolist() == [5, 5]
    with pytest.raises(ValueError, match="inputs must lie in"):
        ops.sided(**bad(inputs=torch.tensor([0, 3], dtype=torch.int32)))


def test_a_network_of_bytes():
    """max(0, x - w, w - x) in 0 ... 255: two neurons, of which the first has two runs."""
    sides = ops.Sides(
        torch.tensor([0, 1, 0], dtype=torch.int32), torch.tensor([0, 2, 3, 4]), torch.tensor([1, 2, 4]),
        torch.tensor([0, 1, 2, 1], dtype=torch.int32), torch.tensor([5, 9, 250, 30], dtype=torch.uint8),
    )  # fmt: skip
    chain = ops.chain(3, [(sides, torch.zeros(2, dtype=torch.int32))])
    images = torch.tensor([[255, 0, 0], [0, 255, 255], [5, 9, 250]], dtype=torch.uint8)
    assert ops.network(images, 0, chain).tolist() == [[-250, -250], [-225, 0], [0, 0]]


@pytest.mark.parametrize("k", [3, pytest.param(0, marks=pytest.mark.slow)], ids=["int16", "bytes"])
def test_a_network_of_the_zoo(monkeypatch, k):
    frozen = exact.freeze(ld.load("mnist-0.3"), k=k)
    images = torch.randint(256, (3, *frozen.shape), dtype=torch.uint8)
    ours = frozen(images)
    assert frozen.in_bytes == (k == 0)
    monkeypatch.delenv("LINFDIST_BACKEND")
    assert torch.equal(ours, frozen(images))
