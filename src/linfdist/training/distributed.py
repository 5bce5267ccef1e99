"""Training with one process or with several of `torchrun`, and the checks that these agree."""

import hashlib
import json
import os
import re
import socket
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..data import Dataset
from ..data.base import spread_out
from ..errors import LinfdistError
from ..ops import machine
from ..ops.backends import native, pick_backend
from ..recipes import Recipe
from ..version import __version__

FORESEEN = (LinfdistError, ImportError, MemoryError, OSError, TypeError, ValueError)  # what a user can cause

FRESH_STORE = (
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the environment of every launcher: "
    "else processes that are started again may look for one another where those before them were"
)

SAMPLE = 256  # images that are compared; all labels are


class LostWorker(LinfdistError, RuntimeError):
    """Another process of the job is gone."""

    topic = "lost worker"  # its text names a connection


class JobError(LinfdistError, RuntimeError):
    """An error in one process of the job, or between them; all processes raise it with the same text."""


@dataclass(frozen=True)
class Workers:
    """This process among all of the job; by default alone, on the CPU."""

    rank: int = 0
    world: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (a constant)

    @property
    def first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def sum(self, mine: dict[str, float]) -> dict[str, float]:
        """Return the sums over all processes (all-reduce)."""
        if self.world == 1:
            return mine
        total = torch.tensor(list(mine.values()), dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return dict(zip(mine, total.tolist(), strict=True))

    def sum_tensor(self, mine: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all processes in place, and return it (all-reduce)."""
        if self.world > 1:
            torch.distributed.all_reduce(mine)
        return mine

    def gather(self, mine: str) -> list[str]:
        """Return the texts of all processes, in the order of their ranks (all-gather)."""
        if self.world == 1:
            return [mine]
        content = torch.tensor(list(mine.encode()), dtype=torch.uint8, device=self.device)
        lengths = self.sum({str(rank): float(len(content) * (rank == self.rank)) for rank in range(self.world)})
        texts = torch.zeros(self.world, int(max(lengths.values())), dtype=torch.uint8, device=self.device)
        texts[self.rank, : len(content)] = content
        torch.distributed.all_reduce(texts)  # no other process adds to this row: bytes stay bytes
        return [
            bytes(row[: int(length)].tolist()).decode() for row, length in zip(texts, lengths.values(), strict=True)
        ]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run code that may fail on some processes only: all raise `JobError` if it fails on any.

        Without this, the others would wait for the failed process, and then report that it is gone, but not why.
        """
        problem: BaseException | None = None
        try:
            yield
        except FORESEEN as error:
            if self.world == 1:
                raise
            problem = error
        found = self.gather("" if problem is None else str(problem) or type(problem).__name__)
        if len(texts := set(found)) == 1 and problem is not None:
            raise JobError(str(problem) or type(problem).__name__) from problem
        if texts != {""}:
            names = self.names()
            each = (f"{names[rank]}: {text}" for rank, text in enumerate(found) if text and text not in found[:rank])
            raise JobError("; ".join(each)) from problem

    def check_same(self, mine: Mapping[str, str], advice: str) -> None:
        """Raise `JobError` on all processes if an entry differs, naming two processes and their values."""
        entries = [dict(zip(mine, text.split("\0"), strict=True)) for text in self.gather("\0".join(mine.values()))]
        for rank, other in enumerate(entries):
            if different := [key for key in mine if other[key] != entries[0][key]]:
                names = self.names()
                what = "; ".join(
                    f"{key} is {entries[0][key]} in {names[0]}, {other[key]} in {names[rank]}" for key in different
                )
                raise JobError(f"the processes of this job differ: {what}. {advice}")

    def names(self) -> list[str]:
        """Return the name of each process in messages: its number and its machine."""
        return [f"process {rank} on {host}" for rank, host in enumerate(self.gather(socket.gethostname()))]

    def sharing(self, module: nn.Module) -> nn.Module:
        """Return the module with gradients averaged over all processes at every backward.

        Each parameter's gradient is summed by itself. `DistributedDataParallel` packs gradients into buckets,
        differently at the first step than later, and the place in a bucket decides the order of summation: with three
        or more processes, a resumed run would round differently from one that was never stopped.
        """
        if self.world == 1:
            return module

        # the annotations are asked for by torch, and are not there in builds without torch.distributed
        def mean_of_each(_: object, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
            works = [torch.distributed.all_reduce(grad.div_(self.world), async_op=True) for grad in bucket.gradients()]
            done: Any = torch.futures.collect_all([work.get_future() for work in works if work is not None])
            return done.then(lambda _: bucket.buffer())

        shared = DistributedDataParallel(module)
        shared.register_comm_hook(None, mean_of_each)
        return shared

    def lost(self, error: RuntimeError) -> bool:
        """Return whether this error means that another process is gone."""
        if self.world == 1:
            return False
        signs = ("gloo", "NCCL", "Connection closed", "Connection reset", "Broken pipe")
        if type(error) is RuntimeError:  # what gloo raises; ours are of types of their own
            return any(sign in str(error) for sign in signs)
        return isinstance(error, torch.distributed.DistError)


def meets_where_it_met_before() -> bool:
    """Return whether restarted processes may find the addresses of their predecessors.

    By default they do: torchrun keeps one store for a whole job, in which gloo stores addresses by rank alone (torch
    2.13). A process that restarts before the others reads addresses of dead processes, and fails or waits forever.
    """
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def without_advice(error: RuntimeError) -> str:
    """Return the transport's message, without source locations and general advice."""
    return re.sub(r"\[\S+\.cc:\d+\] *", "", str(error)).partition(". This is typically")[0]


def is_first() -> bool:
    """Return whether this process prints; this works before the processes have joined."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def workers(device: str | torch.device = machine.AUTO, timeout: timedelta = timedelta(minutes=5)) -> Iterator[Workers]:
    """Join the group that `torchrun` has set up (gloo on CPUs, NCCL on GPUs), or work alone.

    device: see `machine.choose_device`.
    """
    device = machine.choose_device(device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    world = machine.from_launcher("WORLD_SIZE", 1)
    if world == 1 or torch.distributed.is_initialized():
        group = torch.distributed.is_initialized()
        yield Workers(
            torch.distributed.get_rank() if group else 0, torch.distributed.get_world_size() if group else 1, device
        )
        return
    on_gpu = device.type == "cuda"
    try:
        torch.distributed.init_process_group(
            "nccl" if on_gpu else "gloo", timeout=timeout, device_id=device if on_gpu else None
        )
    except RuntimeError as error:
        raise LostWorker(
            f"the processes of this job have not found one another ({without_advice(error)}): see that every machine "
            "reaches every other one"
            + (f"; if torchrun has started them again, it needs {FRESH_STORE}" if meets_where_it_met_before() else "")
        ) from error
    try:
        yield Workers(torch.distributed.get_rank(), world, device)
    except BaseException as error:
        # What the frames of an error hold, such as a wrapper that averages gradients, must not outlive the group: if it
        # is the last to let go of it, torch 2.13 waits for the group's threads, and these may wait for the interpreter.
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        torch.distributed.destroy_process_group()


def same_code(device: torch.device) -> dict[str, str]:
    """Return the engine and versions here: processes whose engines round differently would diverge."""
    probe = torch.empty(0, device=device)
    backend = pick_backend(probe, probe)
    return {
        "the version of linfdist": f"{__version__} (code {_digest_of_code()[:12]})",
        "the version of torch": torch.__version__,
        "the engine": f"native {native.isa()}" if backend is native else backend.name,
    }


def same_recipe(recipe: Recipe, but: set[str]) -> dict[str, str]:
    """Return every key of the recipe, as JSON, except those in `but`."""
    values = json.loads(recipe.model_dump_json())
    return {f"{key} of the recipe": json.dumps(value) for key, value in values.items() if key not in but}


def same_images(dataset: Dataset) -> dict[str, str]:
    """Return a fingerprint of a set of images, without reading all of them."""
    chosen = spread_out(SAMPLE, len(dataset))
    digest = hashlib.sha256(dataset.labels.contiguous().numpy().data)
    digest.update(dataset.images[chosen].contiguous().numpy().data)
    shape = "×".join(map(str, dataset.images.shape))
    return {"the training set": f"{shape}, {len(dataset.classes)} classes, sha256 {digest.hexdigest()[:12]}"}


@cache
def _digest_of_code() -> str:
    """Return the sha256 of the package's Python files: an editable checkout has one version for many states."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
