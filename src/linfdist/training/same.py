"""What all processes of a job must have in common: code, engine, recipe and images. Else they train apart, silently."""

import hashlib
import json
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from ..data import Dataset
from ..data.samples import spread_out
from ..ops.backends import native
from ..ops.select import pick_backend
from ..recipes import Recipe

SAMPLE = 256  # images that are compared; all labels are


def same_code(device: torch.device) -> dict[str, str]:
    """Return what computes here. Engines that round differently would let the weights of the processes drift apart."""
    probe = torch.empty(0, device=device)
    backend = pick_backend(probe, probe)
    return {
        "the version of linfdist": f"{_version()} (code {_digest_of_code()[:12]})",
        "the version of torch": torch.__version__,
        "the engine": f"native {native.isa()}" if backend is native else backend.name,
    }


def same_recipe(recipe: Recipe, but: set[str]) -> dict[str, str]:
    """Return every key of the recipe, as JSON, but for some."""
    values = json.loads(recipe.model_dump_json())
    return {f"{key} of the recipe": json.dumps(value) for key, value in values.items() if key not in but}


def same_images(dataset: Dataset) -> dict[str, str]:
    """Return what tells two sets of images apart, without reading all of them."""
    chosen = spread_out(SAMPLE, len(dataset))
    digest = hashlib.sha256(dataset.labels.contiguous().numpy().data)
    digest.update(dataset.images[chosen].contiguous().numpy().data)
    shape = "×".join(map(str, dataset.images.shape))
    return {"the training set": f"{shape}, {len(dataset.classes)} classes, sha256 {digest.hexdigest()[:12]}"}


@cache
def _digest_of_code() -> str:
    """The sha256 of the package's Python files: an editable checkout has one version for many states."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _version() -> str:
    try:
        return version("linfdist")
    except PackageNotFoundError:
        return "unknown"
