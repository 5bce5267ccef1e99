"""Draw each chart twice: on white and on dark. Figures are plain objects; pyplot's global state is not used."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..numbers import down, nearest, percent, up
from ..rows import count
from ..runs import Run
from . import tables

DPI = 200  # twice that of a screen
LABEL = 6.5  # height of a line of text in the chart of certified accuracy, in points of accuracy
MOST_PANELS = 12  # classes with a histogram of their own
MOST_NUMBERS = 12  # classes up to which the confusion matrix shows its counts
MOST_CELLS = 1000  # classes up to which there is a confusion matrix


@dataclass(frozen=True)
class Theme:
    """Colours after Okabe and Ito: colour-blind people tell them apart, and so does a grey print."""

    paper: str
    ink: str
    muted: str
    grid: str
    certified: str
    undecided: str
    broken: str
    clean: str
    attacks: tuple[str, ...]


LIGHT = Theme(
    paper="#ffffff", ink="#1b1f24", muted="#6a737d", grid="#e6e8eb", certified="#0072b2", undecided="#a8cbe3",
    broken="#d55e00", clean="#4d5560", attacks=("#d55e00", "#cc79a7", "#e69f00"),
)  # fmt: skip
DARK = Theme(
    paper="#16191d", ink="#e6e8eb", muted="#98a1ab", grid="#2a2f36", certified="#56b4e9", undecided="#24577a",
    broken="#e8853f", clean="#b9c0c8", attacks=("#e8853f", "#d99abf", "#f0c04a"),
)  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """The bytes of two PNGs of the same chart."""

    light: bytes
    dark: bytes


def require_matplotlib() -> None:
    """Raise an ImportError that says how to install it, unless matplotlib is there."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("reports need the extra: pip install 'linfdist[report]'") from None


def draw(run: Run) -> dict[str, Chart]:
    """Every chart that the run has the data for, by the name of its PNG."""
    require_matplotlib()
    drawings = {"certified_accuracy": _certified_accuracy, "fates": _fates, "radius_by_class": _radius_by_class}
    if len(run.classes) <= MOST_CELLS:
        drawings["confusion"] = _confusion
    if run.metrics:
        drawings["training"] = _training
    if tables.gain(run.rows, run.eps, run.summary["method"]):
        drawings["margin_vs_method"] = _margin_vs_method
    return {name: Chart(*(_png(drawing, run, theme) for theme in (LIGHT, DARK))) for name, drawing in drawings.items()}


