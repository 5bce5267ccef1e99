"""What all tests share: one seed, one hypothesis profile, a backend to run on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from linfdist import data
from linfdist.ops.select import BACKENDS

# Compiled code must not outlive the code it was compiled from: a stale cache could hide a bug.
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, max_examples=40)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small problems gain nothing from more, and lose much on a busy machine; `test_determinism.py` takes more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every backend in turn, forced."""
    probe = torch.empty(0)
    reasons = BACKENDS[request.param].unsupported(probe, probe)
    if reasons:
        pytest.skip(f"{request.param}: {'; '.join(reasons)}")
    monkeypatch.setenv("LINFDIST_BACKEND", request.param)
    return request.param


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits, in a folder of their own."""
    pytest.importorskip("sklearn", reason="scikit-learn brings the digits")
    folder = tmp_path_factory.mktemp("data")
    data.fetch("digits", folder)
    return folder
