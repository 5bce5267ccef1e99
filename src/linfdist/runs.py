"""The folder of a finished run: its recipe, its epochs, and how long it took."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import recipes
from .files import MODEL_FILE
from .recipes import Recipe


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: the recipe as it was trained, and the lines of its metrics.jsonl."""

    folder: Path
    recipe: Recipe
    epochs: tuple[dict[str, Any], ...]

    @property
    def model_file(self) -> Path:
        """Name the file of its network."""
        return self.folder / MODEL_FILE

    @property
    def seconds(self) -> float:
        """Add up the time spent on training.

        Each resumption counts from 0 again. What a resumed run had done after its last whole epoch is not known, and
        left out.
        """
        total = before = 0.0
        for epoch in self.epochs:
            now = float(epoch["seconds"])
            total += now - before if now >= before else now
            before = now
        return total


def read_run(folder: Path) -> FinishedRun:
    """Read the run in a folder; OSError or ValueError says why it cannot be used."""
    if not (folder / MODEL_FILE).is_file():
        raise FileNotFoundError(f"{folder} is not the folder of a finished run: it holds no {MODEL_FILE}")
    recipe = recipes.load(folder / "recipe.json")
    path = folder / "metrics.jsonl"
    try:
        epochs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if not all(isinstance(epoch["seconds"], float | int) and epoch["step"] >= 0 for epoch in epochs):
            raise ValueError("an epoch has no seconds")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): the run cannot be used") from None
    return FinishedRun(folder, recipe, tuple(epochs))
