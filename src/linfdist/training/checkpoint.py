"""A run in one file, whole or not at all. Data order and augmentation are not in it: they follow from (seed, step)."""

from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor, nn

from ..files import load_tensors, save_tensors
from ..models.saved import load_into
from ..runs import CHECKPOINT
from .average import Average
from .optim import DistAdam

FILE = CHECKPOINT
Sums = dict[str, float]


def no_sums() -> Sums:
    """The sums of an epoch that begins."""
    return {"loss": 0.0, "correct": 0.0, "seen": 0.0}


def save(path: Path, objective: nn.Module, optimiser: DistAdam, average: Average, step: int, sums: Sums) -> None:
    """Weights, moments, mean weights, step, and the sums of the epoch so far."""
    tensors = {f"model/{name}": tensor for name, tensor in objective.state_dict().items()}
    tensors |= {f"optimiser/{name}": tensor for name, tensor in optimiser.state_dict().items()}
    tensors |= {f"average/{name}": tensor for name, tensor in average.means.items()}
    save_tensors(path, tensors, {"step": step, "sums": sums})


def load(path: Path, objective: nn.Module, optimiser: DistAdam, average: Average, total: int) -> tuple[int, Sums]:
    """Take up the run in `path`: its step and sums. What is not a checkpoint of this very run is a ValueError."""
    tensors, header = load_tensors(path)
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimiser": {}, "average": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        if part not in parts:
            raise ValueError(f"{path} is not a checkpoint: it has a tensor {name!r}")
        parts[part][rest] = tensor
    step, sums = header.get("step"), header.get("sums")
    if not isinstance(step, int) or not 0 <= step <= total or not _are_sums(sums):
        raise ValueError(f"{path} is not a checkpoint of this run: step {step!r} of {total}, sums {sums!r}")
    if parts["average"]:
        load_into(average.network, parts["average"], path)  # to see that they fit: the weights themselves come next
    average.means = parts["average"]
    load_into(objective, parts["model"], path)
    try:
        optimiser.load_state_dict(parts["optimiser"], step)
    except ValueError as error:
        raise ValueError(f"{path} does not fit this run: {error}") from None
    return step, sums


def _are_sums(sums: Any) -> TypeGuard[Sums]:
    if not isinstance(sums, dict) or sums.keys() != no_sums().keys():
        return False
    return all(isinstance(value, float | int) for value in sums.values())
