"""Colours and style of all charts, for white and for dark pages, and where their labels go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Theme:
    """Colours after Okabe and Ito, which colour-blind readers and grey prints can tell apart."""

    paper: str
    ink: str
    muted: str
    grid: str
    certified: str
    undecided: str
    broken: str
    clean: str
    attacks: tuple[str, ...]
    series: tuple[str, ...]  # of several runs in one chart


LIGHT = Theme(
    paper="#ffffff", ink="#1b1f24", muted="#6a737d", grid="#e6e8eb", certified="#0072b2", undecided="#a8cbe3",
    broken="#d55e00", clean="#4d5560", attacks=("#d55e00", "#cc79a7", "#e69f00"),
    series=("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#4d5560", "#56b4e9"),
)  # fmt: skip
DARK = Theme(
    paper="#16191d", ink="#e6e8eb", muted="#98a1ab", grid="#2a2f36", certified="#56b4e9", undecided="#24577a",
    broken="#e8853f", clean="#b9c0c8", attacks=("#e8853f", "#d99abf", "#f0c04a"),
    series=("#56b4e9", "#e8853f", "#3cc29a", "#d99abf", "#f0c04a", "#b9c0c8", "#2f86c1"),
)  # fmt: skip


def require_matplotlib() -> None:
    """Raise an ImportError that says how to install it, unless matplotlib is there."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("reports and plots need matplotlib: pip install matplotlib") from None


def style(theme: Theme) -> dict[str, Any]:
    """Return the settings of matplotlib that a theme stands for."""
    return {
        "text.parse_math": False,  # a class may be called $x_1
        "font.family": "DejaVu Sans", "font.size": 10, "text.color": theme.ink, "figure.facecolor": theme.paper,
        "axes.facecolor": theme.paper, "axes.edgecolor": theme.muted, "axes.labelcolor": theme.ink,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
        "axes.linewidth": 0.8, "grid.color": theme.grid, "grid.linewidth": 0.8, "xtick.color": theme.muted,
        "ytick.color": theme.muted, "xtick.labelcolor": theme.ink, "ytick.labelcolor": theme.ink,
        "xtick.major.size": 0, "ytick.major.size": 0, "ytick.minor.size": 0, "xtick.major.pad": 6,
        "lines.linewidth": 2, "lines.solid_capstyle": "round",
    }  # fmt: skip


def styled(drawing: Callable[P, R]) -> Callable[P, R]:
    """Draw in the style of the keyword `theme`; matplotlib's own settings neither matter nor change."""

    @wraps(drawing)
    def draw(*args: P.args, **kwargs: P.kwargs) -> R:
        require_matplotlib()
        import matplotlib as mpl

        theme: Any = kwargs.get("theme", LIGHT)
        settings: dict[Any, Any] = style(theme)
        with mpl.rc_context(settings):
            return drawing(*args, **kwargs)

    return draw


def new_figure(width: float, height: float) -> Any:
    """Create a figure that notebooks show and `plt.show()` finds."""
    import matplotlib.pyplot as plt

    return plt.figure(figsize=(width, height), layout="constrained")


def figure_for_file(width: float, height: float) -> Any:
    """Create a figure that pyplot does not register, so that nothing shows it or keeps it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def set_title(axes: Any, text: str, pad: float = 10) -> None:
    """Set the title of a chart, in the style that all charts share."""
    axes.set_title(text, loc="left", fontsize=12, fontweight="bold", pad=pad)


def spaced(wanted: Sequence[float], gap: float) -> list[float]:
    """Place labels at least `gap` apart, in the same order, near the wanted positions."""
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    placed = [0.0] * len(wanted)
    blocks: list[list[int]] = []
    for k in order:
        blocks.append([k])
        # Merge from the top down: a block sits centred on the mean of what its labels want.
        while len(blocks) > 1 and _start(blocks[-1], wanted, gap) < _end(blocks[-2], wanted, gap) + gap:
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    for block in blocks:
        start = _start(block, wanted, gap)
        for place, k in enumerate(block):
            placed[k] = start + place * gap
    return placed


def stacked(wanted: Sequence[float], lowest: float, gap: float) -> list[float]:
    """Place labels that may only move up, none below `lowest`. wanted: ascending positions."""
    placed: list[float] = []
    for value in wanted:
        placed.append(max(value, placed[-1] + gap if placed else lowest))
    return placed


def _start(block: Sequence[int], wanted: Sequence[float], gap: float) -> float:
    return sum(wanted[k] for k in block) / len(block) - gap * (len(block) - 1) / 2


def _end(block: Sequence[int], wanted: Sequence[float], gap: float) -> float:
    return _start(block, wanted, gap) + gap * (len(block) - 1)
