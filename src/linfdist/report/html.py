"""Write one self-contained page without scripts and requests. Everything that comes from a file is escaped."""

import base64
import html
import shlex
from collections.abc import Iterable, Mapping
from fractions import Fraction
from importlib.resources import files
from string import Template
from typing import Any

from .. import data, recipes
from ..eps import down, nearest, percent, up
from ..errors import printable
from ..recipes.networks import NETWORKS
from ..runs.folder import RECIPE, Run
from ..runs.rows import count
from . import tables
from .charts import Chart
from .gallery import captions, halves, magnification, pictures, png
from .plots.curves import gain
from .published import beside


def page(run: Run, charts: Mapping[str, Chart]) -> str:
    """Build the whole page; the same run gives the same text."""
    parts = [
        _headline(run),
        section("Beside the published numbers", _comparison(run)),
        section("How far the proof reaches", figure(charts, "certified_accuracy", "Certified accuracy by radius")),
        section("How tight the proof is", _tightness(run, charts)),
        section("Classes", _classes(run, charts)),
        section("The most and the least robust images", _gallery(run)),
        section("Training", _training(run, charts)),
        section("Where the numbers come from", _card(run)),
    ]
    template = Template((files(__package__) / "template.html").read_text(encoding="utf-8"))
    return template.substitute(title=escaped(run.name), subtitle=_subtitle(run), body="\n".join(filter(None, parts)))


def escaped(value: object) -> str:
    """Escape text for HTML."""
    return html.escape(printable(value, breaks=True), quote=True)


def section(title: str, content: str) -> str:
    """Build a section, unless it has no content."""
    return f"<section>\n<h2>{escaped(title)}</h2>\n{content}\n</section>" if content else ""


def table(
    head: Iterable[str], rows: Iterable[Iterable[str]], classes: Iterable[str] = (), text_columns: int = 1
) -> str:
    """Build a table of cells that are HTML already; all except the first `text_columns` are numbers."""

    def cells(values: Iterable[str], tag: str) -> str:
        kinds = ("" if column < text_columns else ' class="n"' for column in range(1000))
        return "".join(f"<{tag}{kind}>{value}</{tag}>" for value, kind in zip(values, kinds, strict=False))

    body = [cells(row, "td") for row in rows]
    marks = list(classes) or [""] * len(body)
    lines = (
        f'<tr class="{mark}">{row}</tr>' if mark else f"<tr>{row}</tr>" for row, mark in zip(body, marks, strict=True)
    )
    return f'<div class="wide"><table>\n<tr>{cells(head, "th")}</tr>\n' + "\n".join(lines) + "\n</table></div>"


def data_uri(image: bytes) -> str:
    """Return a PNG as the source of an image."""
    return "data:image/png;base64," + base64.b64encode(image).decode("ascii")


def figure(charts: Mapping[str, Chart], name: str, alt: str) -> str:
    """Build a figure of a chart, light or dark as the reader's page is; an empty text if there is no such chart."""
    if name not in charts:
        return ""
    chart = charts[name]
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{data_uri(chart.dark)}">'
        f'<img src="{data_uri(chart.light)}" alt="{escaped(alt)}"></picture></figure>'
    )


def _subtitle(run: Run) -> str:
    name, split = run.summary.get("data", "unknown data"), run.summary.get("split", "test")
    return (
        f"{escaped(name)} {escaped(split)}, {len(run.rows):,} images, ε = {escaped(run.summary['eps'])}{_domain(run)}"
    )


def _headline(run: Run) -> str:
    counted, n = count(run.rows, run.attacks), len(run.rows)
    cards = [("", f"{nearest(percent(counted.clean, n), 2)} %", "clean accuracy")]
    if counted.robust is not None:
        cards.append(
            ("broken", f"{counted.survive(counted.robust)} %", f"survive {attacks_in_words(counted.surviving)}")
        )
    cards.append(
        ("proved", f"{down(percent(counted.certified, n), 2)} %", f"proved robust at ε = {run.summary['eps']}")
    )
    cards.append(("proved", down(counted.mean_radius or 0, 4), "mean proved radius, errors as 0"))
    boxes = (f'<div class="number {kind}"><b>{escaped(value)}</b>{escaped(name)}</div>' for kind, value, name in cards)
    return '<div class="numbers">' + "".join(boxes) + "</div>"


