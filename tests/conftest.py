"""What all tests share: one seed, one hypothesis profile, which cases run, a backend to run on."""

import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import settings

from linfdist import data, recipes
from linfdist.ops.backends import BACKENDS
from linfdist.training import train

from .profiles import NIGHTLY, covering

# Triton's kernels run in its interpreter, on the CPU. Triton reads this when it is imported; 0 leaves them to a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Compiled code must not outlive the code it was compiled from: a stale cache could hide a bug.
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")

# A shell's background job ignores Ctrl-C, and so would the processes that tests start and stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, max_examples=15)
settings.register_profile("nightly", parent=settings.get_profile("repeatable"), max_examples=100)
settings.load_profile("nightly" if NIGHTLY else "repeatable")

MOST_COMBINATIONS = 24
INTERPRETED_CASES = 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of tests that have many: what is left is always the same.

    Of a test with more than MOST_COMBINATIONS combinations of parameters, some are run in which every pair of values
    meets; all of them at night. Of each test, Triton's interpreter runs one case, as it takes a second or two; all but
    those marked `compiled` if LINFDIST_TEST_INTERPRETER=all.
    """
    cases: defaultdict[tuple[object, str], list[pytest.Item]] = defaultdict(list)
    interpreted: defaultdict[tuple[object, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if getattr(item, "callspec", None):
            by_triton = item.callspec.params.get("backend") == "triton"
            (interpreted if by_triton else cases)[item.module, item.originalname].append(item)
    left_out = set()
    for found in cases.values():
        if len(found) > MOST_COMBINATIONS and not NIGHTLY:
            left_out |= set(found) - {found[k] for k in covering([_values(item) for item in found])}
    for found in interpreted.values():
        kept = found
        if os.environ.get("LINFDIST_TEST_INTERPRETER") != "all":
            kept = Random(found[0].originalname).sample(found, min(INTERPRETED_CASES, len(found)))
        if found[0].get_closest_marker("compiled"):
            kept = []
        left_out |= set(found) - set(kept)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _values(item: pytest.Item) -> dict[str, int]:
    """What tells the values of a case's parameters apart: cases that share one have the same object."""
    return {name: id(value) for name, value in item.callspec.params.items()}


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


@pytest.fixture(scope="session")
def digits_run(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run of a small network that has learned the digits. Copy it before you write into it."""
    recipe = recipes.load("digits-quick").override({"width": 64, "epochs": 8})
    return train(recipe, tmp_path_factory.mktemp("digits") / "run", data_dir=digits, quiet=True)
