"""Rows that contradict themselves are found, told with their numbers, and kept with their images."""

import json
import math

import pytest
import torch
from PIL import Image

from linfdist.evaluation import Violated, violations
from linfdist.evaluation.violated import save

from .files import row

EPS = "8/255"
BELOW = 8 / 255 if 8 / 255 * 255 <= 8 else math.nextafter(8 / 255, 0)


def test_consistent_rows():
    rows = [
        row(0, radius=0.2, certified=True, attacks={"pgd": (False, 1, 0.03)}),
        row(1, radius=0.01, attacks={"pgd": (True, 0, 0.02), "strong": (True, 2, 0.011)}),
        row(2, prediction=0, radius=0.5),  # surely wrong, but not attacked
        row(3, radius=0.0, margin_radius=None, attacks={"pgd": (True, 0, 0.0)}),  # a tie: nothing was proved
        row(4, radius=0.02, certified=True, attacks={"pgd": (True, 0, 0.04)}),  # outside the eps-ball
        row(5, radius=0.1, margin_radius=0.1),
    ]
    assert violations(rows, EPS) == []


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (
            row(7, certified=True, attacks={"pgd": (False, 1, 0.01), "strong": (True, 3, 0.02)}),
            ["certified at eps = 8/255, but strong makes it class 3 with a perturbation of 0.02"],
        ),
        (
            row(7, radius=0.0, certified=True, attacks={"pgd": (True, 3, BELOW)}),  # the very edge of the closed ball
            [f"certified at eps = 8/255, but pgd makes it class 3 with a perturbation of {BELOW!r}"],
        ),
        (
            row(7, radius=0.02, attacks={"pgd": (True, 3, 0.02)}),  # the ball of a radius is closed too
            ["radius 0.02, but pgd makes it class 3 with a perturbation of 0.02"],
        ),
        (row(7, margin_radius=0.3, radius=0.2), ["margin radius 0.3 > radius 0.2"]),
        (row(7, margin_radius=math.nextafter(0.2, 1), radius=0.2), ["margin radius 0.20000000000000004 > radius 0.2"]),
        (row(7, prediction=2, certified=True), ["certified for class 1, but predicted 2"]),
        (row(7, radius=0.0, attacks={"pgd": (True, 1, 0.01)}), ["counted as broken by pgd, but still class 1"]),
        (
            row(7, attacks={"pgd": (True, 0, 0.1), "strong": (True, 2, 0.05)}),
            [
                "radius 0.2, but pgd makes it class 0 with a perturbation of 0.1",
                "radius 0.2, but strong makes it class 2 with a perturbation of 0.05",
            ],
        ),
    ],
)
def test_contradictions(bad, told):
    found = violations([row(6), bad, row(8)], EPS)
    assert [violation.what for violation in found] == told
    assert all(violation.row.index == 7 for violation in found)
    assert all(str(violation) == f"image 7: {violation.what}" for violation in found)


def test_one_ulp_beyond_the_ball_is_beyond():
    size = math.nextafter(BELOW, 1)
    assert violations([row(radius=0.0, certified=True, attacks={"pgd": (True, 0, size)})], EPS) == []


@pytest.mark.parametrize("channels", [1, 3])
def test_the_images_are_kept(tmp_path, channels):
    images = {
        7: torch.randint(256, (channels, 5, 4), dtype=torch.uint8),
        9: torch.zeros(channels, 5, 4, dtype=torch.uint8),
    }
    attacked = torch.rand(channels, 5, 4)
    rows = [row(7, attacks={"pgd": (True, 0, 0.01)}), row(8), row(9, margin_radius=0.3)]
    found = violations(rows, EPS)
    saved = save(found, tmp_path, images, {"pgd": {7: attacked, 8: attacked}}, {"eps": EPS})
    assert [path.name for path in saved] == ["violation-7.png", "violation-9.png"]
    assert {path.name for path in tmp_path.iterdir()} == {
        f"violation-{k}.{end}" for k in (7, 9) for end in ("png", "json")
    }

    scale = 52  # 256 pixels or a little more
    with Image.open(saved[0]) as picture:
        assert picture.size == (2 * 4 * scale, 5 * scale)
        shown = torch.tensor(list(picture.convert("RGB").tobytes())).view(5 * scale, 8 * scale, 3)
    expected = torch.cat([images[7], (attacked * 255).round().to(torch.uint8)], 2).expand(3, -1, -1)
    assert torch.equal(shown[::scale, ::scale].movedim(2, 0), expected.long())
    content = json.loads((tmp_path / "violation-7.json").read_text())
    assert content["row"] == rows[0].as_json()
    assert content["violations"] == ["radius 0.2, but pgd makes it class 0 with a perturbation of 0.01"]
    assert content["settings"] == {"eps": EPS}
    assert torch.equal(torch.tensor(content["attacked"]["pgd"]), attacked)  # to the last bit
    assert json.loads((tmp_path / "violation-9.json").read_text())["attacked"] == {}

    message = str(Violated(found, saved))
    assert "image 7: radius 0.2, but pgd" in message
    assert "image 9: margin radius 0.3 > radius 0.2" in message
    assert str(saved[1]) in message
