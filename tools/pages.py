"""The generated pages, from rows, cards and benchmark results alone: `python -m tools.pages`, or `make pages`.

Writes docs/results.md, results/ablations.md, results/study.md, results/compare.md, the pictures, and what README.md,
docs/engine.md, docs/compare.md and docs/api/*.md have between `<!-- begin: NAME -->` and `<!-- end: NAME -->`.
Reads results/table*.jsonl (rows of `linfdist reproduce`), results/compare.jsonl (rows of `linfdist compare`),
results/fronts.jsonl (rows of `linfdist tune`), results/peers.jsonl (networks that CTRAIN has trained),
results/study.jsonl, results/curves/, results/times/, results/undefended/, the zoo's cards, and
benchmarks/results/latest.json (from `make bench`). Comments on a section of the results are in results/notes/, and are
copied below it. A section without numbers is left out.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from linfdist.eps import down, nearest, up, written
from linfdist.experiments.bench import Report
from linfdist.experiments.tables.layout import PEERS, paper_table
from linfdist.experiments.tables.plan import SCALES, numbers, plan
from linfdist.experiments.tables.rows import (
    CompareRow,
    TableRow,
    TuneRow,
    read_compare_rows,
    read_table_rows,
    read_tune_rows,
)
from linfdist.files import write_atomically
from linfdist.models import zoo
from linfdist.models.zoo import FILES
from linfdist.models.zoo.cards import Card
from linfdist.recipes import Recipe, command
from linfdist.recipes.networks import NETWORKS
from linfdist.report.published import paper_certified

from . import ROOT, api, attempt, compared, hours, study, times, undefended
from . import peers as outside
from .markdown import as_markdown, fill, markdown
from .pictures import draw
from .speed import markdown as speed_table
from .study import Experiment

PICTURES = (
    "radius",
    "radius-dark",
    "training",
    "time",
    "ablation",
    "depth",
    "speed",
    "compare",
    "compare-dark",
    "fronts",
    "fronts-dark",
)
ABLATIONS = (3, 7)  # tables of the paper that have a file of their own, in results/
NEWS = "cifar10-8_255"  # the network that the page is proud of
_INTRODUCTION = """# Results

This page shows what the shipped networks prove, how close those proofs are to the truth, how long training takes, and
the paper's tables beside our own runs of them. All numbers are percent of the test set unless they say otherwise.
Certified accuracy is never rounded up, accuracy under attack never down. `make pages` builds the page from `results/`
and the cards of the [zoo](zoo.md); how settings were chosen is in the [laboratory notebook](notebook.md).
"""
_ABLATIONS = """# The paper's ablations

Tables 3 and 7 of the paper beside our own small runs of them, in percent of the test set. The other tables are on the
[results page](../docs/results.md). `make pages` writes this file.
"""
_RUNS = """# All runs of the study

One line per setting, the best first among those that held the same images out; the [notebook](../docs/notebook.md) says
what they taught. Certified accuracy is that of the margin after the last epoch, with the standard deviation where there
are several seeds. "Held out" says how many training images were held out, and how: evenly spaced, as until 2026-11-17,
or spread so that no period is preferred. Minutes are wall clock on a shared machine. `start=runs/study/fashion-768` is
the run at width 768 before its epochs on boxes; `mnist-128` and `mnist-512` are runs of `mnist-quick` with
`ce_start=0.05 e2=8 e3=2`, the first at width 128; `fashion-512` is a run of `fashion-quick` with `threshold=0.28`,
`cifar10-256` one of `cifar10-quick` with `ce_start=0.1`; all four have `p_bend=0`, as the quick recipes had then.
`make pages` writes this file from `study.jsonl`.
"""


@dataclass(frozen=True)
class Results:
    """Everything a page is made from. notes: by section; sizes: of the networks' files, in bytes."""

    cards: list[Card]
    sizes: dict[str, int]
    curves: dict[str, dict[str, Any]]
    times: dict[str, dict[str, Any]]
    undefended: dict[str, dict[str, Any]]
    rows: list[TableRow]
    peers: list[CompareRow]
    trials: list[TuneRow]
    ctrain: list[outside.PeerRow]
    experiments: list[Experiment]
    notes: dict[str, str]


