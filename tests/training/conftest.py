"""The digits, in a folder of their own."""

from pathlib import Path

import pytest

from . import runs


@pytest.fixture(scope="session")
def finished(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    return runs.train(runs.tiny(), tmp_path_factory.mktemp("runs") / "whole", data_dir=digits, quiet=True)
