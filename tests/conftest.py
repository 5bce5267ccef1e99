"""What all tests share: one seed, one hypothesis profile, a backend to run on."""

import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import settings

from linfdist import data
from linfdist.ops.select import BACKENDS

# Triton's kernels run in its interpreter, on the CPU. Triton reads this when it is imported; 0 leaves them to a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Compiled code must not outlive the code it was compiled from: a stale cache could hide a bug.
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")

# A shell's background job ignores Ctrl-C, and so would the processes that tests start and stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, max_examples=40)
settings.load_profile("repeatable")


INTERPRETED_CASES = 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of each test, Triton's interpreter runs one case, always the same: it takes a second or two.

    It runs all but those marked `compiled` if LINFDIST_TEST_INTERPRETER=all.
    """
    cases: defaultdict[tuple[object, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if getattr(item, "callspec", None) and item.callspec.params.get("backend") == "triton":
            cases[item.module, item.originalname].append(item)
    left_out = set()
    for found in cases.values():
        kept = found
        if os.environ.get("LINFDIST_TEST_INTERPRETER") != "all":
            kept = Random(found[0].originalname).sample(found, min(INTERPRETED_CASES, len(found)))
        if found[0].get_closest_marker("compiled"):
            kept = []
        left_out |= set(found) - set(kept)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


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
