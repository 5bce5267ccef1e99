"""Two real processes that share a batch learn what one process learns."""

import math

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from .layers import TwoLayers, images

POWERS = (8.0, 30.5, math.inf)


def train(model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Three steps; the gradients of each."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    for p in POWERS:
        optimizer.zero_grad()
        model(x, p).square().mean().backward()
        kept += [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
    return kept


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    x = images(8, torch.float64)
    kept = train(DistributedDataParallel(TwoLayers(torch.float64)), x[rank::2])
    torch.save(kept, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
def test_two_processes_equal_one(tmp_path):
    mp.spawn(worker, args=(str(tmp_path),), nprocs=2)
    torch.manual_seed(0)
    expected = train(TwoLayers(torch.float64), images(8, torch.float64))
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    for right, *both in zip(expected, *ranks, strict=True):
        assert torch.equal(*both)
        torch.testing.assert_close(both[0], right)
