"""The chart of certified accuracy against training time, for many methods."""

from collections.abc import Sequence
from typing import Any, Protocol

from .labels import spread
from .theme import LIGHT, Theme, new_figure, set_title, styled

LABEL = 4.6  # height of a line of text, in percent of the axis
MARKS = "os^Dv<>PX"


class Short(Protocol):
    """A short training: how it did on held-out images."""

    @property
    def seconds(self) -> float: ...
    @property
    def certified(self) -> float: ...


class Entry(Protocol):
    """A method: its training, percent of the test images that are certified, and the trial that led to it, if any."""

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

    rows: of one data set, as `linfdist compare` keeps them. Full marks: the training, on test images. Hollow marks: the
    trial that led to it, on held-out images. Ours, the methods whose title begins with ℓ∞, are in colour.
    axes: matplotlib's axes to draw into; by default new ones. theme: `linfdist.plots.LIGHT` or `DARK`.

    Returns:
        The axes.
    """
    if not rows:
        raise ValueError("rows: there are none; there is nothing to draw")
    axes = new_figure(7.6, 4.6).subplots() if axes is None else axes
    ordered = sorted(rows, key=lambda row: row.certified)
    points = [(point.seconds, point.certified) for row in rows for point in (row, row.led) if point is not None]
    top = max(10.0, 1.12 * max(certified for _, certified in points))
    places = spread([row.certified for row in ordered], LABEL / 100 * top)
    low = min(places[0] - LABEL / 200 * top, -0.02 * top)
    latest = max(row.seconds for row in rows)
    for number, (row, place) in enumerate(zip(ordered, places, strict=True)):
        ours = row.ours
        colour, mark = theme.certified if ours else theme.clean, MARKS[number % len(MARKS)]
        if (led := row.led) is not None:
            axes.plot([led.seconds, row.seconds], [led.certified, row.certified], color=colour, linewidth=1, alpha=0.6)
            axes.plot([led.seconds], [led.certified], mark, color=colour, markerfacecolor=theme.paper, zorder=3)
        axes.plot([row.seconds], [row.certified], mark, color=colour, zorder=4)
        axes.plot([row.seconds, 1.12 * latest], [row.certified, place], color=colour, linewidth=0.6, alpha=0.6)
        axes.text(1.15 * latest, place, row.title, color=colour, va="center", fontsize=9,
                  fontweight="bold" if ours else "normal")  # fmt: skip
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
