"""Charts of certified accuracy against radius and against training time, and of a training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

from ...data.samples import as_labels
from ...eps import down, in_words, nearest, percent
from ...runs.folder import Run
from ...runs.rows import Row, count
from .style import LIGHT, Theme, new_figure, set_title, spaced, stacked, styled

RADIUS_LABEL = 6.5  # height of a line of text, in points of accuracy
TIME_LABEL = 4.6  # height of a line of text, in percent of the axis
LINES = {"train_accuracy": "training", "clean": "clean, p = ∞", "certified": "certified, p = ∞"}


def curve(rows: Sequence[Row], eps: Fraction, *, margin: bool = False) -> tuple[list[float], list[float]]:
    """Compute certified accuracy (percent) against radius: y[k] is certified at every radius in (x[k-1], x[k]].

    It starts at (0, clean accuracy), because the ball of radius 0 is the image itself, and ends at 0. A certified image
    counts up to eps even where its radius, rounded down to a float, is a little less. margin: use the margin radii.
    """
    radii = [0.0 if row.margin_radius is None else row.margin_radius for row in rows if row.correct]
    if not margin:
        radii = [max(row.radius, float(eps)) if row.certified else row.radius for row in rows if row.correct]
    xs, ys = [0.0], [100 * len(radii) / len(rows)]
    steps = sorted(set(radii) - {0.0, math.inf})  # what nothing changes counts at every radius
    at_least, ordered = 0, sorted(radii)
    for radius in steps:
        while ordered[at_least] < radius:
            at_least += 1
        xs.append(radius)
        ys.append(100 * (len(ordered) - at_least) / len(rows))
    return [*xs, xs[-1]], [*ys, 0.0]


@dataclass(frozen=True)
class Gain:
    """How much larger the method's radii are than the margin's, over the correct images that have both.

    pairs: (margin radius, radius). certified_by_margin: images whose margin radius reaches eps.
    """

    pairs: tuple[tuple[float, float], ...]
    mean_margin: Fraction
    mean_radius: Fraction
    certified_by_margin: int


def gain(rows: Sequence[Row], eps: Fraction, method: str) -> Gain | None:
    """Compare the method's radii with those of the margin.

    Returns None if there is nothing to compare: the method is the margin, or no row has a margin radius.
    """
    pairs = tuple((row.margin_radius, row.radius) for row in rows if row.correct and row.margin_radius is not None)
    if method == "margin" or not pairs:
        return None
    return Gain(
        pairs=pairs,
        mean_margin=sum((Fraction(margin) for margin, _ in pairs), Fraction(0)) / len(pairs),
        mean_radius=sum((Fraction(radius) for _, radius in pairs), Fraction(0)) / len(pairs),
        certified_by_margin=sum(Fraction(margin) >= eps for margin, _ in pairs),
    )


@dataclass(frozen=True)
class Measured:
    """The data of the chart. eps: None if the images were not certified at a given radius."""

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
    known = as_labels(labels, result.class_names, "labels")
    if known.dim() != 1 or known.is_floating_point():
        raise TypeError(
            f"labels must be whole numbers or names of classes, (B,), got {known.dtype} of shape {tuple(known.shape)}"
        )
    if len(known) != len(result):
        raise ValueError(f"{len(known)} labels for a certificate of {len(result)} images")
    if not len(known):
        raise ValueError("the certificate has no images: there is nothing to draw")
    columns = result.to_dict()
    certified = columns["certified"] if result.eps is not None else [False] * len(known)
    rows = [
        Row(index, label, prediction, radius, proved and prediction == label)
        for index, (label, prediction, radius, proved) in enumerate(
            zip(known.tolist(), columns["prediction"], columns["radius"], certified, strict=True)
        )
    ]
    return Measured(rows, result.eps, in_words(result.eps) if result.eps is not None else "", "margin", ())


@styled
def certified_accuracy(
    result: Any, labels: Any = None, *, axes: Any = None, theme: Theme = LIGHT, label: str | None = None
) -> Any:
    """Draw the share of images that are classified correctly and certified, against the radius.

    result: the folder that `linfdist evaluate` wrote into, or a `Certificate`; with a certificate also
    labels: its right classes, (B,): whole numbers, or names of classes.
    axes: matplotlib's axes to draw into; by default new ones.
    theme: `linfdist.report.plots.LIGHT` or `DARK`, or colours of your own.
    label: the name of this curve in a legend; call again with the same axes for each further one.

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
    if label is not None:
        return _labelled(axes, xs, ys, label, theme)
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
        texts.append((float(eps) + 0.03 * right, max(ys[0], texts[-1][1] + RADIUS_LABEL), clean, theme.clean))
    else:
        texts.append((0.015 * right, ys[0] + 0.8 * RADIUS_LABEL, clean, theme.clean))
    for x, y, text, colour in texts:
        box = {"boxstyle": "round,pad=0.1", "facecolor": theme.paper, "edgecolor": "none"}
        axes.text(x, y, text, color=colour, va="center", bbox=box)
    top = max(y for _, y, _, _ in texts) + 0.8 * RADIUS_LABEL
    axes.set(xlim=(0, right), ylim=(0, max(104, top)), ylabel="images, %")
    axes.set(xlabel="ℓ∞ radius, on the 0–1 intensity scale")
    axes.set_yticks(range(0, 101, 20))
    set_title(axes, "Certified accuracy against radius", pad=24)
    return axes


