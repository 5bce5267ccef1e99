"""Turns, stretches and slides, against what they do to pictures whose result is known."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linfdist import recipes
from linfdist.data.augmentation import Warp
from linfdist.training.batches import WARPS, Batches, _generator
from linfdist.training.distributed import Workers

ALL = {"turn": 20, "stretch": 0.2, "slide": 1.5, "warp_share": 0.5}


def drawn(turn=0.0, wide=0.0, high=0.0, right=0.0, down=0.0, images=1):
    return torch.tensor([[1.0, turn, wide, high, right, down]]).expand(images, 6)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_slide_by_whole_pixels_moves_the_picture_and_repeats_its_border():
    image = torch.rand(1, 3, 5, 8, generator=generator())
    moved = Warp(slide=2.0).apply(image, drawn(right=1.0, down=-0.5))
    rows, columns = (torch.arange(5) - 1).clamp(min=0), (torch.arange(8) + 2).clamp(max=7)
    torch.testing.assert_close(moved, image[:, :, rows][..., columns], atol=1e-5, rtol=0)


def test_a_quarter_turn_of_a_square():
    image = torch.rand(1, 2, 6, 6, generator=generator())
    there, back = (Warp(turn=90.0).apply(image, drawn(turn=way)) for way in (1.0, -1.0))
    torch.testing.assert_close(there, image.rot90(1, (2, 3)), atol=1e-5, rtol=0)
    torch.testing.assert_close(back, image.rot90(-1, (2, 3)), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("height", "width"), [(9, 9), (9, 31), (31, 9)])
def test_a_turn_keeps_the_shape_of_a_disc(height, width):
    """In images that are not square, too: sides from -1 to 1 must not turn it into an ellipse."""
    row, column = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    distance = torch.hypot(row - (height - 1) / 2, column - (width - 1) / 2)
    disc = (1 - distance / 4).clamp(min=0)[None, None]
    turned = Warp(turn=50.0).apply(disc, drawn(turn=0.7))
    torch.testing.assert_close(turned, disc, atol=0.1, rtol=0)  # what interpolation takes off the tip


def test_a_stretch_is_by_its_factor_along_its_own_side():
    ramp = torch.linspace(0.4, 0.6, 21).expand(1, 1, 21, 21)
    wide = Warp(stretch=0.25).apply(ramp, drawn(wide=1.0))
    torch.testing.assert_close(wide[..., 5:16], 0.5 + 1.25 * (ramp[..., 5:16] - 0.5), atol=1e-5, rtol=0)
    narrow = Warp(stretch=0.25).apply(ramp, drawn(wide=-1.0))
    torch.testing.assert_close(narrow, 0.5 + (ramp - 0.5) / 1.25, atol=1e-5, rtol=0)
    torch.testing.assert_close(Warp(stretch=0.25).apply(ramp, drawn(high=1.0)), ramp, atol=1e-6, rtol=0)


@given(
    share=st.floats(0, 1),
    turn=st.floats(0, 180),
    stretch=st.floats(0, 1),
    slide=st.floats(0, 50),
    seed=st.integers(0, 99),
)
def test_results_are_images_and_the_others_stay_bit_for_bit(share, turn, stretch, slide, seed):
    images, warp = torch.rand(7, 3, 5, 6, generator=generator(seed)), Warp(turn, stretch, slide, share)
    before, numbers = images.clone(), warp.draw(7, generator(seed))
    result = warp.apply(images, numbers)
    assert result.shape == images.shape
    assert (result >= 0).all()
    assert (result <= 1).all()
    assert torch.equal(result[numbers[:, 0] == 0], images[numbers[:, 0] == 0])
    assert torch.equal(images, before)


def test_draws_follow_from_the_generator_and_fill_their_range():
    warp = Warp(turn=5.0, share=0.3)
    numbers = warp.draw(20_000, generator(1))
    torch.manual_seed(99)
    assert torch.equal(numbers, warp.draw(20_000, generator(1)))
    assert 0.28 < numbers[:, 0].mean() < 0.32
    rest = numbers[:, 1:]
    assert rest.min() >= -1
    assert rest.max() < 1
    assert rest.mean(0).abs().max() < 0.02
    assert (rest.std(0) - 1 / math.sqrt(3)).abs().max() < 0.02


@pytest.mark.parametrize(
    "bad", [{"share": 1.1}, {"share": math.nan}, {"turn": -1}, {"stretch": math.inf}, {"slide": math.nan}]
)
def test_impossible_warps(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Warp(**bad)


def batches(workers=None, **changes):
    images = torch.randint(256, (64, 1, 8, 8), dtype=torch.uint8, generator=generator())
    recipe = recipes.load("digits-quick").override({"batch_size": 8, **changes})
    return Batches(images, torch.arange(64), recipe, workers or Workers())


def test_a_batch_is_warped_after_its_crops_and_flips_which_stay_as_they_were():
    crops = {"pad": 1, "flip": True}
    plain, warped = batches(**crops), batches(**crops, **ALL)
    warp = Warp(20, 0.2, 1.5, 0.5)
    changed = 0
    for step in range(16):
        (x, y), (wx, wy) = plain.at(step), warped.at(step)
        assert torch.equal(y, wy)
        assert torch.equal(wx, warp.apply(x, warp.draw(8, _generator(0, WARPS, step))))
        assert torch.equal(wx, batches(**crops, **ALL).at(step)[0])  # as in a run that is resumed there
        changed += int((x != wx).flatten(1).any(1).sum())
    assert 40 < changed < 88  # of 128, half of which are warped


def test_a_share_of_nothing_or_without_amounts_changes_nothing():
    assert not Warp().changes
    assert not Warp(turn=5.0, share=0.0).changes
    assert Warp(slide=0.1).changes


def test_tables_are_not_warped():
    recipe = recipes.load("digits-quick").override({"turn": 5})
    with pytest.raises(recipes.RecipeError, match=r"turn = 5.*must be 0, as the images are 1 × 1"):
        recipe.check_images(1, 1)


def test_several_processes_share_the_warps_of_a_batch():
    whole = batches(**ALL)
    halves = [batches(Workers(rank, 2), **ALL) for rank in range(2)]
    for step in range(3):
        x, _ = whole.at(step)
        for rank, half in enumerate(halves):
            assert torch.equal(half.at(step)[0], x[rank::2])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"warp_share": 0.5}, "turn, stretch and slide are 0"),
        ({"slide": 8}, "slide = 8: must be less than 8, the size"),
        ({"warp_share": 1.5, "turn": 5}, "at most 1"),
        ({"warp_share": 0.5, "stretch": -0.1}, "at least 0"),
        ({"warp_share": 0.5, "turn": 181}, "at most 180"),
    ],
)
def test_recipes_refuse_what_does_nothing_or_is_impossible(changes, complaint):
    with pytest.raises(recipes.RecipeError, match=complaint):
        recipes.load("digits-quick").override(changes)
