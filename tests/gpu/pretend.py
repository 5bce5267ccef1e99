"""The device of `pretend.cpp`: building it, and making torch know it. `python -m tests.gpu.pretend FILE` builds it."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import torch

NAME = "pretend"
VARIABLE = "LINFDIST_PRETEND"
SOURCE = Path(__file__).with_suffix(".cpp")


def build(library: Path) -> None:
    torch_dir = Path(torch.__file__).parent
    include = [f"-I{torch_dir / 'include'}", f"-I{torch_dir / 'include/torch/csrc/api/include'}"]
    link = [f"-L{torch_dir / 'lib'}", "-lc10", "-ltorch_cpu"]
    command = ["c++", "-std=c++20", "-O0", "-w", "-fPIC", "-shared", *include, str(SOURCE), "-o", str(library), *link]
    subprocess.run(command, check=True, capture_output=True, text=True)


def register(library: str) -> None:
    """Once in a process, and for good."""
    torch.utils.rename_privateuse1_backend(NAME)
    torch.ops.load_library(library)
    module = ModuleType(f"torch.{NAME}")
    module.is_available = lambda: True  # type: ignore[attr-defined]
    module.device_count = lambda: 1  # type: ignore[attr-defined]
    module.current_device = lambda: 0  # type: ignore[attr-defined]
    module._is_in_bad_fork = lambda: False  # type: ignore[attr-defined]
    module.manual_seed_all = lambda seed: None  # type: ignore[attr-defined]
    torch._register_device_module(NAME, module)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
