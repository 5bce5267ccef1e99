"""Triton's kernels in Triton's interpreter, which is slow: few and small problems, each ragged in its own way."""

import pytest

from linfdist.ops.backends import triton


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch):
    if triton.missing() or not triton.interpreted():
        pytest.skip(f"triton: {triton.missing() or 'TRITON_INTERPRET=0'}")
    monkeypatch.setenv("LINFDIST_BACKEND", "triton")
