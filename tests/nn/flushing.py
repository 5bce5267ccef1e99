"""Denormal numbers flushed to zero, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch


@contextmanager
def flushing(wanted: bool = True) -> Iterator[None]:
    """Flush denormal numbers to zero, or do not; skips where the processor cannot."""
    if wanted and not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormal numbers")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
