"""The same tests on several devices: the CPU, a GPU where there is one, and a device that only pretends to be one.

`make test-gpu` runs those marked `gpu`. LINFDIST_PRETEND, the library of `pretend.cpp`, makes all run on that device.
"""

import os

import pytest
import torch

from linfdist.certificates import checks as proofs
from linfdist.ops import machine
from linfdist.ops.backends import triton

from . import pretend

LIBRARY = os.environ.get(pretend.VARIABLE)
if LIBRARY:
    pretend.register(LIBRARY)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        names = [pretend.NAME] if LIBRARY else ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
        metafunc.parametrize("device", names, indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if request.param == "cuda":
        _need_a_gpu()
    if request.param == pretend.NAME:  # its arithmetic is that of the CPU
        monkeypatch.setattr(proofs, "PROVED", (*proofs.PROVED, pretend.NAME))
        monkeypatch.setenv("LINFDIST_BACKEND", "reference")  # no other runs there: the CPU shall take the same one
    return machine.choose_device(request.param)


@pytest.fixture
def gpu() -> torch.device:
    """A GPU; for tests that make no sense elsewhere, which must be marked."""
    _need_a_gpu()
    return machine.choose_device("cuda")


def _need_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip(machine.why_none())
    if triton.interpreted():
        pytest.fail("TRITON_INTERPRET is set: this would try the interpreter, not the GPU")
