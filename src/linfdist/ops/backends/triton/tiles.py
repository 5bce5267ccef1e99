"""Choose the size of a program's tile: from a small table, so that no step waits, or measured on request.

LINFDIST_TRITON_TUNE=1 measures all of CANDIDATES at the first call of each kernel on each problem, some seconds each,
and keeps the fastest for the rest of the process. No result depends on it.
"""

import os
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch

from . import interpreted


class Tile(NamedTuple):
    """(RM * TM, RN * TN) outputs of one program: TM * TN threads, each with RM * RN of them in registers.

    Loads of one step have fewer elements than there are threads; Triton then gives every thread its own copy of what it
    needs, straight from the cache, rather than passing it through shared memory.
    """

    RM: int
    RN: int
    TM: int
    TN: int

    @property
    def rows(self) -> int:
        return self.RM * self.TM

    @property
    def neurons(self) -> int:
        return self.RN * self.TN

    def holding(self, kind: str) -> "Tile":
        """Return the tile for a type of numbers: a double takes two registers, so the tile holds half as many."""
        return self._replace(RM=max(1, self.RM // 2)) if kind in ("fp64", "torch.float64") else self

    @property
    def warps(self) -> int:
        return max(1, self.TM * self.TN // 32)


TABLE = {
    "inf": Tile(8, 8, 16, 16),
    "inf_argmax": Tile(8, 4, 8, 16),
    "inf_dx": Tile(4, 4, 8, 16),
    "inf_dw": Tile(4, 4, 8, 16),
    "box": Tile(8, 4, 8, 16),
    "box_argmax": Tile(4, 4, 8, 16),
    "finite": Tile(4, 4, 8, 16),
    "finite_dx": Tile(4, 4, 8, 16),
    "finite_dw": Tile(4, 4, 8, 16),
}
INTERPRETED = Tile(8, 8, 8, 8)  # few, large programs
CANDIDATES = (Tile(4, 4, 8, 16), Tile(8, 4, 8, 16), Tile(4, 8, 8, 16), Tile(8, 8, 16, 16), Tile(2, 4, 8, 16))
_fastest: dict[Hashable, Tile] = {}


def tile_of(kernel: str) -> Tile:
    """Look up the tile in the table; the interpreter has one of its own."""
    return INTERPRETED if interpreted() else TABLE[kernel]


def run_tiled(kernel: str, dtype: torch.dtype, problem: Hashable, run: Callable[[Tile], None]) -> None:
    """Call `run` with the tile for this kernel, perhaps several times; the result is always the same."""
    tile, problem = tile_of(kernel).holding(str(dtype)), (dtype, problem)
    if os.environ.get("LINFDIST_TRITON_TUNE", "") not in ("", "0"):
        if (kernel, problem) not in _fastest:
            _fastest[kernel, problem] = min(CANDIDATES, key=lambda candidate: _seconds(lambda: run(candidate)))
        tile = _fastest[kernel, problem]
    run(tile)


def _seconds(run: Callable[[], None]) -> float:
    if interpreted():
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    from triton.testing import do_bench

    return float(do_bench(run, warmup=5, rep=20))
