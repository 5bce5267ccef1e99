"""The chart of a training: accuracy, loss and p by epoch."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...runs.folder import Run
from .labels import spread
from .theme import LIGHT, Theme, new_figure, set_title, styled

LINES = {"train_accuracy": "training", "clean": "clean, p = ∞", "certified": "certified, p = ∞"}


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
    for (_, name, colour), y in zip(ends, spread([end for end, _, _ in ends], 8.0), strict=True):
        axes.annotate(
            name, (1.01, y), xycoords=("axes fraction", "data"), color=colour, va="center", annotation_clip=False
        )
    axes.set(ylim=(0, 104), ylabel="images, %")


def _column(metrics: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """The numbers of that name; NaN, which leaves a gap, where an epoch has none."""
    values = (row.get(key) for row in metrics)
    return [float(value) if isinstance(value, int | float) else math.nan for value in values]


def _set_epochs(axes: Any, epochs: Sequence[float]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if epochs[-1] > epochs[0]:
        axes.set_xlim(epochs[0], epochs[-1])
    axes.set(xlabel="epoch", ylabel="p")
