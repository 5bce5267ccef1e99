"""The charts of a report, each drawn twice: on white and on dark. Pyplot's global state is not used."""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..eps import down, nearest, percent
from ..runs.folder import Run
from ..runs.rows import count
from . import tables
from .plots.curves import Entry, certified_accuracy, compared, gain, training
from .plots.fronts import Point, fronts
from .plots.style import DARK, LIGHT, Theme, figure_for_file, require_matplotlib, set_title, styled

DPI = 200  # twice that of a screen
MOST_PANELS = 12  # classes with a histogram of their own
MOST_NUMBERS = 12  # classes up to which the confusion matrix shows its counts
MOST_CELLS = 1000  # classes up to which there is a confusion matrix
Drawing = Callable[..., Any]  # ([run,] theme) -> figure


@dataclass(frozen=True)
class Chart:
    """The bytes of two PNGs of the same chart."""

    light: bytes
    dark: bytes


def draw(run: Run) -> dict[str, Chart]:
    """Draw every chart for which the run has data; return them by the names of their PNGs."""
    require_matplotlib()
    drawings: dict[str, Drawing] = {
        "certified_accuracy": _certified_accuracy,
        "fates": _fates,
        "radius_by_class": _radius_by_class,
    }
    if len(run.classes) <= MOST_CELLS:
        drawings["confusion"] = _confusion
    if run.metrics:
        drawings["training"] = _training
    if gain(run.rows, run.eps, run.summary["method"]):
        drawings["margin_vs_method"] = _margin_vs_method
    return {name: both(partial(drawing, run)) for name, drawing in drawings.items()}


def both(drawing: Drawing) -> Chart:
    """Draw a chart on white and on dark; `drawing` maps a theme to a figure."""
    return Chart(*(_png(drawing, theme) for theme in (LIGHT, DARK)))


def _png(drawing: Drawing, theme: Theme) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    @styled
    def save(*, theme: Theme) -> bytes:
        figure = drawing(theme)
        FigureCanvasAgg(figure)
        buffer = io.BytesIO()
        # No software version in the file: the same run gives the same bytes.
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
        return buffer.getvalue()

    return save(theme=theme)


def _certified_accuracy(run: Run, theme: Theme) -> Any:
    figure = figure_for_file(7.6, 4.6)
    certified_accuracy(run, axes=figure.subplots(), theme=theme)
    return figure


def _training(run: Run, theme: Theme) -> Any:
    figure = figure_for_file(7.6, 6.2)
    training(run, axes=figure.subplots(3, 1, sharex=True, height_ratios=[2.2, 1.2, 1.2]), theme=theme)
    return figure


def _fates(run: Run, theme: Theme) -> Any:
    """Draw one bar of the images' fates at eps."""
    from matplotlib.patches import Patch

    figure = figure_for_file(7.6, 1.35)
    axes = figure.subplots()
    fate, n = tables.fates(count(run.rows, run.attacks)), len(run.rows)
    attacked = bool(run.attacks)
    parts = [
        ("proved", fate.certified, theme.certified, down),
        ("neither proved nor broken" if attacked else "not proved", fate.undecided, theme.undecided, nearest),
        ("broken", fate.broken, theme.broken, nearest),
        ("misclassified", fate.misclassified, theme.muted, nearest),
    ]
    parts = [part for part in parts if part[1]]
    left = 0.0
    for _, images, colour, _ in parts:
        width = float(percent(images, n))
        axes.barh([0], [width], left=[left], height=0.6, color=colour, linewidth=0)
        left += width
    axes.set(xlim=(0, 100), ylim=(-0.32, 0.32))
    axes.axis("off")
    # A line of its own rather than labels on the bar: most parts are too narrow for theirs.
    names = {f"{rounded(percent(images, n), 2)} % {name}": colour for name, images, colour, rounded in parts}
    figure.legend(
        [Patch(color=colour) for colour in names.values()], list(names), loc="outside lower left", ncols=len(names),
        frameon=False, fontsize=9, handlelength=0.9, handleheight=0.9, handletextpad=0.5, columnspacing=1.6,
        borderpad=0.45, borderaxespad=0,
    )  # fmt: skip
    set_title(axes, f"At ε = {run.summary['eps']}")
    return figure


