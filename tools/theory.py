"""What docs/theory.md shows: `python -m tools.theory` measures and draws, `--parts` alone only draws.

Measures the bound of Theorem 4.2 for the zoo, how far IBP and CROWN of ReLU forms are from our certificates, and the
Lipschitz constants of finite p, into results/theory.json; draws docs/images/theory-*.png and fills docs/theory.md.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import linfdist as ld
from linfdist import theory
from linfdist.eps import down, up
from linfdist.files import write_atomically
from linfdist.models import DistNet, PixelNet, zoo
from linfdist.ops.machine import in_words
from linfdist.recipes import load as load_recipe
from linfdist.training.schedule import state_at

from . import ROOT, attempt
from .markdown import fill
from .pictures import _COLOURS, _panels, _png

FILE = "theory.json"
IMAGES = 5000  # of the training set: any sample will do, whatever the network was trained on
DELTA = 0.01
FEW = 5  # images for CROWN
POWERS = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1000.0)


def measure(parts: Sequence[str]) -> dict[str, Any]:
    """Measure these parts; minutes each."""
    when = f"{in_words()}, {datetime.now(timezone.utc).date().isoformat()}"
    return {name: {"when": when, "found": _PARTS[name]()} for name in parts}


def _bounds() -> list[dict[str, Any]]:
    return [_bound(name) for name in zoo.names()]


def _bound(name: str) -> dict[str, Any]:
    """Compute the terms of Theorem 4.2 for a network of the zoo, or say why there are none."""
    card, network = zoo.card(name), ld.load(name)
    assert isinstance(network, PixelNet)
    try:
        theory.generalisation.dist_sizes(network)
    except TypeError as error:
        return {"name": name, "refused": str(error)}
    data = ld.data.load(card.data, split="train")
    order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(0))[:IMAGES]
    images, labels = network.from_bytes(data.images[order]), data.labels[order]
    found = theory.robust_error_bound(network, images, labels, card.eps, DELTA)
    shown = ("n", "margin", "margin_error", "vc", "vc_fully_connected", "complexity", "loglog", "confidence",
             "bound", "needed")  # fmt: skip
    return {"name": name, "r": card.eps, **{key: getattr(found, key) for key in shown}}


def _opinions() -> list[dict[str, Any]]:
    """Networks for digits, trained in seconds: the mean radius of a few images that each method proves."""
    digits, test = ld.data.load("digits", split="train"), ld.data.load("digits", split="test")
    rows = []
    for width, depth in ((4, 2), (8, 2), (8, 3)):
        network = ld.train("digits-quick", digits, settings={"width": width, "depth": depth})
        assert isinstance(network, DistNet)
        x = network.from_bytes(test.images)
        few, relu = x[(network(x).argmax(1) == test.labels).nonzero()[:FEW, 0]], theory.to_relu(network)
        row: dict[str, Any] = {"width": width, "depth": depth, "neurons": sum(relu.widths), "layers": relu.depth}
        ours = ld.certify(network, few, None)
        assert ours.margin_radius is not None
        row |= {"images": len(few), "margin": float(ours.margin_radius.mean()), "box": float(ours.radius.mean())}
        for method in theory.opinion.BOUNDS:
            start = time.process_time()
            theory.second_opinion(relu, few, "0.05", method)
            row[f"{method}_seconds"] = (time.process_time() - start) / len(few)
            row[method] = float(theory.opinion_radius(relu, few, method).mean())
        rows.append(row)
    return rows


def _lipschitz() -> dict[str, Any]:
    """Constants over p of a network before and after training, relative to that of p = inf; and the p of training."""
    trained = ld.load("mnist-0.3")
    assert isinstance(trained, DistNet)
    torch.manual_seed(0)
    fresh = DistNet((1, 28, 28), 10, width=512, depth=5, mean=[0.1307], std=0.3081, identity_init=False).eval()
    images = trained.from_bytes(ld.data.load("mnist", split="test").images[:8])
    scale = trained.lipschitz
    curves = {
        "bound": [theory.lipschitz_bound(trained, p) / scale for p in POWERS],
        "trained": [theory.measured_lipschitz(trained, images, p) / scale for p in POWERS],
        "random": [theory.measured_lipschitz(fresh, images, p) / fresh.lipschitz for p in POWERS],
        "neuron": [784 ** (1 / p) for p in POWERS],
    }
    recipe = load_recipe("mnist-quick")
    epochs = [0.5 * k for k in range(int(2 * recipe.epochs))]
    powers = [state_at(recipe, round(epoch * 100), 100).p for epoch in epochs]
    ramp = [theory.lipschitz_bound(trained, p) / scale for p in powers]
    measured = [theory.measured_lipschitz(trained, images[:2], p) / scale for p in powers]
    return {"p": POWERS, **curves, "epochs": epochs, "ramp": ramp, "ramp_measured": measured}


_PARTS: dict[str, Callable[[], Any]] = {"bounds": _bounds, "opinions": _opinions, "lipschitz": _lipschitz}


def table(results: dict[str, Any]) -> dict[str, str]:
    """Build the tables of docs/theory.md, by the names of their places."""
    bounds = [
        "| network | r | images | margin error at δ + r | δ | V | bound | images needed |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    measured = [row for row in results["bounds"]["found"] if "refused" not in row]
    for row in measured:
        assert row["bound"] >= 1, "the page says that the bound says nothing"
        bounds.append(
            f"| `{row['name']}` | {row['r']} | {row['n']:,} | {up(row['margin_error'], 3)} | {row['margin']:.3f} | "
            f"{row['vc']:.1e} | {row['bound']:.0f} | {row['needed']:.0e} |"
        )
    others = ", ".join(f"`{row['name']}`" for row in results["bounds"]["found"] if "refused" in row)
    bounds += [
        "",
        f"`python -m tools.theory`, {results['bounds']['when']}; failure probability {DELTA}. "
        f"Without such a bound, for their heads and convolutions: {others}.",
    ]
    opinions = [
        "| network | ReLU neurons, layers | margin | box | CROWN | IBP | seconds of CROWN |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for row in results["opinions"]["found"]:
        radii = " | ".join(down(row[method], 4) for method in ("margin", "box", "crown", "ibp"))
        opinions.append(
            f"| width {row['width']}, depth {row['depth']} | {row['neurons']:,} in {row['layers']} | {radii} | "
            f"{row['crown_seconds']:.2g} |"
        )
    opinions += [
        "",
        f"`python -m tools.theory`, {results['opinions']['when']}. Seconds of processor time for one image and one ε.",
    ]
    return {"bounds": "\n".join(bounds), "opinions": "\n".join(opinions)}


def draw(results: dict[str, Any]) -> dict[str, bytes]:
    """Draw the pictures, by name."""
    drawings: dict[str, Callable[[], Any]] = {
        "theory-line": _line,
        "theory-plane": _plane,
        "theory-lipschitz": lambda: _constants(results["lipschitz"]["found"]),
    }
    return {name: _png(drawing) for name, drawing in drawings.items()}


def wave(x: Tensor) -> Tensor:
    """Evaluate a 1-Lipschitz function of one number."""
    return (9 * x[:, 0]).sin() / 12 + (x[:, 0] - 0.6).abs() / 4


def hills(x: Tensor) -> Tensor:
    """Evaluate a 1-Lipschitz function of two numbers: the slopes' ℓ1 norm is at most 1."""
    return (6 * x[:, 0]).sin() * (5 * x[:, 1]).cos() / 11


