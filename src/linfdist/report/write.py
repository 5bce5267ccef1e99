"""Writes the report of a run: report.html, and each chart as a PNG."""

import os
from pathlib import Path

from ..files import write_atomically
from .gallery import sheet
from .html import page
from .plots import draw, require_matplotlib
from .run import read_run

PICTURES = ("certified_accuracy", "fates", "radius_by_class", "confusion", "training", "margin_vs_method", "gallery")


def write(run: Path, out: Path | None = None) -> Path:
    """Write the report into `out` (default: RUN/report) and return the page's path.

    Pictures of an earlier report that this run has no data for are removed. Needs matplotlib, the extra `report`.
    """
    require_matplotlib()
    content = read_run(run)
    target = out or run / "report"
    charts = draw(content)
    images = {name: chart.light for name, chart in charts.items()}
    if content.gallery and content.gallery.exhibits:
        images["gallery"] = sheet(content.gallery)
    text = page(content, charts)
    target.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        if name in images:
            _write_bytes(target / f"{name}.png", images[name])
        else:
            (target / f"{name}.png").unlink(missing_ok=True)
    write_atomically(target / "report.html", text)
    return target / "report.html"


def _write_bytes(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
