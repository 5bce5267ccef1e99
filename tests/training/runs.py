"""Tiny runs on the digits, and what there is to compare of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from linfdist import recipes
from linfdist.files import load_tensors
from linfdist.training import train

FINISHED = {"model.safetensors", "recipe.json", "metrics.jsonl"}
TIMES = {"seconds", "cpu_seconds", "images_per_second"}
EPOCH = 10  # steps, with the settings below
SETTINGS = {"width": 12, "batch_size": 128, "epochs": 3}
AS_TEXT = [text for key, value in SETTINGS.items() for text in ("--set", f"{key}={value}")]


def tiny(**changes):
    """digits-quick, three epochs of ten steps."""
    return recipes.load("digits-quick").override({**SETTINGS, **changes})


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_tensors(folder / "model.safetensors")[0]


def same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def metrics(folder: Path) -> list[dict]:
    """The rows, without what depends on the clock; NaN and infinity are no JSON."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line, parse_constant=lambda word: 1 / 0) for line in lines]
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def files(folder: Path) -> set[str]:
    """The names of all files, except that of the lock, which says who had it last."""
    return {path.name for path in folder.iterdir()} - {".training.lock"}


def stop_after(calls: int, stop):
    """An evaluation that calls `stop` at the end of that epoch."""
    seen = []

    def evaluate(network, images, labels):
        seen.append(1)
        if len(seen) == calls:
            stop()
        return {"clean": 1.0}

    return evaluate


def start(*command: str, **environment: str) -> subprocess.Popen[str]:
    """Python on one thread, quiet."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environment}
    return subprocess.Popen(
        [sys.executable, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


__all__ = [
    "AS_TEXT", "EPOCH", "FINISHED", "files", "metrics", "same_bits", "start", "stop_after", "tensors", "tiny", "train",
]  # fmt: skip
