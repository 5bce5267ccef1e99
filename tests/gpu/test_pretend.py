"""Everything in this folder once more on a device that is not the CPU to torch: no tensor may be left behind there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import pretend

pytestmark = [
    pytest.mark.slow,  # it compiles against torch's large headers
    pytest.mark.skipif(bool(os.environ.get(pretend.VARIABLE)), reason="this is the inner run"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler"),
]
MIXED = """
import torch
from tests.gpu import pretend
pretend.register({library!r})
there = torch.rand(3, 2).to("pretend")
assert torch.equal((there * 2).cpu(), there.cpu() * 2) and there.device.type == "pretend"
here = torch.rand(3, 2)
for mixed in (lambda: there + here, lambda: there @ here.T, lambda: torch.cat([there, here])):
    try:
        mixed()
    except RuntimeError as error:
        assert "device" in str(error), error
    else:
        raise AssertionError("tensors of two devices were mixed")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pretend") / "pretend.so"
    pretend.build(file)
    return file


def test_it_refuses_to_mix_devices(library):
    subprocess.run([sys.executable, "-c", MIXED.format(library=str(library))], check=True)


@pytest.mark.timeout(1200)
def test_all_tests_pass_there(library):
    folder = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(
        command, cwd=folder.parent.parent, env={**os.environ, pretend.VARIABLE: str(library)}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 20