def read(folder: Path, zoo_folder: Path | None = None) -> Results:
    """Read the folder `results` and the zoo (zoo_folder: another one); ValueError says what does not fit together."""
    rows = []
    for path in sorted(folder.glob("table*.jsonl")):
        new = read_table_rows(path)
        rows += new
        for row in new:
            if not any(row.belongs_to(each) for each in plan(row.table, row.scale)):
                raise ValueError(
                    f"{path}: a run of {row.recipe.name} is not what table {row.table} has now: "
                    "take that row out, and run it again"
                )
    cards = [zoo.card(name, zoo_folder) for name in zoo.names(zoo_folder)]
    return Results(
        cards=cards,
        sizes={card.name: ((zoo_folder or FILES) / f"{card.name}.safetensors").stat().st_size for card in cards},
        curves=_by_name(folder / "curves"),
        times=_by_name(folder / times.FOLDER),
        undefended=_by_name(folder / undefended.FOLDER.name),
        rows=rows,
        peers=read_compare_rows(folder / "compare.jsonl"),
        trials=read_tune_rows(folder / "fronts.jsonl"),
        ctrain=outside.read(folder / outside.FILE.name),
        experiments=study.read(folder / study.FILE.name),
        notes={path.stem: path.read_text(encoding="utf-8").strip() for path in folder.glob("notes/*.md")},
    )


