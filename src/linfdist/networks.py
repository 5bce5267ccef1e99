"""Load any network, float or exact, by its name in the zoo, its file, or the folder of its run."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import exact, models
from .files import read_header
from .models import Network, zoo
from .runs.folder import MODEL


def load(source: str | os.PathLike[str], folder: Path | None = None) -> Network:
    """Load a network by its name in the zoo ("mnist-0.3"), or by the path of its file or of a finished run's folder.

    A float network is in eval mode, at p = inf, and takes pixels of [0, 1], shape (B, C, H, W). A file that
    `linfdist export --format exact` has written gives an exact network, which takes 8-bit images of that shape. If
    something with that path exists, it is taken; else the zoo is asked, whose files are verified. folder: another zoo.
    """
    path = zoo.find(source, folder)
    file = path / MODEL if path.is_dir() else path
    header = read_header(file) if file.is_file() else {}
    if path.is_file() and header.get("format") in exact.FORMATS:
        return exact.load(path)
    if _conventional(header.get("config")):
        from . import baselines  # noqa: F401 (it enters its classes where models.load finds them)
    return models.load(path)


def _conventional(config: Any) -> bool:
    """Whether a network, or one of its members, is of a class of `linfdist.baselines`, which is not imported before."""
    if not isinstance(config, Mapping):
        return False
    members = config.get("members")
    own = isinstance(name := config.get("class"), str) and name.startswith("baselines.")
    return own or (isinstance(members, list) and any(_conventional(each) for each in members))
