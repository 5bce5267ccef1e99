"""The pictures of the results page, each as the bytes of a PNG. Needs matplotlib, the extra `report`."""

import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linfdist.eps import parse_eps
from linfdist.experiments.bench import Report
from linfdist.experiments.bench.report import pairs, ratio
from linfdist.experiments.tables.layout import published_number
from linfdist.experiments.tables.plan import plan
from linfdist.experiments.tables.rows import TableRow
from linfdist.models.zoo.cards import Card
from linfdist.recipes.networks import NETWORKS
from linfdist.report.plots.style import DARK, LIGHT, Theme, require_matplotlib, style

Curves = Mapping[str, Mapping[str, Any]]  # by the network's name: what `tools.curve`, or `tools.times`, has written
PAPER_MINUTES = 800 * 19.7 / 60  # of a plain network on CIFAR-10 on an RTX 3090: epochs of Table 6, seconds of Table 4
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d5560")  # Okabe and Ito
_DPI = 150


def draw(
    cards: Sequence[Card],
    curves: Curves,
    rows: Sequence[TableRow],
    speed: Report | None = None,
    times: Curves | None = None,
    undefended: Curves | None = None,
) -> dict[str, bytes]:
    """Draw the pictures that there are numbers for, by name."""
    shown = [card for card in cards if card.name in curves]
    drawings: dict[str, Callable[[], Any]] = {}
    if any("certified" in epoch for card in shown for epoch in curves[card.name]["training"]):
        drawings["training"] = lambda: _training(shown, curves)
    if times:
        drawings["time"] = lambda: _time(times)
    if any(row.table == 3 and row.scale == "laptop" for row in rows):
        drawings["ablation"] = lambda: _ablation(rows)
    if any(row.table == 7 and row.scale == "laptop" for row in rows):
        drawings["depth"] = lambda: _depth(rows)
    if speed is not None:
        drawings["speed"] = lambda: _speed(speed)
    if drawings or shown:
        require_matplotlib()
    radii = {
        name: _png(lambda theme=theme: _radius(shown, curves, undefended or {}, theme), _of(theme))  # type: ignore[misc]
        for name, theme in (("radius", LIGHT), ("radius-dark", DARK))
        if shown
    }
    return radii | {name: _png(drawing) for name, drawing in drawings.items()}


def _of(theme: Theme) -> dict[Any, Any]:
    """Return the style of a picture that there is on white and on dark."""
    return {**style(theme), "font.size": 9, "legend.frameon": False, "savefig.facecolor": theme.paper}


def _png(drawing: Callable[[], Any], changes: Mapping[Any, Any] | None = None) -> bytes:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    plain: dict[Any, Any] = {
        "text.parse_math": False, "font.family": "DejaVu Sans", "font.size": 9, "text.color": LIGHT.ink,
        "axes.edgecolor": LIGHT.muted, "axes.labelcolor": LIGHT.ink, "axes.spines.top": False,
        "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.color": LIGHT.grid,
        "xtick.color": LIGHT.muted, "ytick.color": LIGHT.muted, "xtick.labelcolor": LIGHT.ink,
        "ytick.labelcolor": LIGHT.ink, "legend.frameon": False,
    }  # fmt: skip
    with mpl.rc_context({**plain, **(changes or {})}):
        figure = drawing()
        FigureCanvasAgg(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})  # same rows, same bytes
    return buffer.getvalue()


