"""View: copies of pixels, and nothing else."""

import pytest
import torch

from linfdist.nn import Box, View

from .samples import assert_encloses, points_of, random_box

X = torch.arange(12.0).view(1, 1, 3, 4)
SEEN = {
    "same": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]],
    "mirror": [[3, 2, 1, 0], [7, 6, 5, 4], [11, 10, 9, 8]],
    "shift:1,0": [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7]],
    "shift:-1,2": [[4, 4, 4, 5], [8, 8, 8, 9], [8, 8, 8, 9]],
    "shift:0,-3": [[3, 3, 3, 3], [7, 7, 7, 7], [11, 11, 11, 11]],
    "shift:0,0": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]],
}


@pytest.mark.parametrize("name", SEEN)
def test_values_by_hand(name):
    view = View(name)
    assert view(X)[0, 0].tolist() == SEEN[name]
    assert view.output_shape((1, 3, 4)) == (1, 3, 4)
    assert view.rounding(1, 2**-24).error == 0


@pytest.mark.parametrize("name", SEEN)
def test_every_pixel_is_a_copy_so_boxes_are_exact(name):
    box = random_box(2, 2, 3, 4)
    bounds = View(name).forward_box(box)
    for x in points_of(box, 5):
        assert_encloses(bounds, View(name)(x))
    point = View(name).forward_box(Box(X, X))
    assert torch.equal(point.lower, point.upper)


@pytest.mark.parametrize(
    "name", ["", "flip", "shift", "shift:1", "shift:1,2,3", "shift:1.5,0", "shift:1,99999", None, 3]
)
def test_unknown_views(name):
    with pytest.raises(ValueError, match=r"no view is called .*: take 'same', 'mirror', or a shift .* 'shift:1,0'"):
        View(name)


def test_an_image_stays_in_sight():
    for name in ("shift:3,0", "shift:-3,1", "shift:0,4"):
        with pytest.raises(ValueError, match=f"'{name}' moves an image of 3x4 pixels out of sight"):
            View(name)(X)
    with pytest.raises(ValueError, match=r"one of an image \(C, H, W\), not of \(12,\)"):
        View("mirror").output_shape((12,))
