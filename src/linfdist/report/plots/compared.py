"""The chart of certified accuracy against training time, for many methods."""

from collections.abc import Sequence
from typing import Any, Protocol

from .labels import spread
from .theme import LIGHT, Theme, new_figure, set_title, styled

LABEL = 4.6  # height of a line of text, in percent of the axis


class Short(Protocol):
    """A short training: how it did on held-out images."""

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
    places = spread([course[-1].certified for course in methods], LABEL / 100 * top)
    low = min(places[0] - LABEL / 200 * top, -0.02 * top)
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
    """The rows of each method, the shortest training first."""
    ordered = sorted(rows, key=lambda row: row.seconds)
    return [[row for row in ordered if row.title == title] for title in dict.fromkeys(row.title for row in ordered)]
