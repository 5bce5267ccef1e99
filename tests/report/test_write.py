"""`linfdist report`, with its charts."""

import builtins
import io
import itertools
import shutil

import pytest
from PIL import Image
from typer.testing import CliRunner

from linfdist.cli import app
from linfdist.report.charts import _certified_accuracy as certified_accuracy
from linfdist.report.charts import _training as training
from linfdist.report.gallery import halves, sheet
from linfdist.report.plots import LIGHT
from linfdist.report.plots.curves import curve
from linfdist.report.plots.style import spaced, stacked

from .test_html import HOSTILE, Page, attack
from .test_run import at_eps, edit_rows, edit_summary, read_run


@pytest.fixture
def call(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib", reason="the extra `report` is not installed")


def test_a_whole_report(run, call, matplotlib):
    edit_rows(run, attack)
    result = call(run)
    assert result.exit_code == 0, result.output
    folder = run / "report"
    pictures = {path.stem for path in folder.glob("*.png")}
    assert {"certified_accuracy", "fates", "radius_by_class", "confusion", "training", "gallery"} <= pictures
    for path in folder.glob("*.png"):
        with Image.open(path) as image:
            assert (
                image.width >= 1000 or path.stem == "gallery"
            )  # sharp on a slide; a gallery is as wide as it has images
            assert len(image.convert("L").getcolors(256) or range(256)) > 3  # something is drawn
    shown = Page((folder / "report.html").read_text())
    assert shown.tags.count("picture") == len(pictures) - 1  # the gallery is pictures of its own
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("eps", ["0.01", "0.1", "0.25", "0.5"])
@pytest.mark.parametrize("attacks", [(), ("pgd", "strong", "auto")])
def test_no_label_on_a_curve_or_on_another_label(run, matplotlib, eps, attacks):
    edit_rows(run, at_eps(eps, attacks), eps=eps)
    content = read_run(run)
    figure = certified_accuracy(content, LIGHT)
    renderer = pytest.importorskip("matplotlib.backends.backend_agg").FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    axes = figure.axes[0]
    assert len(axes.texts) >= 3 + len(attacks)  # eps, certified, clean
    boxes = [text.get_window_extent(renderer) for text in axes.texts]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    xs, ys = curve(content.rows, content.eps)

    def height(x):
        return next((y for known, y in zip(xs, ys, strict=True) if known >= x), 0.0)

    for text, box in zip(axes.texts, boxes, strict=True):
        assert figure.bbox.contains(*box.min)
        assert figure.bbox.contains(*box.max)
        (left, bottom), (right, top) = axes.transData.inverted().transform(box.get_points())
        # The curve falls: it meets the box only if it is not below the box at the left, and not above it at the right.
        assert height(left) < bottom or height(right) > top, text.get_text()


def test_epochs_are_whole(run, matplotlib):
    figure = training(read_run(run), LIGHT)
    figure.draw_without_rendering()
    ticks = figure.axes[-1].get_xticks()
    assert len(ticks) >= 3
    assert all(float(tick).is_integer() for tick in ticks)


def test_gallery_titles_are_not_cut(run):
    """Of a few images, the titles are wider than the columns."""
    content = read_run(run)
    few = {"Least robust": halves(content)["Least robust"][:1]}
    with Image.open(io.BytesIO(sheet(few, content.classes))) as image:
        shades = image.convert("L")
        assert shades.crop((shades.width - 8, 0, *shades.size)).getextrema() == (255, 255)
        title = shades.crop((0, 0, shades.width, 60)).point(lambda shade: 255 - shade).getbbox()
        assert title[2] > 500


@pytest.mark.slow
def test_same_run_same_files(run, call, tmp_path, matplotlib):
    """The folder's name is the title: the same run in another place, under the same name."""
    other = shutil.copytree(run, tmp_path / "elsewhere" / "run")
    assert call(run).exit_code == call(other).exit_code == 0
    names = {path.name for path in (run / "report").iterdir()}
    assert names == {path.name for path in (other / "report").iterdir()}
    for name in names:
        assert (run / "report" / name).read_bytes() == (other / "report" / name).read_bytes(), name


def test_pictures_without_data_are_removed(run, call, tmp_path, matplotlib):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("training.png", "gallery.png", "mine.png"):
        (out / name).write_bytes(b"of an earlier report, or of somebody else")
    (out / "report.html").write_text("an earlier report")
    for name in ("metrics.jsonl", "gallery.safetensors"):
        (run / name).unlink()
    assert call(run, "--out", out).exit_code == 0
    left = {path.stem for path in out.glob("*.png")}
    assert not left & {"training", "gallery"}
    assert "mine" in left


def test_pictures_of_somebody_else_stay(run, call, tmp_path, matplotlib):
    (tmp_path / "training.png").write_bytes(b"not of a report")
    (run / "metrics.jsonl").unlink()
    assert call(run, "--out", tmp_path).exit_code == 0
    assert (tmp_path / "training.png").read_bytes() == b"not of a report"


def test_class_names_are_no_formulas(run, call, matplotlib):
    """Text between two dollars is mathematics to matplotlib, and wrong mathematics an error."""
    edit_summary(run, classes=[r"$\frac{$", HOSTILE, "$x$", *"3456789"])
    result = call(run)
    assert result.exit_code == 0, result.output


def test_without_matplotlib(run, call, monkeypatch):
    original = builtins.__import__

    def missing(name, *arguments, **options):
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    result = call(run)
    assert result.exit_code == 1
    assert "pip install matplotlib" in result.output
    assert not (run / "report").exists()


def test_a_missing_file_is_an_error(run, call, matplotlib):
    (run / "rows.jsonl").unlink()
    result = call(run)
    assert result.exit_code == 1
    assert "has no rows.jsonl" in result.output
    assert not (run / "report").exists()


def test_stacked():
    assert stacked([88.0, 88.0, 90.0, 99.5], 92.0, 5.0) == [92.0, 97.0, 102.0, 107.0]
    assert stacked([20.0, 60.0], 24.0, 5.0) == [24.0, 60.0]


@pytest.mark.parametrize("wanted", [[88.8, 88.9, 89.5], [10.0, 50.0, 52.0], [3.0, 2.0, 1.0], [5.0], []])
def test_spread(wanted):
    placed = spaced(wanted, 6.0)
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    for lower, upper in itertools.pairwise(order):
        assert placed[upper] - placed[lower] >= 6 - 1e-9
    assert sum(placed) == pytest.approx(sum(wanted))  # nobody is pushed further than needed