def _by_name(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def page(results: Results, pictures: Sequence[str]) -> str:
    """Write the results page in Markdown; pictures: the names of those there are."""
    parts = [_INTRODUCTION]
    if results.cards:
        parts += ["## Shipped networks", *filter(None, [news_block(results)]), _BOLD, _networks(results)]
        parts += [*_zoo_picture("radius", pictures), *_contrast(results, pictures), *_note(results, "networks")]
        parts += ["## How close the proofs are to the truth", _TIGHTNESS, _tightness(results)]
        parts += ["## Training time", *_zoo_picture("time", pictures), *_zoo_picture("training", pictures)]
        parts += _note(results, "time")
        parts += ["## Certified accuracy per hour", hours.TEXT, hours.table(results.cards, results.peers)]
    parts += _tables(results, pictures, [table for table in numbers() if table not in ABLATIONS], "images")
    if any(row.table in ABLATIONS for row in results.rows):
        parts += ["## Tables 3 and 7: ablations", *_note(results, "ablations")]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def ablations(results: Results, pictures: Sequence[str]) -> str:
    """Write the paper's ablations beside ours in Markdown, as `page` does."""
    parts = [_ABLATIONS, *_tables(results, pictures, ABLATIONS, "../docs/images")]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _tables(results: Results, pictures: Sequence[str], wanted: Sequence[int], images: str) -> list[str]:
    """Write these tables of the paper; images: the folder of the pictures, as the page links to it."""
    parts = []
    for table in wanted:
        for scale in SCALES:
            mine = [row for row in results.rows if (row.table, row.scale) == (table, scale)]
            if not mine:
                continue
            comparison = paper_table(table, scale, mine, results.peers)  # type: ignore[arg-type]
            parts += [f"## {comparison.title}", _scale(table, scale, mine)]
            parts.append(as_markdown(comparison))
            parts += [compared.note(table)] if results.peers and table in PEERS and scale == "laptop" else []
            picture = {3: "ablation", 7: "depth"}.get(table, "")
            shown = picture in pictures and scale == "laptop"
            parts += [_picture(picture, comparison.title, images)] if shown else []
            parts += _note(results, f"table{table}") if scale == "laptop" else []
    return parts


def runs(results: Results) -> str:
    """Write the table of all runs of the study."""
    return f"{_RUNS}\n{study.table(results.experiments)}\n" if results.experiments else _RUNS


_ZOO_PICTURES = {
    "radius": "Share of images that are proved, against the radius; dashed upright: the radius trained for",
    "training": "Certified (dashed: clean) accuracy during each network's last run, of held-out or training images",
    "time": "Certified accuracy during training against core-minutes; dashed: the paper's time on its GPU",
}
_TIGHTNESS = (
    "The true robust accuracy lies between *certified* and *strongest attack*; *unknown* is the difference in points. "
    "Attacks ran on every image that is classified correctly but not certified, and on 1,000 certified ones. No "
    "certified image was broken."
)


def _note(results: Results, name: str) -> list[str]:
    return [results.notes[name]] if name in results.notes else []


def _zoo_picture(name: str, pictures: Sequence[str]) -> list[str]:
    return [_picture(name, _ZOO_PICTURES[name])] if name in pictures else []


def _picture(name: str, text: str, images: str = "images") -> str:
    return f"![{text}]({images}/{name}.png)"


def _contrast(results: Results, pictures: Sequence[str]) -> list[str]:
    """Say what the ordinary networks in the picture of radii are, and where its dark twin is."""
    if "radius-dark" not in pictures:
        return []
    dark, rows = "[The same on dark](images/radius-dark.png).", list(results.undefended.values())
    if not rows:
        return [dark]
    row = rows[0]
    proved = ", ".join(f"{_proved_at_eps(each)} % on {each['data']} at {each['eps']}" for each in rows)
    return [
        f"For contrast, an *ordinary network*: {row['network']}, trained with the {row['training']} alone. Method "
        f"`{row['method']}` proves the solid orange curve, of the first {row['images']} test images: {proved}. Above "
        "the dashed curve nobody can prove anything, because PGD breaks those images. "
        f"`python -m tools.undefended {' '.join(each['data'] for each in rows)}`, {row['machine']}, {row['date']}. "
        f"{dark}"
    ]


def _proved_at_eps(row: dict[str, Any]) -> str:
    """Return the percentage of images that an ordinary network is proved on at its radius."""
    return f"{row['radius, proved'][-1][1]:g}"


def _scale(table: int, scale: str, rows: Sequence[TableRow]) -> str:
    machines = "; ".join(dict.fromkeys(row.machine for row in rows))
    days = sorted({row.date for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    hours = sum(row.hours for row in rows)
    trained = f", {hours:.1f} hours of training" if hours else ""
    size = "as published" if scale == "paper" else "narrow networks, small batches, few epochs"
    return f"`linfdist reproduce table{table} --scale {scale}`: {size}. {machines}, {when}{trained}."


def _networks(results: Results) -> str:
    # What counts comes first: on a phone the rest is a swipe away.
    headings = ["name", "certified", "paper", "clean", "data", "ε", "network", "hours", "MB"]
    lines = []
    for card in results.cards:
        recipe = card.recipe
        network = f"{NETWORKS[recipe['model']].title}, {recipe['depth']} × {recipe['width']}{card.mean_in_words}"
        lines.append([
            f"`{card.name}`", *_beside_paper(card), nearest(card.clean, 2), card.data, card.eps, network,
            f"{card.hours:g}", f"{results.sizes[card.name] / 1e6:.1f}",
        ])  # fmt: skip
    return markdown(headings, lines, 1)


def _beside_paper(card: Card) -> tuple[str, str]:
    """Write what is certified, in bold if it is no less than in the paper, and the paper's number."""
    paper, certified = paper_certified(card.data, card.eps, card.recipe["model"]), written(card.certified)
    text = down(certified, 2)
    return (text, "–") if paper is None else (f"**{text}**" if certified >= Fraction(paper) else text, str(paper))


def _tightness(results: Results) -> str:
    headings = ["name", "certified", "strongest attack", "unknown", "PGD-20", "mean radius", "ε"]
    lines = []
    for card in results.cards:
        certified, attacked = down(written(card.certified), 2), up(written(card.strongest.percent), 2)
        unknown = str(Decimal(attacked) - Decimal(certified))
        pgd = up(written(card.pgd20.percent), 2)
        lines.append([f"`{card.name}`", certified, attacked, unknown, pgd, down(card.mean_radius, 4), card.eps])
    return markdown(headings, lines, 1)


_BOLD = "In bold: no less than the paper has for this kind of network."
_README_TABLE = (
    "The best network for each data set and radius, in percent of the test images. Certified: right, and proved to "
    f"stay so at ε. Clean: right. {_BOLD}"
)


def readme_block(results: Results) -> str:
    """Write the README's table: the best network for each data set and radius; it is empty without any."""
    if not results.cards:
        return ""
    best: dict[tuple[str, str], Card] = {}
    for card in results.cards:
        before = best.setdefault((card.data, card.eps), card)
        best[card.data, card.eps] = max(before, card, key=lambda each: written(each.certified))
    lines = []
    for card in best.values():
        shown = [nearest(card.clean, 2), card.data, card.eps]
        lines.append([f'`ld.load("{card.name}")`', *_beside_paper(card), *shown])
    headings = ["", "certified", "certified, paper", "clean", "data", "ε"]
    return f"{_README_TABLE}\n\n{markdown(headings, lines, 1)}\n\n[All networks and results](docs/results.md)"


def news_block(results: Results) -> str:
    """Write what is news, in the numbers of the card; it is empty where there is none."""
    cards = {card.name: card for card in results.cards}
    card, mean = cards.get(NEWS), cards.get(f"{NEWS}-mean")
    paper = None if card is None else paper_certified(card.data, card.eps, "dist_net")
    if card is None or paper is None or written(card.certified) <= Fraction(paper):
        return ""
    recipe, with_head = Recipe.model_validate(card.recipe), paper_certified(card.data, card.eps, "dist_net_mlp")
    ours = "" if mean is None else f"; our `{mean.name}`, a mean, has {down(written(mean.certified), 2)} %"
    first = f", after the commands that `linfdist zoo show {card.name}` lists before it" if recipe.start else ""
    return (
        f"**Beyond the paper's plain CIFAR-10 network, on CPU cores.** At ε = {card.eps}, `{card.name}` is certified "
        f"on **{down(written(card.certified), 2)} %** of the test images and correct on {nearest(card.clean, 2)} %, "
        f"after {card.hours:g} hours of training in all on {card.machine} ({card.date}). The paper's plain network is "
        f"certified on {paper} %, after 800 epochs of 19.7 s on an RTX 3090, 4.4 hours (its Tables 1, 4 and 6). Two "
        "caveats: our loss is the authors' later one ([ICLR 2022](https://arxiv.org/abs/2110.06850)), with which their "
        f"far wider networks reach 40 %; and the paper's network with an MLP head has {with_head} %{ours}. To train "
        f"it again: `{command(recipe)}`{first}."
    )


def readme(root: Path, results: Results) -> str:
    """Write the README with its generated parts as they should be."""
    blocks = {"results": readme_block(results)}
    return fill((root / "README.md").read_text(encoding="utf-8"), blocks)


def engine(root: Path) -> str:
    """Write the engine's page with its table of speed as it should be."""
    speed = measured(root)
    text = (root / "docs" / "engine.md").read_text(encoding="utf-8")
    return fill(text, {"speed": speed_table(speed) if speed else ""}, "docs/engine.md")


def measured(root: Path) -> Report | None:
    """Read what `make bench` has written; None if there is nothing."""
    file = root / "benchmarks" / "results" / "latest.json"
    return Report.read(file) if file.exists() else None


def write(root: Path, zoo_folder: Path | None = None) -> None:
    """Write all pages. Pictures without numbers are removed."""
    results = read(root / "results", zoo_folder)
    filled, engine_page = readme(root, results), engine(root)
    peers_page = compared.page(root, results.peers, results.ctrain, results.trials)
    pictures = draw(
        results.cards, results.curves, results.rows, measured(root), results.times, results.undefended
    )  # fmt: skip
    pictures |= compared.pictures(results.peers, results.trials)
    images = root / "docs" / "images"
    images.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        if name in pictures:
            write_atomically(images / f"{name}.png", pictures[name])
        else:
            (images / f"{name}.png").unlink(missing_ok=True)
    write_atomically(root / "docs" / "results.md", page(results, list(pictures)))
    write_atomically(root / "results" / "ablations.md", ablations(results, list(pictures)))
    write_atomically(root / "results" / "study.md", runs(results))
    write_atomically(root / "results" / "compare.md", compared.costs(results.peers))
    write_atomically(root / "README.md", filled)
    write_atomically(root / "docs" / "engine.md", engine_page)
    write_atomically(root / "docs" / "compare.md", peers_page)
    for path, text in api.pages(root).items():
        write_atomically(path, text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.pages", description="Write the generated pages.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder with results/, docs/ and README.md")
    given = parser.parse_args(arguments)
    return attempt(lambda: write(given.root))


if __name__ == "__main__":
    raise SystemExit(main())
