"""A pytest plugin for `make test-sanitized`: the native library is the one with sanitizers, `build/sanitized`."""

from pathlib import Path

import torch

import linfdist
from linfdist.ops.backends import native

LIBRARY = Path(__file__).parents[1] / "build" / "sanitized" / "_native.so"
linfdist.__path__.insert(0, str(LIBRARY.parent))
if native.missing() or str(LIBRARY) not in torch.ops.loaded_libraries:
    raise RuntimeError(f"{LIBRARY} was not loaded: {native.missing() or 'another library was'}")
