"""What an hour of one core buys: certified accuracy beside the time of training, of ours, of others, of the paper."""

from collections.abc import Sequence
from decimal import Decimal

from linfdist.eps import down, up, written
from linfdist.experiments.tables.rows import CompareRow
from linfdist.models.zoo.cards import Card
from linfdist.recipes.networks import NETWORKS
from linfdist.report.published import paper_certified

from .markdown import markdown
from .pictures import PAPER_MINUTES

TEXT = (
    "Core-hours of training, and what they buy. In bold: the networks above, without heads. Beside them: ours and the "
    "three best other methods after five minutes, [side by side](compare.md#the-rows), of the first 2,000 test images, "
    "without [CTRAIN's own code](compare.md#ctrains-own-code). Last: the paper's networks where it states the time of "
    "an epoch. *Unknown* is what neither a proof nor an attack decides, in points. Our hours are wall clock "
    "beside other work, so upper bounds. An hour of an RTX 3090 is far more computation than an hour of a core."
)
OTHERS = 3  # other methods for each data set: those that certify most
TIMED = ("dist_net", "dist_net_mlp")  # Table 4 times an epoch of these, on CIFAR-10 at 8/255
PAPER_TITLES = {"dist_net": "ℓ∞-dist Net, paper", "dist_net_mlp": "ℓ∞-dist Net+MLP, paper"}


def table(cards: Sequence[Card], peers: Sequence[CompareRow]) -> str:
    """Write the table: data sets as the cards order them, within one the shortest training first.

    Heads are left out, because their hours are those of a few epochs on top of a trained network.
    """
    lines = []
    for data, eps in dict.fromkeys((card.data, card.eps) for card in cards):
        mine = [card for card in cards if (card.data, card.eps) == (data, eps)]
        found = [_own(card) for card in mine if not (card.recipe.get("start") and _has_head(card))]
        found += [_other(row) for row in _best([row for row in peers if (row.data, row.eps) == (data, eps)])]
        if (data, eps) == ("cifar10", "8/255"):
            found += [_published(model) for model in TIMED]
        lines += [[data, eps, *cells] for _, cells in sorted(found)]
    headings = ["data", "ε", "network", "hours", "on", "certified", "strongest attack", "unknown"]
    return markdown(headings, lines, 3)


def _has_head(card: Card) -> bool:
    return NETWORKS[card.recipe["model"]].ending == "head"


def _own(card: Card) -> tuple[float, list[str]]:
    return card.hours, _cells(f"**`{card.name}`**", card.hours, "core", card.certified, card.strongest.percent)


def _other(row: CompareRow) -> tuple[float, list[str]]:
    hours = row.seconds * row.threads / 3600
    return hours, _cells(row.title, hours, "core", row.certified, row.strongest)


def _cells(name: str, hours: float, on: str, certified: float, attacked: float) -> list[str]:
    low, high = down(written(certified), 2), up(written(attacked), 2)
    return [name, f"{hours:.2f}", on, low, high, str(Decimal(high) - Decimal(low))]


def _published(model: str) -> tuple[float, list[str]]:
    hours = PAPER_MINUTES / 60
    return hours, [
        PAPER_TITLES[model],
        f"{hours:.2f}",
        "RTX 3090",
        str(paper_certified("cifar10", "8/255", model)),
        "–",
        "–",
    ]


def _best(rows: Sequence[CompareRow]) -> list[CompareRow]:
    """Return the row with the most certified images of each method that certifies most; ours always."""
    best: dict[str, CompareRow] = {}
    for row in sorted(rows, key=lambda row: row.certified):
        best[row.method] = row
    ranked = sorted(best.values(), key=lambda row: -row.certified)
    ours = [row for row in ranked if row.ours]
    return ours + [row for row in ranked if not row.ours][:OTHERS]