def _comparison(run: Run) -> str:
    counted, n = count(run.rows, run.attacks), len(run.rows)
    name, model = str(run.summary.get("data", "")), run.stored_recipe.get("model") if run.stored_recipe else None
    published = beside(name, run.eps)
    robust = "–" if counted.robust is None else counted.survive(counted.robust)
    title = NETWORKS[model].title if model in NETWORKS else run.name
    own = [escaped(title), "this run", nearest(percent(counted.clean, n), 2), robust]
    rows, marks = [[*own, down(percent(counted.certified, n), 2)]], ["this"]
    notes: dict[str, int] = {}
    for row in published:
        mark = f" [{notes.setdefault(row.note, len(notes) + 1)}]" if row.note else ""
        source = (
            f"{escaped(row.cited)}, cited in Table {row.table}"
            if row.cited
            else f"Zhang et al., 2021, Table {row.table}"
        )
        numbers = ["–" if value is None else str(value) for value in (row.test, row.robust, row.certified)]
        rows.append([escaped(row.method), source + mark, *numbers])
        marks.append("same" if row.model is not None and row.model == model else "")
    numbers_beside = table(["method", "source", "clean, %", "robust, %", "certified, %"], rows, marks, text_columns=2)
    lines = [f"[{number}] {escaped(note)}" for note, number in notes.items()]
    if published:
        lines.append("Published numbers are as printed in the paper; its robust accuracy is under PGD with 20 steps.")
        lines.append(escaped(_comparable(run, name)))
    else:
        lines.append(
            f"The paper has no result for {escaped(name or 'this data set')} at ε = {escaped(run.summary['eps'])}."
        )
    if counted.surviving:
        lines.append(f"Robust accuracy of this run: what survives {escaped(attacks_in_words(counted.surviving))}.")
    return numbers_beside + "".join(f'<p class="note">{line}</p>' for line in lines if line)


def _comparable(run: Run, name: str) -> str:
    """Return a warning if this run was not measured on the same images as the paper's, otherwise an empty text."""
    split = run.summary.get("split", "test")
    full = data.info(name).test if name in data.NAMES else None
    if split != "test":
        return f"Not comparable: this run was measured on the {split} split."
    if full is not None and len(run.rows) != full:
        return f"Not quite comparable: this run was measured on {len(run.rows):,} of {full:,} test images."
    return ""


def _tightness(run: Run, charts: Mapping[str, Chart]) -> str:
    counted, n, method = count(run.rows, run.attacks), len(run.rows), run.summary["method"]
    fate = tables.fates(counted)
    parts = []
    if counted.robust is None:
        parts.append(
            "<p>No attack was run: <code>linfdist evaluate --attack strong</code> shows how tight the proof is.</p>"
        )
    else:
        strongest = min(counted.surviving, key=lambda name: counted.surviving[name])
        gap = percent(counted.robust - counted.certified, n)
        parts.append(f"<p>{_gap(fate.undecided, n)} The attack that breaks most is {escaped(strongest)}.</p>")
        names = list(counted.surviving)
        rows = [
            [escaped(name), counted.survive(counted.surviving[name]),
             up(percent(counted.surviving[name] - counted.certified, n), 2)]
            for name in names
        ]  # fmt: skip
        rows.append(["all together", counted.survive(counted.robust), up(gap, 2)])
        parts.append(table(["attack", "survive, %", "points above certified"], rows))
    parts.append(figure(charts, "fates", "What is known of the images at epsilon"))
    gained = gain(run.rows, run.eps, method)
    if gained:
        parts.append(
            f"<h3>{escaped(method)} against the margin</h3>"
            f"<p>Mean radius of correctly classified images: {down(gained.mean_margin, 4)} by the margin, "
            f"<b>{down(gained.mean_radius, 4)}</b> by {escaped(method)}. Proved at ε: "
            f"{gained.certified_by_margin:,} images by the margin, {counted.certified:,} by {escaped(method)}.</p>"
        )
        comparison = figure(charts, "margin_vs_method", "Radii by the margin and by the method")
        parts.append(f'<div class="square">{comparison}</div>')
    return "\n".join(filter(None, parts))


def attacks_in_words(names: Iterable[str]) -> str:
    """Name attacks in a sentence."""
    known = list(names)
    return f"the attack{'s' if len(known) > 1 else ''} {' and '.join(known)}"


def _gap(undecided: int, n: int) -> str:
    if undecided == 0:
        return "Every image that survives every attack is proved: nothing is left in between."
    gap, images = up(percent(undecided, n), 2), "image is" if undecided == 1 else "images are"
    return (
        f"Certified accuracy is <b>{gap} points</b> below what survives every attack: "
        f"{undecided:,} of {n:,} {images} neither proved nor broken."
    )


def _classes(run: Run, charts: Mapping[str, Chart]) -> str:
    rows = [
        [escaped(run.classes[line.label]), f"{line.n:,}", nearest(percent(line.clean, line.n), 1),
         down(percent(line.certified, line.n), 1), down(line.median, 4)]
        for line in tables.by_class(run.rows)
    ]  # fmt: skip
    by_class = table(["class", "images", "clean, %", "certified, %", "median radius"], rows)
    errors = tables.worst_confusions(run.rows)
    listed = "; ".join(
        f"{escaped(run.classes[i])} as {escaped(run.classes[j])} ({images:,})" for i, j, images in errors
    )
    common = f"<p>Commonest errors: {listed}.</p>" if listed else "<p>No image is misclassified.</p>"
    return "\n".join(
        [
            figure(charts, "radius_by_class", "Histograms of the proved radius, one per class"),
            '<div class="pair"><div>' + figure(charts, "confusion", "Confusion matrix") + common + "</div>",
            f"<div>{by_class}</div></div>",
        ]
    )


