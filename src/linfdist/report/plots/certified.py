"""The chart of certified accuracy against radius."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ...eps import down, in_words, nearest, percent, up
from ...runs.folder import Run
from ...runs.rows import Row, count
from .curve import curve, gain
from .labels import stacked
from .theme import LIGHT, Theme, new_figure, set_title, styled

LABEL = 6.5  # height of a line of text, in points of accuracy


@dataclass(frozen=True)
class Measured:
    """What the chart shows. eps: None if the images were certified for no radius in particular."""

    rows: Sequence[Row]
    eps: Fraction | None
    eps_text: str
    method: str
    attacks: Sequence[str]


def read(result: Any, labels: Any = None) -> Measured:
    """Take rows from the folder of an evaluated run, from a `Run`, or from a certificate and its labels."""
    if isinstance(result, str | Path):
        result = Run(Path(result))
        result.check_evaluated()
    if isinstance(result, Run):
        summary: Mapping[str, Any] = result.summary
        return Measured(result.rows, result.eps, summary["eps"], summary["method"], result.attacks)
    if labels is None:
        raise TypeError("labels are missing: a certificate does not know which predictions are right")
    known = [int(label) for label in labels]
    if len(known) != len(result):
        raise ValueError(f"{len(known)} labels for a certificate of {len(result)} images")
    if not known:
        raise ValueError("the certificate has no images: there is nothing to draw")
    columns = result.to_dict()
    certified = columns["certified"] if result.eps is not None else [False] * len(known)
    rows = [
        Row(index, label, prediction, radius, proved and prediction == label)
        for index, (label, prediction, radius, proved) in enumerate(
            zip(known, columns["prediction"], columns["radius"], certified, strict=True)
        )
    ]
    return Measured(rows, result.eps, in_words(result.eps) if result.eps is not None else "", "margin", ())


@styled
def certified_accuracy(result: Any, labels: Any = None, *, axes: Any = None, theme: Theme = LIGHT) -> Any:
    """Draw the share of images that are classified correctly, and proved so, against the radius.

    result: the folder that `linfdist evaluate` wrote into, or a `Certificate`; with a certificate also
    labels: its right classes, (B,).
    axes: matplotlib's axes to draw into; by default new ones.
    theme: `linfdist.report.plots.LIGHT` or `DARK`, or colours of your own.

    Returns:
        The axes.

    Example:
        >>> test = ld.data.load("mnist", split="test")
        >>> proof = ld.certify(ld.load("mnist-0.3"), test.images[:500] / 255, eps="0.3")
        >>> ld.report.plots.certified_accuracy(proof, test.labels[:500]).figure.savefig("radius.png")
    """
    shown = read(result, labels)
    axes = new_figure(7.6, 4.6).subplots() if axes is None else axes
    eps = shown.eps if shown.eps is not None else Fraction(0)
    xs, ys = curve(shown.rows, eps)
    right = max(1.08 * xs[-1], 1.5 * float(eps)) or 1.0  # leaves room for the labels beside eps
    axes.step(xs, ys, where="pre", color=theme.certified)
    axes.fill_between(xs, ys, step="pre", color=theme.certified, alpha=0.10, linewidth=0)
    gained = gain(shown.rows, eps, shown.method)
    if gained and gained.mean_radius - gained.mean_margin > 0.004 * right:  # less is a line's width: one curve
        _margin_curve(axes, shown.rows, eps, right, theme)
    counted = count(shown.rows, shown.attacks)
    texts: list[tuple[float, float, str, str]] = []
    if shown.eps is not None:
        texts = _at_eps(axes, shown, float(eps), right, theme)
    clean = f"{nearest(percent(counted.clean, counted.n), 2)} % clean"
    axes.plot([0], [ys[0]], "o", color=theme.clean, clip_on=False, zorder=3)
    if texts and float(eps) < 0.2 * right:  # too near to the axis for a label between the two
        texts.append((float(eps) + 0.03 * right, max(ys[0], texts[-1][1] + LABEL), clean, theme.clean))
    else:
        texts.append((0.015 * right, ys[0] + 0.8 * LABEL, clean, theme.clean))
    for x, y, text, colour in texts:
        box = {"boxstyle": "round,pad=0.1", "facecolor": theme.paper, "edgecolor": "none"}
        axes.text(x, y, text, color=colour, va="center", bbox=box)
    top = max(y for _, y, _, _ in texts) + 0.8 * LABEL
    axes.set(xlim=(0, right), ylim=(0, max(104, top)), ylabel="images, %")
    axes.set(xlabel="ℓ∞ radius, on the 0–1 intensity scale")
    axes.set_yticks(range(0, 101, 20))
    set_title(axes, "Certified accuracy against radius", pad=24)
    return axes


def _at_eps(axes: Any, shown: Measured, eps: float, right: float, theme: Theme) -> list[tuple[float, float, str, str]]:
    """Draw what is known at eps; where its labels go, from the lowest to the highest: (x, y, text, colour)."""
    axes.axvline(eps, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(f"ε = {shown.eps_text}", (eps, 1), (0, 3), xycoords=("data", "axes fraction"),
                  textcoords="offset points", color=theme.muted, ha="center", va="bottom")  # fmt: skip
    counted = count(shown.rows, shown.attacks)
    proved = percent(counted.certified, counted.n)
    labels = [(float(proved), f"{down(proved, 2)} % certified", theme.certified)]
    for k, (name, images) in enumerate(counted.surviving.items()):
        share = percent(images, counted.n)
        labels.append((float(share), f"{up(share, 2)} % survive {name}", theme.attacks[k % len(theme.attacks)]))
    labels.sort(key=lambda label: label[0])
    # Upwards, in order: the curves fall, so that nothing is drawn to the right of the certified point and above it.
    places = stacked([value for value, _, _ in labels], float(proved) + 0.8 * LABEL, LABEL)
    for (value, _, colour), y in reversed(list(zip(labels, places, strict=True))):  # what is proved comes on top
        axes.plot([eps, eps + 0.025 * right], [value, y], color=colour, linewidth=0.8, clip_on=False)
        axes.plot([eps], [value], "o", color=colour, markersize=6, clip_on=False, zorder=4)
    return [(eps + 0.03 * right, y, text, colour) for (_, text, colour), y in zip(labels, places, strict=True)]


def _margin_curve(axes: Any, rows: Sequence[Row], eps: Fraction, right: float, theme: Theme) -> None:
    """Draw a dashed curve; its label is below and to the left of one of its points, where no curve is, clear of eps."""
    xs, ys = curve(rows, eps, margin=True)
    axes.step(xs, ys, where="pre", color=theme.muted, linewidth=1, linestyle=(0, (2, 2)), zorder=1.5)
    text, width = "dashed: by the margin", 0.27 * right
    points = [next(k for k, y in enumerate(ys) if y <= level * ys[0]) for level in (0.6, 0.8, 0.4, 0.25)]
    for k in points:
        if xs[k] > width and not xs[k] - width < float(eps) < xs[k]:
            axes.annotate(text, (xs[k], ys[k]), (-8, -4), textcoords="offset points", color=theme.muted, ha="right",
                          va="top")  # fmt: skip
            return
    axes.annotate(text, (1, 0), (-4, 8), xycoords="axes fraction", textcoords="offset points", color=theme.muted,
                  ha="right")  # fmt: skip
