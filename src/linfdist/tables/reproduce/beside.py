"""The published row that a recipe, or a method of `linfdist compare`, is compared with."""

from collections.abc import Sequence
from decimal import Decimal

from ...eps import parse_eps
from ...recipes import Recipe
from ...report.published import Result, beside, tables
from ..compare.rows import CompareRow


def published_row(table: int, recipe: Recipe) -> Result | None:
    """Find the paper's own row with the recipe's network and techniques; None if the paper has none.

    All that a published row says (depth, smooth, decay, ...) must hold for the recipe; its networks have mean shift.
    """
    for row in tables()[table].rows:
        said = {key: value for key, value in (row.more or {}).items() if key in Recipe.model_fields}
        same = row.cited is None and row.data == recipe.data and row.model == recipe.model and recipe.mean_shift
        if same and all(getattr(recipe, key) == value for key, value in said.items()):
            return row
    return None


def paper_certified(data: str, eps: str, model: str) -> Decimal | None:
    """Find the paper's certified accuracy of this kind of network; None if it has none."""
    found = [row.certified for row in beside(data, parse_eps(eps)) if row.cited is None and row.model == model]
    return found[0] if found else None


def cited_as(row: CompareRow) -> Result | None:
    """Find what Table 1 has of the same method, images and ε; None if it has nothing."""
    return next((each for each in tables()[1].rows if _same_method(row, each)), None)


def peers_of(result: Result, rows: Sequence[CompareRow]) -> list[CompareRow]:
    """Find what was measured here of a method that the paper cites: the rows of the largest budget, and most images."""
    mine = [row for row in rows if result.cited is not None and _same_method(row, result)]
    most = max(((row.budget, row.n) for row in mine), default=None)
    return [row for row in mine if (row.budget, row.n) == most]


def _same_method(row: CompareRow, result: Result) -> bool:
    same = (row.data, row.title) == (result.data, result.method)
    return same and (result.eps is None or parse_eps(result.eps) == parse_eps(row.eps))  # Table 4 names no ε
