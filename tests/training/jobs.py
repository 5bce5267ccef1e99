"""Jobs of several processes, all forked from one interpreter: starting it costs more than such a job.

    python -m tests.training.jobs FOLDER DATA

runs every job below into FOLDER, and prints as JSON what became of each of its processes.
"""

import errno
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from linfdist import data
from linfdist.training import distributed, loop, objective, trainer

from .runs import tiny

STEPS = 10
KILLED = "killed"


def job(world: int, out: Path, source: Path, change: Callable[[int], dict] | None = None, **settings) -> list[str]:
    """Train in so many processes, `change(rank)` in each of them before; return how each has ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(world)}
    processes, pipes = [], []
    for rank in range(world):
        ours, theirs = os.pipe()
        process = os.fork()
        if not process:
            os.environ.update(place, RANK=str(rank), LOCAL_RANK=str(rank))
            given = {"recipe": tiny(epochs=1, **settings), "out": out, "data_dir": source, "checkpoint_seconds": 0}
            given |= change(rank) if change else {}
            try:
                loop.train(**given, resume=True, quiet=True)
                outcome = "finished"
            except BaseException as error:
                outcome = f"{type(error).__name__}: {error}"
            os.write(theirs, outcome.encode())
            os._exit(0)
        os.close(theirs)
        processes.append(process)
        pipes.append(ours)
    outcomes = []
    for process, pipe in zip(processes, pipes, strict=True):
        with os.fdopen(pipe, "rb") as file:
            outcomes.append(file.read().decode() or KILLED)
        os.waitpid(process, 0)
    return outcomes


def at_step(number: int, ranks: set[int], act: Callable[[], object]) -> Callable[[int], dict]:
    """Act in some processes when they come to a step."""

    def change(rank: int) -> dict:
        step = trainer.Trainer.step

        def acting(self, state=None):
            if self.done == number and rank in ranks:
                act()
            return step(self, state)

        trainer.Trainer.step = acting
        return {}

    return change


def not_finite() -> None:
    """Let the loss of this process be NaN from now on."""
    forward = objective.Objective.forward
    objective.Objective.forward = lambda *given: (lambda loss, z: (loss * float("nan"), z))(*forward(*given))


def disk_full(*_) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "checkpoint.safetensors")


def other_images(rank: int) -> dict:
    if rank == 1:
        load = data.load
        loop.data.load = lambda *given, **more: (lambda found: type(found)(
            found.name, 255 - found.images, found.labels, found.classes))(load(*given, **more))  # fmt: skip
    return {}


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def main(folder: Path, source: Path) -> dict[str, list[str]]:
    def second(**changed) -> Callable[[int], dict]:
        return lambda rank: changed if rank == 1 else {}

    def set_in_second(module, name, value) -> Callable[[int], dict]:
        return lambda rank: setattr(module, name, value) or {} if rank == 1 else {}

    def selective(rank: int) -> dict:
        return {"recipe": tiny(epochs=3, safe_share=0.2, lost_share=0.2)}

    def save_fails(rank: int) -> dict:
        if rank == 0:
            loop.save_checkpoint = disk_full
        return {}

    (folder / "file").write_text("no folder")
    kill = at_step(4, {1}, lambda: os.kill(os.getpid(), signal.SIGKILL))
    nan = at_step(4, {1}, not_finite)
    stop = at_step(4, {3}, interrupt)  # one of them alone
    loop.PATIENCE_SECONDS = 0.3
    jobs = {  # name: (processes, folder, change)
        "one": (1, "one", None), "two": (2, "two", None), "four": (4, "four", None), "again": (4, "again", None),
        "stop": (4, "stopped", stop), "resume": (4, "stopped", None),
        "stop four": (4, "fewer", stop), "resume two": (2, "fewer", None),
        "kill": (2, "killed", kill), "after kill": (2, "killed", None),
        "sampling": (1, "sampling", selective), "sampling of two": (2, "sampling of two", selective),
        "stop sampling": (2, "sampling stopped", lambda rank: {**at_step(25, {1}, interrupt)(rank), **selective(rank)}),
        "resume sampling": (2, "sampling stopped", selective),
        "nan": (2, "nan", nan),
        "data": (2, "data", second(data_dir=folder / "file")),
        "recipe": (2, "recipe", second(recipe=tiny(epochs=1, width=16))),
        "version": (2, "version", set_in_second(distributed, "__version__", "9.9")),
        "images": (2, "images", other_images),
        "folder": (2, "here", second(out=folder / "there")),
        "finished there": (2, "elsewhere", second(out=folder / "two")),
        "disk": (2, "disk", save_fails),
    }  # fmt: skip
    outcomes = {}
    for name, (world, place, change) in jobs.items():
        start = time.monotonic()
        outcomes[name] = job(world, folder / place, source, change)
        print(f"{name}: {time.monotonic() - start:.1f} s", file=sys.stderr)
    return outcomes


if __name__ == "__main__":
    import torch._dynamo  # what training imports on its way: once, rather than in every process

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    assert distributed.is_first()
    print("\n" + json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]))))
