"""Training with one process, or with the many that `torchrun` starts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed

from .. import devices


@dataclass(frozen=True)
class Workers:
    """This process among all; alone on the CPU by default."""

    rank: int = 0
    world: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (a constant)

    @property
    def first(self) -> bool:
        """Whether this process writes files and speaks to the user."""
        return self.rank == 0

    def sum(self, mine: dict[str, float]) -> dict[str, float]:
        """Return the sums over all processes, to each of them."""
        if self.world == 1:
            return mine
        total = torch.tensor(list(mine.values()), dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return dict(zip(mine, total.tolist(), strict=True))

    def lost(self, error: RuntimeError) -> bool:
        """Return whether a collective operation fails like this when another process is gone."""
        if self.world == 1:
            return False
        signs = ("gloo", "NCCL", "Connection closed", "Connection reset", "Broken pipe")
        if type(error) is RuntimeError:  # what gloo raises; ours are of types of their own
            return any(sign in str(error) for sign in signs)
        return isinstance(error, torch.distributed.DistError)


def is_first() -> bool:
    """Return whether this process speaks to the user; this works before the processes have joined."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def workers(device: str | torch.device = devices.AUTO, timeout: timedelta = timedelta(minutes=5)) -> Iterator[Workers]:
    """Join the group that `torchrun` has set up (gloo on CPUs, NCCL on GPUs), or work alone; see `devices.choose`."""
    device = devices.choose(device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or torch.distributed.is_initialized():
        group = torch.distributed.is_initialized()
        yield Workers(
            torch.distributed.get_rank() if group else 0, torch.distributed.get_world_size() if group else 1, device
        )
        return
    on_gpu = device.type == "cuda"
    torch.distributed.init_process_group(
        "nccl" if on_gpu else "gloo", timeout=timeout, device_id=device if on_gpu else None
    )
    try:
        yield Workers(torch.distributed.get_rank(), world, device)
    finally:
        torch.distributed.destroy_process_group()
