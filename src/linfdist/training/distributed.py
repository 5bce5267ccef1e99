"""One process or many: the same training. Started by `torchrun`, else alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed


@dataclass(frozen=True)
class Workers:
    """This process among all."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process writes files and speaks to the user."""
        return self.rank == 0

    def any(self, mine: bool) -> bool:
        """Whether any process says so, known to all."""
        return self.sum({"it": float(mine)})["it"] > 0 if self.world > 1 else mine

    def sum(self, mine: dict[str, float]) -> dict[str, float]:
        """The sums over all processes, known to all."""
        if self.world == 1:
            return mine
        total = torch.tensor(list(mine.values()), dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return dict(zip(mine, total.tolist(), strict=True))


@contextmanager
def workers(timeout: timedelta = timedelta(minutes=5)) -> Iterator[Workers]:
    """Join the group that `torchrun` has set up (gloo on CPUs, NCCL on GPUs), or work alone."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or torch.distributed.is_initialized():
        group = torch.distributed.is_initialized()
        yield Workers(
            torch.distributed.get_rank() if group else 0, torch.distributed.get_world_size() if group else 1, device
        )
        return
    torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timeout)
    try:
        yield Workers(torch.distributed.get_rank(), world, device)
    finally:
        torch.distributed.destroy_process_group()