def _line() -> Any:
    figure, (left, right) = _panels(2)
    x = torch.linspace(0, 1, 801, dtype=torch.float64)[:, None]
    left.plot(x[:, 0], wave(x), color="#4d5560", linestyle=(0, (4, 3)), label="f")
    for eps, colour in ((0.1, _COLOURS[1]), (0.03, _COLOURS[0])):
        g = theory.approximate(wave, [(0, 1)], eps)
        left.plot(x[:, 0], g(x), color=colour, label=f"ε = {eps}: width {g.width}, depth {g.depth}")
    left.set_title("Theorem 4.1: max of pyramids", loc="left", fontweight="bold")
    left.legend(fontsize=8)
    points = torch.tensor([[0.05], [0.22], [0.4], [0.48], [0.75], [0.95]], dtype=torch.float64)
    through = theory.interpolate(points, wave(points))
    right.fill_between(x[:, 0], through.lower(x), through.upper(x), color=_COLOURS[5], alpha=0.35, linewidth=0,
                       label="every 1-Lipschitz function\nthrough the data is here")  # fmt: skip
    right.plot(x[:, 0], through(x), color=_COLOURS[0], label="the middle")
    right.plot(x[:, 0], wave(x), color="#4d5560", linestyle=(0, (4, 3)), label="f")
    right.plot(points[:, 0], wave(points), "o", color=_COLOURS[1], markersize=4)
    right.set_title("Scattered data: envelopes", loc="left", fontweight="bold")
    right.legend(fontsize=8)
    for axes in (left, right):
        axes.set(xlim=(0, 1), ylim=(-0.15, 0.42), xlabel="x")
    return figure


