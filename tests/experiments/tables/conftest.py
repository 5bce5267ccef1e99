"""Rows that somebody might have measured."""

from collections.abc import Callable, Iterator

import pytest

from linfdist.experiments.tables.plan import plan
from linfdist.experiments.tables.rows import CompareRow, TableRow, TuneRow


@pytest.fixture(scope="session", autouse=True)
def _small_galleries() -> Iterator[None]:
    """One round of attacks: galleries are not what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("linfdist.evaluation.gallery.ROUNDS", 1)
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


@pytest.fixture
def make_compare_row() -> Callable[..., CompareRow]:
    def make(method: str = "ibp", title: str = "IBP", **changes: object) -> CompareRow:
        trial = {"setting": {"lr": 0.001}, "epochs": 1.0, "seconds": 90.0, "clean": 80.0, "pgd20": 50.0}
        values = {
            "data": "mnist", "eps": "0.3", "shared": "0123abcd", "recipe": "0123abcd", "method": method, "title": title,
            "source": "somebody", "budget": 1200.0, "seed": 0,
            "trials": [trial | {"certified": 40.0}, trial | {"setting": {"lr": 0.002}, "certified": 50.0}],
            "chosen": {"lr": 0.002}, "epochs": 10.5, "seconds": 890.1, "seconds_per_epoch": 84.77, "memory_mb": 700.4,
            "parameters": 10, "certified_by": "box", "n": 1000, "clean": 97.0, "pgd20": 90.001, "strongest": 89.0,
            "certified": 85.999, "certify_ms": 1.5, "threads": 2, "machine": "an abacus", "date": "2026-11-17",
        }  # fmt: skip
        return CompareRow.model_validate(values | changes)

    return make


@pytest.fixture
def make_tune_row() -> Callable[..., TuneRow]:
    def make(method: str = "ibp", title: str = "IBP", **changes: object) -> TuneRow:
        values = {
            "data": "mnist", "eps": "0.3", "shared": "0123abcd", "recipe": "0123abcd", "method": method, "title": title,
            "budget": 75.0, "seed": 0, "number": 0, "point": {"lr": 0.001}, "setting": {"lr": 0.001}, "epochs": 3.25,
            "seconds": 74.1, "clean": 90.0, "pgd20": 80.001, "certified": 70.999, "certified_by": "box", "n": 1000,
            "threads": 1, "machine": "an abacus", "date": "2026-11-19",
        }  # fmt: skip
        return TuneRow.model_validate(values | changes)

    return make