def in_legend(name: str) -> str:
    """Return a name that matplotlib's legends show: they leave out those that begin with an underscore."""
    return name.lstrip("_") or "-"


def _labelled(axes: Any, xs: Sequence[float], ys: Sequence[float], label: str, theme: Theme) -> Any:
    """Draw one of several curves, with a legend for all."""
    drawn = len(axes.get_legend_handles_labels()[0])
    axes.step(xs, ys, where="pre", color=theme.series[drawn % len(theme.series)], label=in_legend(label))
    right = max(1.08 * xs[-1], axes.get_xlim()[1] if drawn else 0.0) or 1.0
    axes.set(xlim=(0, right), ylim=(0, 104), xlabel="ℓ∞ radius, on the 0–1 intensity scale", ylabel="images, %")
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False)
    set_title(axes, "Certified accuracy against radius")
    return axes


def _at_eps(axes: Any, shown: Measured, eps: float, right: float, theme: Theme) -> list[tuple[float, float, str, str]]:
    """Draw the accuracies at eps; return their labels from the lowest to the highest: (x, y, text, colour)."""
    axes.axvline(eps, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(f"ε = {shown.eps_text}", (eps, 1), (0, 3), xycoords=("data", "axes fraction"),
                  textcoords="offset points", color=theme.muted, ha="center", va="bottom")  # fmt: skip
    counted = count(shown.rows, shown.attacks)
    proved = percent(counted.certified, counted.n)
    labels = [(float(proved), f"{down(proved, 2)} % certified", theme.certified)]
    for k, (name, images) in enumerate(counted.surviving.items()):
        share = percent(images, counted.n)
        labels.append(
            (
                float(share),
                f"{counted.survive(images)} % survive the attack {name}",
                theme.attacks[k % len(theme.attacks)],
            )
        )
    labels.sort(key=lambda label: label[0])
    # Upwards, in order: the curves fall, so that nothing is drawn to the right of the certified point and above it.
    places = stacked([value for value, _, _ in labels], float(proved) + 0.8 * RADIUS_LABEL, RADIUS_LABEL)
    for (value, _, colour), y in reversed(list(zip(labels, places, strict=True))):  # what is proved comes on top
        axes.plot([eps, eps + 0.025 * right], [value, y], color=colour, linewidth=0.8, clip_on=False)
        axes.plot([eps], [value], "o", color=colour, markersize=6, clip_on=False, zorder=4)
    return [(eps + 0.03 * right, y, text, colour) for (_, text, colour), y in zip(labels, places, strict=True)]


def _margin_curve(axes: Any, rows: Sequence[Row], eps: Fraction, right: float, theme: Theme) -> None:
    """Draw a dashed curve, labelled below and to the left of a point where no curve is, clear of eps."""
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


class Short(Protocol):
    """A short training and its accuracy on held-out images."""

    @property
    def seconds(self) -> float: ...
    @property
    def certified(self) -> float: ...


class Entry(Protocol):
    """One training of a method: percent of the test images that are certified, and the trial that led to it, if any."""

    @property
    def title(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def certified(self) -> float: ...
    @property
    def led(self) -> Short | None: ...
    @property
    def ours(self) -> bool: ...


@styled
def compared(rows: Sequence[Entry], title: str = "", *, axes: Any = None, theme: Theme = LIGHT) -> Any:
    """Draw the certified accuracy of methods against the time that they trained for.

    rows: of one data set, as `linfdist compare` keeps them; a line joins the rows of a method that had several budgets.
    Full marks: the training, on test images. Hollow marks: the trial that led to it, on held-out images. Ours are in
    colour.
    axes: matplotlib's axes to draw into; by default new ones. theme: `linfdist.report.plots.LIGHT` or `DARK`.

    Returns:
        The axes.
    """
    if not rows:
        raise ValueError("rows: there are none; there is nothing to draw")
    axes = new_figure(7.6, 4.6).subplots() if axes is None else axes
    methods = sorted(_by_method(rows), key=lambda course: course[-1].certified)
    points = [(point.seconds, point.certified) for row in rows for point in (row, row.led) if point is not None]
    top = max(10.0, 1.12 * max(certified for _, certified in points))
    places = spaced([course[-1].certified for course in methods], TIME_LABEL / 100 * top)
    low = min(places[0] - TIME_LABEL / 200 * top, -0.02 * top)
    latest = max(row.seconds for row in rows)
    for course, place in zip(methods, places, strict=True):
        last = course[-1]
        colour = theme.certified if last.ours else theme.clean
        for row in course:
            if (led := row.led) is not None:
                way = [led.seconds, row.seconds], [led.certified, row.certified]
                axes.plot(*way, "--", color=colour, linewidth=1, alpha=0.6)
                axes.plot([led.seconds], [led.certified], "o", color=colour, markerfacecolor=theme.paper, zorder=3)
        axes.plot([row.seconds for row in course], [row.certified for row in course], "o-", color=colour,
                  linewidth=2 if last.ours else 1.2, zorder=4)  # fmt: skip
        axes.plot([last.seconds, 1.12 * latest], [last.certified, place], ":", color=colour, linewidth=0.8, alpha=0.8)
        axes.text(1.15 * latest, place, last.title, color=colour, va="center", fontsize=9,
                  fontweight="bold" if last.ours else "normal")  # fmt: skip
    first = min(seconds for seconds, _ in points)
    axes.set_xscale("log")
    axes.xaxis.get_major_locator().set_params(subs=(1.0, 2.0, 5.0))  # without trials all times lie in one decade
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.set(xlim=(0.8 * first, latest * (latest / first) ** 0.55 * 1.9), ylim=(low, max(top, places[-1] + 2)))
    hollow = "; hollow: a trial, of held-out images" if any(row.led is not None for row in rows) else ""
    axes.set(xlabel=f"seconds of training{hollow}", ylabel="certified, %")
    set_title(axes, title or "Certified accuracy against training time")
    return axes


def _by_method(rows: Sequence[Entry]) -> list[list[Entry]]:
    """Group the rows by method, the shortest training first."""
    ordered = sorted(rows, key=lambda row: row.seconds)
    return [[row for row in ordered if row.title == title] for title in dict.fromkeys(row.title for row in ordered)]


@styled
def training(result: Any, *, axes: Sequence[Any] | None = None, theme: Theme = LIGHT) -> tuple[Any, Any, Any]:
    """Draw accuracy, loss and p against the epoch.

    result: the folder of a run, or a list of what `linfdist.train` gave to its callback, one `Progress` per epoch, or
        of mappings with the keys of metrics.jsonl.
    axes: three of matplotlib's axes, for accuracy, loss and p; by default new ones.
    theme: `linfdist.report.plots.LIGHT` or `DARK`, or colours of your own.

    Returns:
        The three axes.

    Example:
        >>> seen = []
        >>> model = ld.train("digits-quick", digits, callback=seen.append)
        >>> accuracy, loss, p = ld.report.plots.training(seen)
    """
    metrics = _epochs(result)
    if axes is None:
        axes = new_figure(7.6, 6.2).subplots(3, 1, sharex=True, height_ratios=[2.2, 1.2, 1.2])
    accuracy, loss, norm = axes
    epochs = [float(row["epoch"]) for row in metrics]
    _draw_accuracy(accuracy, epochs, metrics, theme)
    loss.plot(epochs, _column(metrics, "loss"), color=theme.ink, linewidth=1.5)
    loss.set(ylabel="loss")
    finite = [(epoch, row["p"]) for epoch, row in zip(epochs, metrics, strict=True) if row.get("p") is not None]
    if finite:
        norm.plot(*zip(*finite, strict=True), color=theme.ink, linewidth=1.5)
        norm.set_yscale("log")
        norm.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        norm.yaxis.set_minor_formatter(lambda value, _: "")
    infinite = [epoch for epoch, row in zip(epochs, metrics, strict=True) if row.get("p", 0) is None]
    if infinite:
        start = finite[-1][0] if finite else epochs[0]
        for each in axes:
            each.axvspan(start, epochs[-1], color=theme.certified, alpha=0.10, linewidth=0)
        norm.annotate("p = ∞", (1.01, 0.5), xycoords="axes fraction", color=theme.certified, va="center",
                      annotation_clip=False)  # fmt: skip
    _set_epochs(norm, epochs)
    set_title(accuracy, "Training")
    return accuracy, loss, norm


def _epochs(result: Any) -> Sequence[Mapping[str, Any]]:
    if isinstance(result, str | Path):
        result = Run(Path(result))
    if isinstance(result, Run):
        result = result.metrics
    rows = [dict(row if isinstance(row, Mapping) else vars(row)) for row in result]
    if not rows:
        raise ValueError("there are no epochs to draw")
    for row in rows:
        if row.get("p") == math.inf:
            row["p"] = None  # as metrics.jsonl has it
    return rows


def _draw_accuracy(axes: Any, epochs: Sequence[float], metrics: Sequence[Mapping[str, Any]], theme: Theme) -> None:
    colours = {"train_accuracy": theme.muted, "clean": theme.clean, "certified": theme.certified}
    ends = []
    for key, name in LINES.items():
        values = _column(metrics, key)
        if any(math.isfinite(value) for value in values):
            axes.plot(epochs, values, color=colours[key], linewidth=1.2 if key == "train_accuracy" else 2)
            ends.append((next(value for value in reversed(values) if math.isfinite(value)), name, colours[key]))
    for (_, name, colour), y in zip(ends, spaced([end for end, _, _ in ends], 8.0), strict=True):
        axes.annotate(
            name, (1.01, y), xycoords=("axes fraction", "data"), color=colour, va="center", annotation_clip=False
        )
    axes.set(ylim=(0, 104), ylabel="images, %")


def _column(metrics: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """Return the numbers of that name; NaN, which leaves a gap, where an epoch has none."""
    values = (row.get(key) for row in metrics)
    return [float(value) if isinstance(value, int | float) else math.nan for value in values]


def _set_epochs(axes: Any, epochs: Sequence[float]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if epochs[-1] > epochs[0]:
        axes.set_xlim(epochs[0], epochs[-1])
    axes.set(xlabel="epoch", ylabel="p")
