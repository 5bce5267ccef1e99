"""Chart of clean against certified accuracy: what several methods can trade for each other."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from .curves import in_legend
from .style import LIGHT, Theme, new_figure, set_title, styled

ROOM = 0.08  # around the points, in parts of their extent
FAR = 0.8  # of the least accuracy of a front: trials below that are left out
FAINT = 0.35


class Point(Protocol):
    """The accuracies of one network, in percent, and the method that made it."""

    @property
    def title(self) -> str: ...
    @property
    def clean(self) -> float: ...
    @property
    def certified(self) -> float: ...
    @property
    def ours(self) -> bool: ...


AnyPoint = TypeVar("AnyPoint", bound=Point)


def front(points: Sequence[AnyPoint]) -> list[AnyPoint]:
    """Return the points that no other one beats: as good in both accuracies, and better in one. The cleanest first."""
    best: list[AnyPoint] = []
    for point in sorted(points, key=lambda each: (-each.clean, -each.certified)):
        if not best or point.certified > best[-1].certified or _equal(point, best[-1]):
            best.append(point)
    return best


def _equal(one: Point, other: Point) -> bool:
    return (one.clean, one.certified) == (other.clean, other.certified)


@styled
def fronts(rows: Sequence[Point], title: str = "", *, axes: Any = None, theme: Theme = LIGHT) -> Any:
    """Draw the front of each method in clean and certified accuracy, and its other trials as faint points.

    rows: of one search, as `linfdist tune` keeps them. Ours are thicker. Trials far below every front are left out.
    axes: matplotlib's axes to draw into; by default new ones. theme: `linfdist.report.plots.LIGHT` or `DARK`.

    Returns:
        The axes.
    """
    if not rows:
        raise ValueError("rows: there are none; there is nothing to draw")
    axes = new_figure(7.6, 4.6).subplots() if axes is None else axes
    methods = {name: [row for row in rows if row.title == name] for name in dict.fromkeys(row.title for row in rows)}
    best = {name: front(few) for name, few in methods.items()}
    least = [FAR * min(getattr(row, key) for few in best.values() for row in few) for key in ("clean", "certified")]
    shown = [row for row in rows if row.clean >= least[0] and row.certified >= least[1]]
    left, right = _around([row.clean for row in shown])
    bottom, top = _around([row.certified for row in shown])
    for number, (name, few) in enumerate(methods.items()):
        colour, ours = theme.series[number % len(theme.series)], few[0].ours
        axes.scatter([row.clean for row in few], [row.certified for row in few], s=16, color=colour, alpha=FAINT,
                     linewidth=0)  # fmt: skip
        xs, ys = [row.clean for row in best[name]], [row.certified for row in best[name]]
        axes.plot([xs[0], *xs, left], [bottom, *ys, ys[-1]], color=colour, linewidth=2.2 if ours else 1.2,
                  drawstyle="steps-post", zorder=4 if ours else 3, label=in_legend(name))  # fmt: skip
        axes.plot(xs, ys, "o", color=colour, markersize=6 if ours else 4.5, zorder=4 if ours else 3)
    axes.set(xlim=(left, right), ylim=(bottom, top))
    axes.set(xlabel="correct, %", ylabel="certified, %")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))  # beside: fronts may be anywhere
    set_title(axes, title or "Certified against clean accuracy")
    return axes


def _around(values: Sequence[float]) -> tuple[float, float]:
    """Return the limits of an axis that shows all of these percentages."""
    room = ROOM * (max(values) - min(values)) or 1.0
    return max(0.0, min(values) - room), min(100.0, max(values) + room)
