"""Several runs on one page: their numbers, their curves, and the images on which they differ."""

from collections.abc import Sequence
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from .. import data
from ..eps import Eps, as_text, down, nearest, parse_eps, percent
from ..runs.folder import Run
from ..runs.rows import certified_at, count
from .charts import Chart, both
from .gallery import enlarged, hwc, png
from .html import data_uri, escaped, figure, section, table
from .plots.curves import certified_accuracy, in_legend
from .plots.style import LIGHT, Theme, figure_for_file, set_title

MOST_IMAGES = 12  # that are shown for each run: those whose radii differ most


def compare(
    runs: Sequence[Run], eps: Sequence[Eps] = (), data_dir: str | Path | None = None
) -> tuple[str, dict[str, Chart]]:
    """Return the page that compares evaluated runs, and its charts by name.

    eps: further radii at which to count certified images; rows hold radii, so nothing is computed again.
    """
    if len(runs) > len(LIGHT.series):
        raise ValueError(f"{len(runs)} runs are too many for one page: give at most {len(LIGHT.series)}")
    names = labels(runs)
    charts = {"certified_accuracy": both(lambda theme: _curves(runs, names, theme))}
    if any("certified" in row for run in runs for row in run.metrics):
        charts["training"] = both(lambda theme: _trainings(runs, names, theme))
    parts = [
        section("Numbers", _numbers(runs, names, [parse_eps(each) for each in eps], [as_text(each) for each in eps])),
        section("How far the proofs reach", figure(charts, "certified_accuracy", "Certified accuracy by radius")),
        section("Where they differ", _differences(runs, names, data_dir)),
        section("Training", figure(charts, "training", "Certified accuracy by epoch")),
    ]
    template = Template((files(__package__) / "template.html").read_text(encoding="utf-8"))
    page = template.substitute(
        title=escaped(" · ".join(names)), subtitle=escaped(_subject(runs[0])), body="\n".join(filter(None, parts))
    )
    return page, charts


def labels(runs: Sequence[Run]) -> list[str]:
    """Name the runs after their folders, with as many parent folders as make the names unique."""
    folders = [run.folder.resolve().parts for run in runs]
    if len(set(folders)) < len(folders):
        raise ValueError("a run is given twice: give each folder once")
    names = [run.name for run in runs]
    depth = 1
    while len(set(names)) < len(names):
        depth += 1
        names = ["/".join(folder[-depth:]) for folder in folders]
    return names


def _subject(run: Run) -> str:
    return f"{run.summary.get('data', 'unknown data')} {run.summary.get('split', 'test')}"


def _numbers(runs: Sequence[Run], names: Sequence[str], radii: Sequence[Fraction], texts: Sequence[str]) -> str:
    head = ["run", "ε", "clean, %", "survive, %", "certified, %", "mean radius"]
    rows = []
    for run, name in zip(runs, names, strict=True):
        counted, n = count(run.rows, run.attacks), len(run.rows)
        robust = "–" if counted.robust is None else counted.survive(counted.robust)
        proved = [certified_at(run.rows, radius, run.eps) for radius in radii]
        rows.append([
            escaped(name), escaped(run.summary["eps"]), nearest(percent(counted.clean, n), 2), robust,
            down(percent(counted.certified, n), 2), down(counted.mean_radius or 0, 4),
            *(down(percent(each, n), 2) for each in proved), f"{n:,}", escaped(_subject(run)),
        ])  # fmt: skip
    notes = []
    if len({_subject(run) for run in runs}) > 1 or len({_indices(run) for run in runs}) > 1:
        notes.append("Not comparable: they were measured on different images.")
    if radii:
        notes.append("Certified at other radii is counted from the radii of the rows, which are rounded down.")
    text = table([*head, *(f"at {escaped(each)}, %" for each in texts), "images", "data"], rows)
    return text + "".join(f'<p class="note">{note}</p>' for note in notes)


def _indices(run: Run) -> frozenset[int]:
    return frozenset(row.index for row in run.rows)


def _differences(runs: Sequence[Run], names: Sequence[str], data_dir: str | Path | None) -> str:
    """List, for each run except the first, the images that it certifies and the first does not, and vice versa."""
    first, parts = runs[0], []
    known = {row.index: row for row in first.rows}
    images = _images(first, data_dir)
    for run, name in zip(runs[1:], names[1:], strict=True):
        if _subject(run) != _subject(first) or run.summary["eps"] != first.summary["eps"]:
            parts.append(f"<p>{escaped(name)} has other images or another ε than {escaped(names[0])}.</p>")
            continue
        pairs = [(known[row.index], row) for row in run.rows if row.index in known]
        ours = [pair for pair in pairs if pair[0].certified and not pair[1].certified]
        theirs = [pair for pair in pairs if pair[1].certified and not pair[0].certified]
        together = sum(one.certified and other.certified for one, other in pairs)
        parts.append(
            f"<p>Of {len(pairs):,} images, both prove {together:,}; only {escaped(names[0])} proves {len(ours):,}, "
            f"only {escaped(name)} proves {len(theirs):,}.</p>"
        )
        for title, chosen in ((names[0], ours), (name, theirs)):
            widest = sorted(chosen, key=lambda pair: -abs(pair[0].radius - pair[1].radius))[:MOST_IMAGES]
            if images is None or not widest:
                continue
            figures = [
                f'<figure><img src="{data_uri(png(enlarged(images[one.index] / 255)))}" alt="">\n<figcaption>'
                f"{escaped(first.classes[one.label])}, {down(one.radius, 4)} and {down(other.radius, 4)}<br>"
                f"index {one.index}</figcaption></figure>"
                for one, other in widest
            ]
            parts.append(f"<h3>Proved by {escaped(title)} only</h3>")
            parts.append(f'<div class="thumbs">{"".join(figures)}</div>')
    if images is None:
        parts.append('<p class="note">The images are not shown: their data set is not in the cache.</p>')
    elif len(parts) > len(runs) - 1:
        shown = f"label, radius by {escaped(names[0])} and by the other"
        parts.append(f'<p class="note">Below each image: {shown}. Those whose radii differ most come first.</p>')
    return "\n".join(parts)


def _images(run: Run, data_dir: str | Path | None) -> Any:
    """Return the images of a run, uint8 (N, H, W, 3), or None if they are not at hand."""
    try:
        dataset = data.load(str(run.summary["data"]), str(run.summary.get("split", "test")), data_dir)
    except (OSError, ValueError, KeyError, data.DataError):
        return None
    return hwc(dataset.images)


def _curves(runs: Sequence[Run], names: Sequence[str], theme: Theme) -> Any:
    chart = figure_for_file(7.6, 4.6)
    axes = chart.subplots()
    for run, name in zip(runs, names, strict=True):
        certified_accuracy(run, axes=axes, theme=theme, label=name)
    return chart


def _trainings(runs: Sequence[Run], names: Sequence[str], theme: Theme) -> Any:
    chart = figure_for_file(7.6, 3.6)
    axes = chart.subplots()
    for colour, run, name in zip(theme.series, runs, names, strict=False):
        points = [(row["epoch"], row["certified"]) for row in run.metrics if "certified" in row]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, label=in_legend(name))
    axes.set(xlabel="epoch", ylabel="certified, %", ylim=(0, 104))
    axes.legend(frameon=False)
    set_title(axes, "Certified while training, of held-out or training images")
    return chart
