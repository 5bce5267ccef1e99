"""Write down the commands that repeat a run."""

import shlex
from collections.abc import Mapping
from typing import Any

from .. import data, recipes
from ..runs.folder import RECIPE, Run


def commands(run: Run) -> list[str]:
    """The commands that train (if the recipe is known), evaluate and report, in a folder runs/NAME."""
    folder = f"runs/{run.name}"
    lines = (
        []
        if run.stored_recipe is None
        else [["linfdist", "train", *_recipe(run.stored_recipe, folder), "--out", folder]]
    )
    model = str(run.summary.get("model") or folder)
    evaluate = ["linfdist", "evaluate", model, "--eps", str(run.summary["eps"])]
    if model != folder:
        evaluate += ["--out", folder]
    evaluate += ["--method", str(run.summary["method"])]
    if device := run.summary.get("device"):
        evaluate += ["--device", str(device)]
    if run.attacks:
        evaluate += ["--attack", ",".join(run.attacks)]
    name, split = run.summary.get("data"), run.summary.get("split", "test")
    if split != "test":
        evaluate += ["--split", str(split)]
    if run.stored_recipe is None and name:
        evaluate += ["--data", str(name)]
    if name in data.NAMES and len(run.rows) != getattr(data.info(str(name)), str(split), len(run.rows)):
        evaluate += ["--limit", str(len(run.rows))]
    lines += [evaluate, ["linfdist", "report", folder]]
    return [shlex.join(line) for line in lines]


def _recipe(values: Mapping[str, Any], folder: str) -> list[str]:
    """A shipped recipe with its changes, if that gives these very settings; else the file kept in the run."""
    own = [f"{folder}/{RECIPE}"]
    if values.get("name") not in recipes.names():
        return own
    try:
        stored = recipes.Recipe.model_validate(dict(values)).model_dump(exclude={"source"})
        shipped = recipes.load(str(values["name"]))
        known = shipped.model_dump()
        changed = {key: value for key, value in stored.items() if known[key] != value}
        settings = [f"{key}={'none' if value is None else value}" for key, value in changed.items()]
        again = recipes.override(shipped, settings).model_dump(exclude={"source"})
    except (KeyError, ValueError, recipes.RecipeError):
        return own
    if again != stored:
        return own
    return [shipped.name, *(word for setting in settings for word in ("--set", setting))]
