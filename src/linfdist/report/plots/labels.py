"""Where the labels of a chart go, so that none covers another."""

from collections.abc import Sequence


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Positions for labels, at least `gap` apart, in the same order, near where they are wanted."""
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    placed = [0.0] * len(wanted)
    blocks: list[list[int]] = []
    for k in order:
        blocks.append([k])
        # Merge from the top down: a block sits centred on the mean of what its labels want.
        while len(blocks) > 1 and _start(blocks[-1], wanted, gap) < _end(blocks[-2], wanted, gap) + gap:
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    for block in blocks:
        start = _start(block, wanted, gap)
        for place, k in enumerate(block):
            placed[k] = start + place * gap
    return placed


def stacked(wanted: Sequence[float], lowest: float, gap: float) -> list[float]:
    """Positions for labels that may only move up, and none below `lowest`. wanted: ascending."""
    placed: list[float] = []
    for value in wanted:
        placed.append(max(value, placed[-1] + gap if placed else lowest))
    return placed


def _start(block: Sequence[int], wanted: Sequence[float], gap: float) -> float:
    return sum(wanted[k] for k in block) / len(block) - gap * (len(block) - 1) / 2


def _end(block: Sequence[int], wanted: Sequence[float], gap: float) -> float:
    return _start(block, wanted, gap) + gap * (len(block) - 1)
