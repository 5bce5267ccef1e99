"""The chart of methods side by side: certified accuracy against training time."""

from collections.abc import Sequence
from typing import Any

from .charts import Chart, both
from .plots.compared import Entry, compared
from .plots.theme import Theme, figure_for_file, require_matplotlib


def chart(panels: Sequence[tuple[str, Sequence[Entry]]]) -> Chart:
    """Draw one panel below another, each with its title and its rows. Needs matplotlib, the extra `report`."""
    require_matplotlib()

    def drawing(theme: Theme) -> Any:
        figure = figure_for_file(7.6, 4.2 * len(panels))
        places = figure.subplots(len(panels), squeeze=False).flat
        for axes, (title, rows) in zip(places, panels, strict=True):
            compared(rows, title, axes=axes, theme=theme)
        return figure

    return both(drawing)
