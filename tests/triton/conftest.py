"""Triton's kernels in Triton's interpreter, which is slow: few and small problems, each ragged in its own way."""

import pytest

from linfdist.ops.backends import triton


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch):
    """For these tests alone. Triton reads it when a kernel's module is imported; nothing here runs one otherwise."""
    if triton.missing():
        pytest.skip(f"triton: {triton.missing()}")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("LINFDIST_BACKEND", "triton")
