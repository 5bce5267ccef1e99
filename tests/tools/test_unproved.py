"""What is said of methods that prove nothing in ℓ∞."""

import json

from tools.markdown import fill
from tools.unproved import OURS, PAGE, RADII, RESULTS, tables


def test_the_page_says_what_was_measured():
    found, text = json.loads(RESULTS.read_text(encoding="utf-8")), PAGE.read_text(encoding="utf-8")
    assert fill(text, tables(found), PAGE.name) == text


def test_the_price_of_the_dimension():
    """Claims fall with the radius and end where the samples end, far below the radius that ours is proved for."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    for row in found["smoothing"]:
        claimed = [row["claimed"][radius] for radius in RADII]
        assert row["right"] >= claimed[0] >= claimed[1] >= claimed[2] == 0
    assert found["proved"][RADII[-1]] > 50
    steepest = {row["name"]: row["steepest"] for row in found["constants"]}
    ours = steepest.pop(OURS)
    assert all(each > 2 * ours for each in steepest.values())
