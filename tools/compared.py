"""What `linfdist compare` and `tune` have measured: tables for docs/compare.md and results/compare.md, and pictures."""

from collections.abc import Sequence
from pathlib import Path

from linfdist import recipes
from linfdist.experiments.tables.layout import (
    Panel,
    accuracy_table,
    cost_table,
    front_table,
    panels,
    searched_how,
    searches,
    stated,
    title,
)
from linfdist.experiments.tables.rows import CompareRow, TuneRow
from linfdist.experiments.tables.tune import searched
from linfdist.report.charts import compared_chart, fronts_chart

from .markdown import as_markdown, fill, markdown
from .peers import PeerRow
from .peers import tables as ctrain_tables

_NOTE = (
    "Numbers of cited methods are those of [the comparison](compare.md#side-by-side): of small networks, after minutes "
    "of training on one core, and of the first 2,000 test images."
)
_TIMES = "Times of cited methods are those of [the comparison](compare.md#side-by-side), of small networks on one core."

_COSTS = """# What the comparison cost

Time, memory and chosen settings of the rows on the page about [other methods](../docs/compare.md#the-rows), which has
their accuracies and the rules. COLT's 684 ms per image on CIFAR-10 were measured beside other work. `make pages` writes
this file from `compare.jsonl`.

Most rows of a table are of one machine: an epoch of IBP took 21 s on the AMD EPYC (MNIST) and 29 s on the Intel Xeon
@ 2.80GHz (Fashion-MNIST, the same size), one of ours 19 s on both. Trainings of five minutes took 230 to 329 s,
because epochs are longer or shorter than their rehearsal. Some were repeated with fewer epochs, as the rules demand:
ours on MNIST and in 75 s on Fashion-MNIST, IBP and DiffAI on CIFAR-10.

- **CAP, PVT, DiffAI and COLT** had one to four epochs at half the width, so their rows tell more about their cost
  than about their quality. On MNIST, COLT assigned every image to one class until its ε was ramped in the first stage
  (an option of its authors' code); its row on Fashion-MNIST is without that. CAP on MNIST, with 0.8 epochs, ended in
  one class and has no row.
- **Group Sort** learns little from a hinge at all of ε = 0.3, its first setting. With a hinge at 0.3 and 0.1 of that,
  92.0 and 96.6 % of 500 test images are correct after two epochs, 62.0 and 15.4 % are certified at ε = 0.1 and none
  at ε = 0.3 (script not kept), as in the paper (97.0 % clean, 2 % certified).
"""


def note(table: int) -> str:
    """Say where a table of the paper has our numbers of cited methods from."""
    return _TIMES if table == 4 else _NOTE


def page(
    root: Path, peers: Sequence[CompareRow], outside: Sequence[PeerRow] = (), trials: Sequence[TuneRow] = ()
) -> str:
    """Write the page on other methods with its tables of measured rows.

    outside: networks that CTRAIN has trained; trials: those of `linfdist tune`.
    """
    parts = []
    if _several(peers):
        light = "![Certified accuracy against training time](images/compare.png)"
        parts = [f"{light}\n\n[The same on dark](images/compare-dark.png)."]
    for _, rows in panels(peers):
        parts += [f"**{title(rows)}.** {stated(rows)}", as_markdown(accuracy_table(rows))]
    text = (root / "docs" / "compare.md").read_text(encoding="utf-8")
    blocks = {
        "compare": "\n\n".join(parts),
        "fronts": _fronts(trials),
        "searched": _searched() if trials else "",
        "ctrain": ctrain_tables(outside, peers),
    }
    return fill(text, blocks, "docs/compare.md")


def _fronts(trials: Sequence[TuneRow]) -> str:
    """Write the picture and the fronts of every search; nothing if there is none."""
    picture = "![Certified against clean accuracy](images/fronts.png)\n\n[The same on dark](images/fronts-dark.png)."
    parts = [
        f"{picture} Lines: fronts; faint points: other trials, without those far below every front. ●: no setting of "
        "any method is better in both."
    ]
    for which, rows in searches(trials):
        parts += [f"**{which}.** {searched_how(rows)}", as_markdown(front_table(rows))]
    return "\n\n".join(parts) if trials else ""


def _searched() -> str:
    """Write the table of what `linfdist tune` searches, of the methods that it takes by default."""
    recipe, lines = recipes.load("mnist-quick"), []
    for each in searched([], recipe):
        spans = [f"`{key}` {span.low:.4g} to {span.high:.4g}" for key, span in each.space(recipe).items()]
        lines.append([each.title, "; ".join(spans)])
    return markdown(["method", "searched"], lines, 2)


def costs(peers: Sequence[CompareRow]) -> str:
    """Write the tables of time, memory and chosen settings."""
    parts = [_COSTS.strip()]
    for _, rows in panels(peers):
        parts += [f"**{title(rows)}.**", as_markdown(cost_table(rows))]
    return "\n\n".join(parts) + "\n"


def pictures(peers: Sequence[CompareRow], trials: Sequence[TuneRow] = ()) -> dict[str, bytes]:
    """Draw the pictures, by the names of their files; none where nothing is side by side."""
    several, drawn = _several(peers), {}
    if several:
        drawn["compare"] = compared_chart(several)
    if trials:
        drawn["fronts"] = fronts_chart(searches(trials))
    return {f"{name}{end}": png for name, c in drawn.items() for end, png in (("", c.light), ("-dark", c.dark))}


def _several(peers: Sequence[CompareRow]) -> list[Panel]:
    """Select the panels that have several methods."""
    return [panel for panel in panels(peers) if len({row.method for row in panel.rows}) > 1]