def _gallery(run: Run) -> str:
    shown = halves(run)
    if not shown:
        return ""
    parts = [
        "<p>Image, smallest successful attack found, and their difference, magnified. The true robust radius lies "
        'between the <span class="proved">proved radius</span> and the <span class="broken">attack size</span>.</p>'
    ]
    for title, half in shown.items():
        figures = []
        for exhibit in half:
            views = "".join(
                f'<img src="{data_uri(png(picture))}" alt="{alt}">'
                for picture, alt in zip(pictures(exhibit), ("image", "attacked image", "difference"), strict=True)
            )
            proved, broken = captions(exhibit, run.classes)
            figures.append(
                f'<figure><div class="views">{views}</div><figcaption><span class="proved">{escaped(proved)}</span><br>'
                f'<span class="broken">{escaped(broken)}</span><br>'
                f"difference × {magnification(exhibit)}, index {exhibit.row.index}</figcaption></figure>"
            )
        parts.append(f'<h3>{escaped(title)}</h3>\n<div class="gallery">' + "\n".join(figures) + "</div>")
    return "\n".join(parts)


def _training(run: Run, charts: Mapping[str, Chart]) -> str:
    if not run.metrics:
        return ""
    held_out = (run.stored_recipe or {}).get("holdout")
    images = f"{held_out:,} held-out" if isinstance(held_out, int) and held_out else "a sample of the"
    return figure(charts, "training", "Accuracy, loss and p by epoch") + (
        f'<p class="note">Clean and certified accuracy at p = ∞ on {images} training images, while p grows.</p>'
    )


def _domain(run: Run) -> str:
    """State that proofs and attacks are restricted to the domain of an exact network, if they are."""
    return ", within the domain of the network" if run.summary.get("domain_sha256") else ""


def _card(run: Run) -> str:
    summary = run.summary
    split, name = summary.get("split", "test"), summary.get("data", "unknown data")
    facts = {
        "model sha256": f"<code>{escaped(summary['model_sha256'])}</code>",
        "method": escaped(summary["method"]),
        "ε": f"{escaped(summary['eps'])}, exactly {_fraction(run.eps)}",
        "images": f"{len(run.rows):,}, {escaped(split)} split of {escaped(name)}",
    }
    if run.stored_recipe:
        facts["recipe"] = (
            f"{escaped(run.stored_recipe.get('name', ''))}: {escaped(run.stored_recipe.get('source', ''))}"
        )
    for part, value in sorted(summary.get("seconds", {}).items()):
        facts[f"{escaped(part)} took"] = f"{value:.1f} s"
    parts = [table(["", ""], ([name, value] for name, value in facts.items()), text_columns=2)]
    parts.append("<h3>To reproduce</h3>\n<pre><code>" + escaped("\n".join(commands(run))) + "</code></pre>")
    if run.stored_recipe:
        settings = "\n".join(f"{key} = {value}" for key, value in run.stored_recipe.items() if value is not None)
        parts.append(
            "<details><summary>All settings of the recipe</summary>"
            f"<pre><code>{escaped(settings)}</code></pre></details>"
        )
    parts.append(
        '<p class="note">Proved numbers are rounded down, what attacks left standing is rounded up. '
        "Radii and ε are on the 0–1 intensity scale.</p>"
    )
    return "\n".join(parts)


def _fraction(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


def commands(run: Run) -> list[str]:
    """List the commands that train (if the recipe is known), evaluate and report, in a folder runs/NAME."""
    folder = f"runs/{run.name}"
    lines = (
        []
        if run.stored_recipe is None
        else [["linfdist", "train", *_recipe_arguments(run.stored_recipe, folder), "--out", folder]]
    )
    model = str(run.summary.get("model") or folder)
    evaluate = ["linfdist", "evaluate", model, "--eps", str(run.summary["eps"])]
    if model != folder:
        evaluate += ["--out", folder]
    evaluate += ["--method", str(run.summary["method"])]
    if device := run.summary.get("device"):
        evaluate += ["--device", str(device)]
    if run.attacks:
        evaluate += ["--attack", ",".join(run.attacks)]
    name, split = run.summary.get("data"), run.summary.get("split", "test")
    if split != "test":
        evaluate += ["--split", str(split)]
    if run.stored_recipe is None and name:
        evaluate += ["--data", str(name)]
    if name in data.NAMES and len(run.rows) != getattr(data.info(str(name)), str(split), len(run.rows)):
        evaluate += ["--limit", str(len(run.rows))]
    lines += [evaluate, ["linfdist", "report", folder]]
    return [shlex.join(line) for line in lines]


def _recipe_arguments(values: Mapping[str, Any], folder: str) -> list[str]:
    """Return a shipped recipe's name with the changed settings, or the run's own file if there is no such recipe."""
    try:
        return shlex.split(recipes.command(recipes.Recipe.model_validate(dict(values))))[2:]
    except (ValueError, recipes.RecipeError):
        return [f"{folder}/{RECIPE}"]
