"""Crops and flips, against a loop over images."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from linfdist.data import Augment, augment


def one_by_one(images: Tensor, recipe: Augment, generator: torch.Generator) -> Tensor:
    """The same draws in the same order, then every image by hand."""
    batch, channels, height, width = images.shape
    rows, columns = recipe.crop or height, recipe.crop or width
    tops = torch.randint(height + 2 * recipe.pad - rows + 1, (batch,), generator=generator).tolist()
    lefts = torch.randint(width + 2 * recipe.pad - columns + 1, (batch,), generator=generator).tolist()
    flips = torch.randint(2, (batch,), generator=generator).tolist() if recipe.flip else [0] * batch
    if recipe.pad_share < 1:
        for b, moved in enumerate((torch.rand(batch, generator=generator) < recipe.pad_share).tolist()):
            if not moved:
                tops[b] = (height + 2 * recipe.pad - rows) // 2
                lefts[b] = (width + 2 * recipe.pad - columns) // 2
    result = torch.empty(batch, channels, rows, columns, dtype=torch.uint8)
    for b in range(batch):
        for y in range(rows):
            for x in range(columns):
                row, column = tops[b] + y - recipe.pad, lefts[b] + x - recipe.pad
                inside = 0 <= row < height and 0 <= column < width
                nearest = images[b, :, min(max(row, 0), height - 1), min(max(column, 0), width - 1)]
                pixel = nearest if inside or recipe.pad_mode == "edge" else torch.zeros_like(nearest)
                result[b, :, y, columns - 1 - x if flips[b] else x] = pixel
    return result


def pictures(*shape: int) -> Tensor:
    return torch.randint(1, 256, shape, dtype=torch.uint8)


@given(
    shape=st.tuples(st.integers(1, 5), st.sampled_from([1, 3]), st.integers(3, 7), st.integers(3, 7)),
    pad=st.integers(0, 3),
    pad_mode=st.sampled_from(["zero", "edge"]),
    flip=st.booleans(),
    crop=st.sampled_from([None, 1, 3]),
    share=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_equals_a_loop_over_images(shape, pad, pad_mode, flip, crop, share):
    images = pictures(*shape)
    recipe = Augment(pad=pad, pad_mode=pad_mode, flip=flip, crop=crop, pad_share=share)
    result = augment(images, recipe, torch.Generator().manual_seed(3))
    assert torch.equal(result, one_by_one(images, recipe, torch.Generator().manual_seed(3)))


@pytest.mark.parametrize(
    ("shape", "recipe", "expected"),
    [
        ((7, 1, 28, 28), Augment(pad=1), (7, 1, 28, 28)),
        ((7, 3, 32, 32), Augment(pad=4, flip=True), (7, 3, 32, 32)),
        ((7, 3, 32, 32), Augment(pad=3, pad_mode="edge", flip=True), (7, 3, 32, 32)),
        ((7, 3, 64, 64), Augment(crop=56, flip=True), (7, 3, 56, 56)),
    ],
    ids=["mnist", "cifar10", "cifar10-edge", "tinyimagenet"],
)
def test_the_recipes_of_the_paper(shape, recipe, expected):
    images = pictures(*shape)
    result = augment(images, recipe, torch.Generator().manual_seed(1))
    assert result.shape == expected
    assert result.dtype == torch.uint8
    assert result.is_contiguous()
    assert torch.equal(result, one_by_one(images, recipe, torch.Generator().manual_seed(1)))


def test_the_generator_alone_decides():
    images, recipe = pictures(31, 3, 32, 32), Augment(pad=4, flip=True)
    generator = torch.Generator().manual_seed(5)
    first, second = augment(images, recipe, generator), augment(images, recipe, generator)
    assert not torch.equal(first, second)
    generator.manual_seed(5)
    torch.manual_seed(99)
    torch.set_num_threads(2)
    assert torch.equal(first, augment(images, recipe, generator))
    assert torch.equal(second, augment(images, recipe, generator))


def test_the_images_are_left_as_they_were():
    images = pictures(11, 3, 8, 8)
    before = images.clone()
    augment(images, Augment(pad=2, flip=True), torch.Generator()).zero_()
    assert torch.equal(images, before)


def test_every_place_and_both_sides_occur_equally_often():
    image = torch.arange(1, 10, dtype=torch.uint8).view(1, 1, 3, 3)
    results = augment(image.expand(18000, 1, 3, 3), Augment(pad=1, flip=True), torch.Generator().manual_seed(0))
    _, counts = results.flatten(1).unique(dim=0, return_counts=True)
    assert len(counts) == 18  # 3 × 3 places, mirrored or not
    assert counts.min() > 850
    assert counts.max() < 1150


def test_nothing_to_do_draws_nothing():
    images, generator = pictures(2, 1, 5, 5), torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert torch.equal(augment(images, Augment(), generator), images)
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("bad", [{"pad": -1}, {"pad_mode": "mirror"}, {"crop": 0}])
def test_impossible_recipes(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Augment(**bad)


def test_impossible_images():
    with pytest.raises(ValueError, match="uint8"):
        augment(torch.zeros(1, 1, 4, 4, dtype=torch.int64), Augment(pad=1), torch.Generator())
    with pytest.raises(ValueError, match="cannot crop 9"):
        augment(pictures(1, 1, 4, 4), Augment(pad=2, crop=9), torch.Generator())


@pytest.mark.parametrize("pad_mode", ["zero", "edge"])
def test_floats_are_treated_like_bytes(pad_mode):
    images, recipe = pictures(5, 3, 6, 7), Augment(pad=2, pad_mode=pad_mode, flip=True)
    expected = augment(images, recipe, torch.Generator().manual_seed(3))
    found = augment(images.float(), recipe, torch.Generator().manual_seed(3))
    assert found.dtype == torch.float32
    assert torch.equal(found, expected.float())