def _panels(count: int, height: float = 3.0) -> tuple[Any, list[Any]]:
    """Make a figure with two panels per line."""
    from matplotlib.figure import Figure

    columns = min(count, 2)
    lines = -(-count // columns)
    figure = Figure(figsize=(4.2 * columns, height * lines), layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


def _by_data(cards: Sequence[Card]) -> dict[str, list[Card]]:
    return {data: [card for card in cards if card.data == data] for data in dict.fromkeys(card.data for card in cards)}


def _radius(cards: Sequence[Card], curves: Curves, undefended: Curves, theme: Theme) -> Any:
    """Draw one network for each data set, that for the largest radius, and an ordinary one where it is measured."""
    groups = _by_data(cards)
    figure, panels = _panels(len(groups))
    for axes, (data, group) in zip(panels, groups.items(), strict=True):
        best = max(group, key=lambda card: (parse_eps(card.eps), card.certified))
        axes.plot(*_proved(curves[best.name]["radii"], best.clean), color=theme.certified, label=f"{best.name}: proved")
        if data in undefended:
            # Between two radii, as much is proved as at the larger one; no more can be than survives the smaller one.
            for what, line, steps in (("proved", "-", "steps-pre"), ("survived", (0, (2, 1.5)), "steps-post")):
                label = f"ordinary network: {'proved' if what == 'proved' else 'survives PGD'}"
                points = zip(*undefended[data][f"radius, {what}"], strict=True)
                axes.plot(*points, color=theme.broken, linestyle=line, drawstyle=steps, label=label)
        axes.axvline(float(parse_eps(best.eps)), color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_title(f"{data}, ε = {best.eps}", loc="left", fontweight="bold")
        axes.set(xlim=(0, None), ylim=(0, 100), xlabel="ℓ∞ radius, on the 0–1 intensity scale", ylabel="% of images")
        axes.locator_params(axis="x", nbins=6)
        axes.legend(frameon=True, facecolor=theme.paper, edgecolor="none", framealpha=1, loc="best")
    return figure


def _proved(radii: Sequence[float], clean: float) -> tuple[list[float], list[float]]:
    """Return the curve of what is proved, from what is right at radius 0 to the largest radius."""
    points = [(radius, 100 * (k + 1) / len(radii)) for k, radius in enumerate(radii) if radius > 0]
    curve = [(0.0, clean), *reversed(points)]
    return [x for x, _ in curve], [y for _, y in curve]


def _training(cards: Sequence[Card], curves: Curves) -> Any:
    groups = _by_data(cards)
    figure, panels = _panels(len(groups))
    for axes, (data, group) in zip(panels, groups.items(), strict=True):
        for card, colour in zip(group, _COLOURS * len(group), strict=False):
            epochs = [epoch for epoch in curves[card.name]["training"] if "certified" in epoch]
            if not epochs:
                continue
            share = [100 * epoch["epoch"] / epochs[-1]["epoch"] for epoch in epochs]
            axes.plot(share, [epoch["certified"] for epoch in epochs], color=colour, label=card.name)
            axes.plot(share, [epoch["clean"] for epoch in epochs], color=colour, linewidth=0.8, linestyle=(0, (3, 2)))
        axes.set_title(data, loc="left", fontweight="bold")
        axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="epochs, %", ylabel="certified (dashed: clean), %")
        axes.legend(ncols=1 if len(group) < 6 else 2, columnspacing=1, handlelength=1)
    return figure


def _time(times: Curves) -> Any:
    """Draw the courses of trainings; the paper's time, of another machine, is a line on CIFAR-10."""
    sets = list(dict.fromkeys(course["data"] for course in times.values()))
    figure, panels = _panels(len(sets))
    for axes, data in zip(panels, sets, strict=True):
        mine = {name: course for name, course in times.items() if course["data"] == data}
        for (name, course), colour in zip(mine.items(), _COLOURS * len(mine), strict=False):
            axes.plot(*zip(*course["core_minutes, certified"], strict=True), color=colour, label=name)
        if data == "cifar10":
            axes.axvline(
                PAPER_MINUTES, color=LIGHT.muted, linewidth=1, linestyle=(0, (4, 3)),
                label=f"paper: {PAPER_MINUTES / 60:.1f} h on an RTX 3090",
            )  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.set_title(data, loc="left", fontweight="bold")
        axes.set(ylim=(0, None), xlabel="core-minutes of training", ylabel="certified, %")
        axes.legend(loc="upper left")
    return figure


def _mean(rows: Sequence[TableRow], key: str) -> float | None:
    values = [value for row in rows if (value := getattr(row, key)) is not None]
    return statistics.mean(values) if values else None


def _ablation(rows: Sequence[TableRow]) -> Any:
    """Draw ours as bars and the paper's, of networks ten times as wide, as marks."""
    planned = plan(3, "laptop")
    models = list(dict.fromkeys(each.recipe.model for each in planned))
    figure, panels = _panels(len(models))
    for axes, model in zip(panels, models, strict=True):
        mine = [each for each in planned if each.recipe.model == model]
        heights = [_mean([row for row in rows if row.belongs_to(each)], "certified") for each in mine]
        bars = [(k, height) for k, height in enumerate(heights) if height is not None]
        if bars:
            axes.bar(*zip(*bars, strict=True), width=0.6, color=LIGHT.certified, label="here")
        paper = [published_number(each.published, "certified") for each in mine]
        marks = [(k, float(value)) for k, value in enumerate(paper) if value is not None]
        axes.plot(*zip(*marks, strict=True), "_", markersize=18, markeredgewidth=2, color=LIGHT.broken, label="paper")
        labels = [each.label.replace("E without mean shift", "E, no\nshift") for each in mine]
        axes.set_xticks(range(len(mine)), labels)
        axes.set_title(NETWORKS[model].title, loc="left", fontweight="bold")
        axes.set(ylim=(0, 45), ylabel="certified, %")
        axes.legend(loc="upper left", ncols=2)
    return figure


def _depth(rows: Sequence[TableRow]) -> Any:
    planned = plan(7, "laptop")
    figure, panels = _panels(2)
    for axes, (title, ours, theirs) in zip(
        panels, (("training images", "train_clean", "train"), ("test images", "clean", "test")), strict=True
    ):
        for identity, name, colour in ((True, "identity", _COLOURS[0]), (False, "Gaussian", _COLOURS[1])):
            mine = [each for each in planned if each.recipe.identity_init == identity]
            here = [(each.recipe.depth, _mean([row for row in rows if row.belongs_to(each)], ours)) for each in mine]
            here = [(depth, value) for depth, value in here if value is not None]
            if here:
                axes.plot(*zip(*here, strict=True), "o-", color=colour, label=f"{name}, here")
            paper = [(each.recipe.depth, float(published_number(each.published, theirs) or 0)) for each in mine]
            axes.plot(*zip(*paper, strict=True), "--", color=colour, linewidth=1, label=f"{name}, paper")
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set(xlabel="dist layers", ylabel="accuracy, %")
        axes.legend()
    return figure


def _speed(report: Report) -> Any:
    """Draw how many times faster the engine is than what torch offers, with data that favour it least, and others."""
    from matplotlib.figure import Figure

    shown = [pair for pair in pairs(report.rows) if next(iter(pair.values())).measure == "times faster than"]
    figure = Figure(figsize=(8.4, 0.5 + 0.5 * len(shown)), layout="constrained")
    axes = figure.subplots()
    names = {"nothing to prune": _COLOURS[0], "as specified": _COLOURS[5]}
    for number, pair in enumerate(reversed(shown)):
        for k, (data, colour) in enumerate(names.items()):
            if data in pair:
                y = number + 0.18 - 0.36 * k
                axes.barh([y], [pair[data].ratio.median], height=0.34, color=colour)
                axes.annotate(f"{ratio(pair[data])}×", (pair[data].ratio.median, y), (4, 0), va="center",
                              textcoords="offset points")  # fmt: skip
    titles = [next(iter(pair.values())) for pair in reversed(shown)]
    axes.set_yticks(range(len(shown)), [f"p = {row.p} {row.operation}, over {row.rival}" for row in titles])
    axes.set_xscale("log")
    axes.set(xlim=(1, 400), xlabel=f"times faster, {report.settings['threads']} threads")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(visible=False, axis="y")
    axes.legend([axes.barh([0], [0], color=colour) for colour in names.values()], list(names), loc="lower right")
    return figure
