"""Measure methods that prove nothing in ℓ∞: `python -m tools.unproved`.

Randomised smoothing, whose claims hold with high probability and pay for the dimension, and networks of ℓ1 and ℓ2
distances, whose constants are measured. Writes results/unproved.json and the tables of docs/compare.md between its
markers; `--page` writes the page alone, from the results that are there.
"""

import argparse
import json
import math
from collections.abc import Sequence
from datetime import date
from typing import Any

import torch

import linfdist as ld
from linfdist.baselines import METHODS, Method, smoothed, train
from linfdist.baselines.methods import Smoothing
from linfdist.eps import down, nearest, parse_eps
from linfdist.files import write_atomically
from linfdist.machine import in_words
from linfdist.models import PixelNet
from linfdist.theory import measured_lipschitz

from . import ROOT, attempt
from .markdown import fill, markdown

RESULTS = ROOT / "results" / "unproved.json"
PAGE = ROOT / "docs" / "compare.md"
DATA = "mnist"
EPOCHS, SIGMAS, RADII = 2.0, (0.25, 0.5), ("0.02", "0.05", "0.3")
IMAGES, SAMPLES, ALPHA = 100, 1000, 0.001
WIDTH = 0.25  # of networks of distances, whose gradients are dear
OURS = "mnist-0.3"


def measure() -> dict[str, Any]:
    """Train the networks, for two epochs each, and measure them on the first test images."""
    test = ld.data.load(DATA, split="test")
    x, y = test.images[:IMAGES].float() / 255, test.labels[:IMAGES]
    ours = ld.load(OURS)
    assert isinstance(ours, PixelNet)
    constants = [_constants(OURS, ours, x, y)]
    constants += [
        _constants(METHODS[name].title, _trained(METHODS[name](), WIDTH), x, y) for name in ("l1-dist", "l2-dist")
    ]
    return {
        "smoothing": [_claims(sigma, x, y) for sigma in SIGMAS],
        "proved": {radius: _proved(ours, x, y, radius) for radius in RADII},
        "constants": constants,
        "machine": in_words(),
        "date": date.today().isoformat(),
    }


def _claims(sigma: float, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    network = _trained(Smoothing(sigma))
    claim = smoothed(network, x, RADII[0], sigma, y, SAMPLES, ALPHA)
    right = claim.prediction == y
    claimed = {radius: _percent(right & (claim.radius >= float(parse_eps(radius)))) for radius in RADII}
    return {"sigma": sigma, "right": _percent(right), "claimed": claimed}


def _constants(name: str, network: PixelNet, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    return {
        "name": name,
        "clean": _percent(network(x).argmax(1) == y),
        "steepest": measured_lipschitz(network, x, math.inf),
        "certified": _proved(network, x, y, RADII[0]),
    }


def _proved(network: PixelNet, x: torch.Tensor, y: torch.Tensor, radius: str) -> float:
    certified = ld.certify(network, x, radius, y, radii=False).certified
    assert certified is not None, "there is an eps"
    return _percent(certified)


def _trained(method: Method, width: float = 1.0) -> PixelNet:
    """A network of the method on MNIST, with the method's first setting."""
    data, info = ld.data.load(DATA, split="train"), ld.data.info(DATA)
    torch.manual_seed(0)
    network = method.network(info.shape, info.num_classes, info.mean, info.std, width=width)
    return train(network, data.images, data.labels, method, method.plan(0.0, EPOCHS, **method.settings[0]))


def _percent(which: torch.Tensor) -> float:
    return 100 * int(which.sum()) / len(which)


def tables(found: dict[str, Any]) -> dict[str, str]:
    """The tables of docs/compare.md, by the names of their places."""
    stated = (
        f"`python -m tools.unproved`: percent of the first {IMAGES} test images of MNIST, networks trained for "
        f"{EPOCHS:g} epochs, seed 0; {found['machine']}; {found['date']}."
    )
    claims = [
        [f"smoothing, σ = {row['sigma']:g}", nearest(row["right"], 1), *(down(row["claimed"][r], 1) for r in RADII)]
        for row in found["smoothing"]
    ]
    ours = next(row for row in found["constants"] if row["name"] == OURS)
    claims.append([f"`{OURS}`, proved", nearest(ours["clean"], 1), *(down(found["proved"][r], 1) for r in RADII)])
    constants = [
        [f"`{row['name']}`" if row["name"] == OURS else row["name"], nearest(row["clean"], 1),
         down(row["steepest"], 1), down(row["certified"], 1)]
        for row in found["constants"]
    ]  # fmt: skip
    each = f"{SAMPLES:,} samples for each image, each claim wrong with probability up to {ALPHA:g}."
    slope = (
        "The constant is the steepest slope at these images, in pixels; the ℓ1 and ℓ2 networks have three layers of "
        f"{512 * WIDTH:g} neurons."
    )
    return {
        "smoothing": markdown(["", "right", *(f"ε = {r}" for r in RADII)], claims, 1) + f"\n\n{stated} {each}",
        "constants": markdown(["", "clean", "constant, at least", f"proved at ε = {RADII[0]}"], constants, 1)
        + f"\n\n{stated} {slope}",
    }


def write_page() -> None:
    """Put the tables into the page."""
    text = fill(PAGE.read_text(encoding="utf-8"), tables(json.loads(RESULTS.read_text(encoding="utf-8"))), PAGE.name)
    write_atomically(PAGE, text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.unproved", description="Measure what proves nothing in ℓ∞.")
    parser.add_argument("--page", action="store_true", help="only write the page, from the results that are there")
    given = parser.parse_args(arguments)

    def work() -> None:
        if not given.page:
            write_atomically(RESULTS, json.dumps(measure(), indent=1) + "\n")
        write_page()

    return attempt(work)


if __name__ == "__main__":
    raise SystemExit(main())
