"""Show a run as one page: reports read rows, never models. `plots` draws into matplotlib's axes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..eps import Eps
from ..files import remove_leftovers, write_atomically
from ..lazy import lazy_names
from ..runs.folder import Run

if TYPE_CHECKING:
    from . import plots

__all__ = ["plots", "write", "write_assurance", "write_comparison"]
__getattr__, _ = lazy_names(__name__, {"plots": ""})  # it needs NumPy, and the charts need torch

PICTURES = ("certified_accuracy", "fates", "radius_by_class", "confusion", "training", "margin_vs_method", "gallery")


def write(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the report into `out` (default: RUN/report) and return the page's path.

    Pictures of an earlier report that this run has no data for are removed. Needs matplotlib, the extra `report`.
    """
    from .charts import draw
    from .gallery import halves, sheet
    from .html import page
    from .plots.style import require_matplotlib

    require_matplotlib()
    content = Run(run)
    content.check_evaluated()
    target = Path(run) / "report" if out is None else Path(out)
    charts = draw(content)
    images = {name: chart.light for name, chart in charts.items()}
    if parts := halves(content):
        images["gallery"] = sheet(parts, content.classes)
    return _save(page(content, charts), images, target)


def write_assurance(
    run: str | Path, out: str | Path | None = None, network: Mapping[str, Any] | None = None
) -> tuple[Path, Path]:
    """Write assurance.json and assurance.html into `out` (default: RUN/report) and return their paths.

    They say what was assessed, by what method, and what that rests on. network: facts about the network, see
    `report.assurance`.
    """
    from .assurance import assurance, page

    content = assurance(Run(run), network)
    target = Path(run) / "report" if out is None else Path(out)
    target.mkdir(parents=True, exist_ok=True)
    written = target / "assurance.json", target / "assurance.html"
    write_atomically(written[0], json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    write_atomically(written[1], page(content, Run(run).name))
    return written


def write_comparison(
    runs: Sequence[str | Path], out: str | Path, *, eps: Sequence[Eps] = (), data_dir: str | Path | None = None
) -> Path:
    """Write one page about several evaluated runs into `out` and return its path. Needs matplotlib.

    eps: further radii at which to count certified images. data_dir: where to load the images on which the runs differ.
    """
    from .plots.style import require_matplotlib
    from .several import compare

    require_matplotlib()
    contents = [Run(run) for run in runs]
    for content in contents:
        content.check_evaluated()
    text, charts = compare(contents, eps, data_dir)
    return _save(text, {name: chart.light for name, chart in charts.items()}, Path(out))


def _save(text: str, images: Mapping[str, bytes], target: Path) -> Path:
    """Write the page and its pictures; those of an earlier page that this one has no data for are removed."""
    target.mkdir(parents=True, exist_ok=True)
    replaces = (target / "report.html").exists()  # otherwise a picture of that name is somebody else's
    remove_leftovers(target / "report.html")  # of a report that was killed while it was written
    for name in PICTURES:
        remove_leftovers(target / f"{name}.png")
        if name in images:
            write_atomically(target / f"{name}.png", images[name])
        elif replaces:
            (target / f"{name}.png").unlink(missing_ok=True)
    write_atomically(target / "report.html", text)
    return target / "report.html"