def _plane() -> Any:
    figure, panels = _panels(4, 3.4)
    line = torch.linspace(0, 1, 121, dtype=torch.float64)
    x = torch.cartesian_prod(line, line)
    points = torch.rand(60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    through = theory.interpolate(points, hills(points))
    g = theory.approximate(hills, [(0, 1)] * 2, 0.04)
    shown = {
        "f": hills(x),
        f"ε = 0.04: width {g.width}, depth {g.depth}": g(x).double(),
        "60 points: the middle": through(x),
        "its largest possible error": through.error(x),
    }
    for axes, (title, values) in zip(panels, shown.items(), strict=True):
        error = "error" in title
        image = axes.imshow(
            values.reshape(121, 121).T, origin="lower", extent=(0, 1, 0, 1), cmap="magma_r" if error else "viridis",
            vmin=0 if error else -0.1, vmax=None if error else 0.1,
        )  # fmt: skip
        if "60" in title or error:
            axes.plot(points[:, 0], points[:, 1], ".", color="#d55e00" if not error else "#0072b2", markersize=3)
        axes.set_title(title, loc="left", fontweight="bold")
        axes.grid(False)
        figure.colorbar(image, ax=axes, shrink=0.85)
    return figure


def _constants(measured: dict[str, Any]) -> Any:
    figure, (left, right) = _panels(2)
    names = {
        "bound": ("bound: product of d^(1/p)", _COLOURS[6], (0, (4, 3))),
        "random": ("random weights, measured", _COLOURS[2], "-"),
        "trained": ("mnist-0.3, measured", _COLOURS[0], "-"),
        "neuron": ("one neuron of 784 inputs", _COLOURS[4], (0, (1, 2))),
    }
    for key, (label, colour, style) in names.items():
        left.plot(measured["p"], measured[key], color=colour, linestyle=style, label=label)
    left.axhline(1.0, color=_COLOURS[1], linewidth=1)
    left.set(xscale="log", yscale="log", xlabel="p", ylabel="ℓ∞ Lipschitz constant (p = ∞: 1)")
    _ticks(left.xaxis, {p: f"{p:g}" for p in (1, 2, 8, 40, 200, 1000)})
    _ticks(left.yaxis, {1.0: "1", 1e3: "10³", 1e6: "10⁶", 1e9: "10⁹", 1e12: "10¹²"})
    left.set_title("Five layers of ℓp distances", loc="left", fontweight="bold")
    left.legend(fontsize=8)
    right.plot(measured["epochs"], measured["ramp"], color=_COLOURS[6], linestyle=(0, (4, 3)), label="bound")
    right.plot(measured["epochs"], measured["ramp_measured"], color=_COLOURS[0], label="mnist-0.3, measured")
    right.axhline(1.0, color=_COLOURS[1], linewidth=1)
    right.set(yscale="log", xlabel="epoch of mnist-quick: p grows from 8 to ∞", xlim=(0, None))
    _ticks(right.yaxis, {k: f"{k:g}" for k in (1, 2, 5, 10, 20, 50)})
    right.set_title("At the p of training", loc="left", fontweight="bold")
    right.legend(fontsize=8)
    return figure


def _ticks(axis: Any, labels: dict[float, str]) -> None:
    """Ticks on a logarithmic axis, in plain text: style switches mathematics off."""
    axis.set_ticks(list(labels), list(labels.values()))
    axis.set_ticks([], minor=True)


def write(root: Path, parts: Sequence[str]) -> None:
    """Measure these parts, keep what was measured of the others, and write all files."""
    path = root / "results" / FILE
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if parts:
        results |= measure(parts)
        write_atomically(path, json.dumps(results, indent=1) + "\n")
    for name, content in draw(results).items():
        write_atomically(root / "docs" / "images" / f"{name}.png", content)
    page = root / "docs" / "theory.md"
    write_atomically(page, fill(page.read_text(encoding="utf-8"), table(results), "docs/theory.md"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.theory", description="Measure and draw docs/theory.md.")
    parser.add_argument(
        "--parts", nargs="*", choices=_PARTS, default=list(_PARTS), help="what to measure again; none: only draw"
    )
    given = parser.parse_args(arguments)
    return attempt(lambda: write(ROOT, given.parts))


if __name__ == "__main__":
    raise SystemExit(main())
