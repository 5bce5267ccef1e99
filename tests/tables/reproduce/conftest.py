"""The digits, and rows that somebody might have measured."""

from collections.abc import Callable, Iterator

import pytest

from linfdist.tables.reproduce.plan import plan
from linfdist.tables.reproduce.rows import TableRow


@pytest.fixture(scope="session", autouse=True)
def _small_galleries() -> Iterator[None]:
    """One round of attacks: galleries are not what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("linfdist.evaluate.gallery.ROUNDS", 1)
        yield


@pytest.fixture(scope="session")
def make_row() -> Callable[..., TableRow]:
    def make(table: int, name: str, seed: int = 0, **measured: object) -> TableRow:
        planned = next(each for each in plan(table, "laptop") if each.name == name)
        known = {
            "table": table, "row": planned.label, "scale": "laptop", "hours": 0.2,
            "recipe": planned.with_seed(seed), "machine": "an abacus, 2 cores", "date": "2026-11-16",
        }  # fmt: skip
        return TableRow.model_validate(known | measured)

    return make