def _png(drawing: Any, run: Run, theme: Theme) -> bytes:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    style: dict[Any, Any] = {
        "text.parse_math": False,  # a class may be called $x_1
        "font.family": "DejaVu Sans", "font.size": 10, "text.color": theme.ink, "figure.facecolor": theme.paper,
        "axes.facecolor": theme.paper, "axes.edgecolor": theme.muted, "axes.labelcolor": theme.ink,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
        "axes.linewidth": 0.8, "grid.color": theme.grid, "grid.linewidth": 0.8, "xtick.color": theme.muted,
        "ytick.color": theme.muted, "xtick.labelcolor": theme.ink, "ytick.labelcolor": theme.ink,
        "xtick.major.size": 0, "ytick.major.size": 0, "ytick.minor.size": 0, "xtick.major.pad": 6,
        "lines.linewidth": 2, "lines.solid_capstyle": "round",
    }  # fmt: skip
    with mpl.rc_context(style):
        figure = drawing(run, theme)
        FigureCanvasAgg(figure)
        buffer = io.BytesIO()
        # No software version in the file: the same run gives the same bytes.
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Positions for labels, at least `gap` apart, in the same order, near where they are wanted."""
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
    """Positions for labels that may only move up, and none below `lowest`. wanted: ascending."""
    placed: list[float] = []
    for value in wanted:
        placed.append(max(value, placed[-1] + gap if placed else lowest))
    return placed


def _start(block: Sequence[int], wanted: Sequence[float], gap: float) -> float:
    return sum(wanted[k] for k in block) / len(block) - gap * (len(block) - 1) / 2


def _end(block: Sequence[int], wanted: Sequence[float], gap: float) -> float:
    return _start(block, wanted, gap) + gap * (len(block) - 1)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _title(axes: Any, text: str, pad: float = 10) -> None:
    axes.set_title(text, loc="left", fontsize=12, fontweight="bold", pad=pad)


def _certified_accuracy(run: Run, theme: Theme) -> Any:
    figure = _figure(7.6, 4.6)
    axes = figure.subplots()
    counted, eps = count(run.rows, run.attacks), float(run.eps)
    n, method = counted.n, run.summary["method"]
    xs, ys = tables.curve(run.rows, run.eps)
    right = max(1.08 * xs[-1], 1.5 * eps) or 1.0  # leaves room for the labels beside eps
    axes.step(xs, ys, where="pre", color=theme.certified)
    axes.fill_between(xs, ys, step="pre", color=theme.certified, alpha=0.10, linewidth=0)
    gained = tables.gain(run.rows, run.eps, method)
    if gained and gained.mean_radius - gained.mean_margin > 0.004 * right:  # less is a line's width: one curve
        _margin_curve(axes, run, right, theme)
    axes.axvline(eps, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(f"ε = {run.summary['eps']}", (eps, 1), (0, 3), xycoords=("data", "axes fraction"),
                  textcoords="offset points", color=theme.muted, ha="center", va="bottom")  # fmt: skip
    proved = percent(counted.certified, n)
    labels = [(float(proved), f"{down(proved, 2)} % certified", theme.certified)]
    for k, (name, images) in enumerate(counted.surviving.items()):
        share = percent(images, n)
        labels.append((float(share), f"{up(share, 2)} % survive {name}", theme.attacks[k % len(theme.attacks)]))
    labels.sort(key=lambda label: label[0])
    # Upwards, in order: the curves fall, so that nothing is drawn to the right of the certified point and above it.
    places = stacked([value for value, _, _ in labels], float(proved) + 0.8 * LABEL, LABEL)
    for (value, _, colour), y in reversed(list(zip(labels, places, strict=True))):  # what is proved comes on top
        axes.plot([eps, eps + 0.025 * right], [value, y], color=colour, linewidth=0.8, clip_on=False)
        axes.plot([eps], [value], "o", color=colour, markersize=6, clip_on=False, zorder=4)
    clean = f"{nearest(percent(counted.clean, n), 2)} % clean"
    axes.plot([0], [ys[0]], "o", color=theme.clean, clip_on=False, zorder=3)
    texts = [(eps + 0.03 * right, y, text, colour) for (_, text, colour), y in zip(labels, places, strict=True)]
    if eps < 0.2 * right:  # too near to the axis for a label between the two
        texts.append((eps + 0.03 * right, max(ys[0], places[-1] + LABEL), clean, theme.clean))
    else:
        texts.append((0.015 * right, ys[0] + 0.8 * LABEL, clean, theme.clean))
    for x, y, text, colour in texts:
        box = {"boxstyle": "round,pad=0.1", "facecolor": theme.paper, "edgecolor": "none"}
        axes.text(x, y, text, color=colour, va="center", bbox=box)
    top = max(y for _, y, _, _ in texts) + 0.8 * LABEL
    axes.set(xlim=(0, right), ylim=(0, max(104, top)), xlabel="ℓ∞ radius, in pixels of [0, 1]", ylabel="images, %")
    axes.set_yticks(range(0, 101, 20))
    _title(axes, "Certified accuracy against radius", pad=24)
    return figure


def _margin_curve(axes: Any, run: Run, right: float, theme: Theme) -> None:
    """Draw a dashed curve; its label is below and to the left of one of its points, where no curve is, clear of eps."""
    xs, ys = tables.curve(run.rows, run.eps, margin=True)
    axes.step(xs, ys, where="pre", color=theme.muted, linewidth=1, linestyle=(0, (2, 2)), zorder=1.5)
    text, width = "dashed: by the margin", 0.27 * right
    points = [next(k for k, y in enumerate(ys) if y <= level * ys[0]) for level in (0.6, 0.8, 0.4, 0.25)]
    for k in points:
        if xs[k] > width and not xs[k] - width < float(run.eps) < xs[k]:
            axes.annotate(text, (xs[k], ys[k]), (-8, -4), textcoords="offset points", color=theme.muted, ha="right",
                          va="top")  # fmt: skip
            return
    axes.annotate(text, (1, 0), (-4, 8), xycoords="axes fraction", textcoords="offset points", color=theme.muted,
                  ha="right")  # fmt: skip


def _fates(run: Run, theme: Theme) -> Any:
    """Draw one bar: what is known of the images at eps."""
    from matplotlib.patches import Patch

    figure = _figure(7.6, 1.35)
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
    _title(axes, f"At ε = {run.summary['eps']}")
    return figure


def _training(run: Run, theme: Theme) -> Any:
    from matplotlib.ticker import MaxNLocator

    figure = _figure(7.6, 6.2)
    accuracy, loss, norm = figure.subplots(3, 1, sharex=True, height_ratios=[2.2, 1.2, 1.2])
    epochs = [float(row["epoch"]) for row in run.metrics]
    named = (
        ("train_accuracy", "training", theme.muted),
        ("clean", "clean, p = ∞", theme.clean),
        ("certified", "certified, p = ∞", theme.certified),
    )
    ends = []
    for key, name, colour in named:
        values = _column(run.metrics, key)
        if any(math.isfinite(value) for value in values):
            accuracy.plot(epochs, values, color=colour, linewidth=1.2 if key == "train_accuracy" else 2)
            ends.append((next(value for value in reversed(values) if math.isfinite(value)), name, colour))
    for (_, name, colour), y in zip(ends, spread([end for end, _, _ in ends], 8.0), strict=True):
        accuracy.annotate(
            name, (1.01, y), xycoords=("axes fraction", "data"), color=colour, va="center", annotation_clip=False
        )
    accuracy.set(ylim=(0, 104), ylabel="images, %")
    loss.plot(epochs, _column(run.metrics, "loss"), color=theme.ink, linewidth=1.5)
    loss.set(ylabel="loss")
    finite = [(epoch, row["p"]) for epoch, row in zip(epochs, run.metrics, strict=True) if row.get("p") is not None]
    if finite:
        norm.plot(*zip(*finite, strict=True), color=theme.ink, linewidth=1.5)
        norm.set_yscale("log")
        norm.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        norm.yaxis.set_minor_formatter(lambda value, _: "")
    infinite = [epoch for epoch, row in zip(epochs, run.metrics, strict=True) if row.get("p", 0) is None]
    if infinite:
        start = finite[-1][0] if finite else epochs[0]
        for axes in (accuracy, loss, norm):
            axes.axvspan(start, epochs[-1], color=theme.certified, alpha=0.10, linewidth=0)
        norm.annotate("p = ∞", (1.01, 0.5), xycoords="axes fraction", color=theme.certified, va="center",
                      annotation_clip=False)  # fmt: skip
    norm.xaxis.set_major_locator(MaxNLocator(integer=True))
    if epochs[-1] > epochs[0]:
        norm.set_xlim(epochs[0], epochs[-1])
    norm.set(xlabel="epoch", ylabel="p")
    _title(accuracy, "Training")
    return figure


def _column(metrics: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """The numbers of that name; NaN, which leaves a gap, where an epoch has none."""
    values = (row.get(key) for row in metrics)
    return [float(value) if isinstance(value, int | float) else math.nan for value in values]


def _radius_by_class(run: Run, theme: Theme) -> Any:
    lines = tables.by_class(run.rows)
    shown = _extremes(lines)
    columns = min(5 if len(shown) > 6 else 3, len(shown))
    depth = math.ceil(len(shown) / columns)
    figure = _figure(7.6, 0.7 + 1.45 * depth)
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
    figure.supxlabel("proved radius, in pixels of [0, 1]", fontsize=10)
    figure.supylabel("images of the class, %", fontsize=10)
    which = "" if len(shown) == len(lines) else f" (the {len(shown) // 2} least and most robust of {len(lines)})"
    figure.suptitle(f"Proved radius by class{which}, ε = {run.summary['eps']}", x=0.01, ha="left", fontsize=12,
                    fontweight="bold")  # fmt: skip
    return figure


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _extremes(lines: list[tables.ClassLine]) -> list[tables.ClassLine]:
    """All classes if they fit, else the least and the most robust by median radius."""
    if len(lines) <= MOST_PANELS:
        return lines
    ordered = sorted(lines, key=lambda line: (line.median, line.label))
    return ordered[: MOST_PANELS // 2] + ordered[-MOST_PANELS // 2 :]


def _confusion(run: Run, theme: Theme) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    size = len(run.classes)
    matrix = tables.confusion(run.rows, size)
    numbers = size <= MOST_NUMBERS
    figure = _figure(5.7, 5.4)
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
    _title(axes, "Confusion matrix, errors shaded" if numbers else f"Confusion matrix of {size} classes")
    return figure


def _margin_vs_method(run: Run, theme: Theme) -> Any:
    method = run.summary["method"]
    gained = tables.gain(run.rows, run.eps, method)
    if gained is None:
        raise ValueError("there is nothing to compare the margin with")
    figure = _figure(5.1, 5.0)
    axes = figure.subplots()
    margins, radii = zip(*gained.pairs, strict=True)
    right = max(*radii, *margins) * 1.04 or 1.0
    axes.plot([0, right], [0, right], color=theme.muted, linewidth=1)
    axes.annotate("equal", (0.8 * right, 0.8 * right), (8, -4), textcoords="offset points", va="top", color=theme.muted)
    axes.scatter(margins, radii, s=8, color=theme.certified, alpha=0.35, linewidth=0)
    axes.set(xlim=(0, right), ylim=(0, right), xlabel="radius by the margin", ylabel=f"radius by {method}")
    axes.set_aspect("equal")
    _title(axes, f"Mean {down(gained.mean_margin, 4)} by the margin, {down(gained.mean_radius, 4)} by {method}")
    return figure
