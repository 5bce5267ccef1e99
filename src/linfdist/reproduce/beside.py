"""The published row that a recipe is compared with."""

from decimal import Decimal

from ..eps import parse_eps
from ..recipes import Recipe
from ..report.published import Result, beside, tables


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