def _radius_by_class(run: Run, theme: Theme) -> Any:
    lines = tables.by_class(run.rows)
    shown = _extremes(lines)
    columns = min(5 if len(shown) > 6 else 3, len(shown))
    depth = math.ceil(len(shown) / columns)
    figure = figure_for_file(7.6, 0.7 + 1.45 * depth)
    grid = figure.subplots(depth, columns, sharex=True, sharey=True, squeeze=False)
    right = max((line.radii[-1] for line in lines if line.radii), default=0.0) or 1.0
    bins = [right * k / 30 for k in range(31)]
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, line in zip(grid.flat, shown, strict=False):
        if line.radii:
            axes.hist(line.radii, bins=bins, weights=[100 / line.n] * len(line.radii), color=theme.certified)
        axes.axvline(float(run.eps), color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_title(_short(run.classes[line.label], 15), loc="left", fontsize=9, fontweight="bold", pad=16)
        axes.annotate(f"{down(percent(line.certified, line.n), 1)} % certified", (0, 1), (0, 4), color=theme.certified,
                      xycoords="axes fraction", textcoords="offset points", fontsize=8)  # fmt: skip
        axes.tick_params(labelsize=8)
    figure.supxlabel("proved radius, on the 0–1 intensity scale", fontsize=10)
    figure.supylabel("images of the class, %", fontsize=10)
    which = "" if len(shown) == len(lines) else f" (the {len(shown) // 2} least and most robust of {len(lines)})"
    figure.suptitle(f"Proved radius by class{which}, ε = {run.summary['eps']}", x=0.01, ha="left", fontsize=12,
                    fontweight="bold")  # fmt: skip
    return figure


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _extremes(lines: list[tables.ClassLine]) -> list[tables.ClassLine]:
    """Select all classes if they fit, else the least and the most robust by median radius."""
    if len(lines) <= MOST_PANELS:
        return lines
    ordered = sorted(lines, key=lambda line: (line.median, line.label))
    return ordered[: MOST_PANELS // 2] + ordered[-MOST_PANELS // 2 :]


def _confusion(run: Run, theme: Theme) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    size = len(run.classes)
    matrix = tables.confusion(run.rows, size)
    numbers = size <= MOST_NUMBERS
    figure = figure_for_file(5.7, 5.4)
    axes = figure.subplots()
    # The diagonal would outshine the errors: only these are coloured, by their share of the label's images.
    shares = [
        [100 * cell / max(1, sum(line)) if j != i else 0.0 for j, cell in enumerate(line)]
        for i, line in enumerate(matrix)
    ]
    largest = max(max(line) for line in shares) or 1.0
    colours = LinearSegmentedColormap.from_list("errors", [theme.paper, theme.broken])
    axes.imshow(shares, cmap=colours, vmin=0, vmax=largest)
    if numbers:
        for i, line in enumerate(matrix):
            for j, cell in enumerate(line):
                dark = i != j and shares[i][j] > 0.6 * largest
                ink = theme.certified if i == j else theme.paper if dark else theme.ink
                axes.text(j, i, str(cell) if cell else "", ha="center", va="center", color=ink, fontsize=8,
                          fontweight="bold" if i == j else "normal")  # fmt: skip
        names = [_short(name, 12) for name in run.classes]
        long = max(len(name) for name in names) > 3
        axes.set_xticks(range(size), names, rotation=45 if long else 0, ha="right" if long else "center", fontsize=9)
        axes.set_yticks(range(size), names, fontsize=9)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set(xlabel="prediction", ylabel="label")
    set_title(axes, "Confusion matrix, errors shaded" if numbers else f"Confusion matrix of {size} classes")
    return figure


def _margin_vs_method(run: Run, theme: Theme) -> Any:
    method = run.summary["method"]
    gained = gain(run.rows, run.eps, method)
    if gained is None:
        raise ValueError("there is nothing to compare the margin with")
    figure = figure_for_file(5.1, 5.0)
    axes = figure.subplots()
    margins, radii = zip(*gained.pairs, strict=True)
    right = max(*radii, *margins) * 1.04 or 1.0
    axes.plot([0, right], [0, right], color=theme.muted, linewidth=1)
    axes.annotate("equal", (0.8 * right, 0.8 * right), (8, -4), textcoords="offset points", va="top", color=theme.muted)
    axes.scatter(margins, radii, s=8, color=theme.certified, alpha=0.35, linewidth=0)
    axes.set(xlim=(0, right), ylim=(0, right), xlabel="radius by the margin", ylabel=f"radius by {method}")
    axes.set_aspect("equal")
    set_title(axes, f"Mean {down(gained.mean_margin, 4)} by the margin, {down(gained.mean_radius, 4)} by {method}")
    return figure


def compared_chart(panels: Sequence[tuple[str, Sequence[Entry]]]) -> Chart:
    """Draw certified accuracy against time, one panel below another, each with its title and its rows."""
    return _below_one_another(panels, compared)


def fronts_chart(panels: Sequence[tuple[str, Sequence[Point]]]) -> Chart:
    """Draw clean against certified accuracy in the same way."""
    return _below_one_another(panels, fronts)


def _below_one_another(panels: Sequence[tuple[str, Sequence[Any]]], draw_panel: Drawing) -> Chart:
    """Draw panels of one kind. Needs matplotlib, the extra `report`."""
    require_matplotlib()

    def drawing(theme: Theme) -> Any:
        figure = figure_for_file(7.6, 4.2 * len(panels))
        places = figure.subplots(len(panels), squeeze=False).flat
        for axes, (title, rows) in zip(places, panels, strict=True):
            draw_panel(rows, title, axes=axes, theme=theme)
        return figure

    return both(drawing)
