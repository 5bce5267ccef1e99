"""Tests of the proved checker need the program itself; where it was not built, they say so."""

import pytest

from linfdist.exact import proved


@pytest.fixture(scope="session")
def checker() -> None:
    """The built checker; without it the test is skipped, with what to do about it."""
    try:
        proved.find()
    except proved.NoChecker as error:
        pytest.skip(str(error))
