"""How large a tile a program computes: a small table, and measuring on request."""

from typing import NamedTuple

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

    @property
    def warps(self) -> int:
        return max(1, self.TM * self.TN // 32)


TABLE = {
    "inf": Tile(8, 8, 16, 16),
    "inf_argmax": Tile(8, 4, 8, 16),
    "box": Tile(8, 4, 8, 16),
    "box_argmax": Tile(4, 4, 8, 16),
    "inf_backward": Tile(4, 4, 8, 16),
    "finite": Tile(4, 4, 8, 16),
    "finite_backward": Tile(4, 4, 8, 16),
}
INTERPRETED = Tile(8, 8, 8, 8)  # few, large programs


def tile_of(kernel: str) -> Tile:
    return INTERPRETED if interpreted() else TABLE[kernel]
