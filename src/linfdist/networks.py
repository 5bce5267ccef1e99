"""Load any network, float or exact, by its name in the zoo, its file, or the folder of its run."""

import os
from pathlib import Path

from . import exact, models, zoo
from .exact import FrozenNet
from .files import read_header
from .models import PixelNet


def load(source: str | os.PathLike[str], folder: Path | None = None) -> PixelNet | FrozenNet:
    """Load a network by its name in the zoo ("mnist-0.3"), or by the path of its file or of a finished run's folder.

    A float network is in eval mode, at p = inf, and takes pixels of [0, 1], shape (B, C, H, W). A file that
    `linfdist export --format exact` has written gives an exact network, which takes 8-bit images of that shape. If
    something with that path exists, it is taken; else the zoo is asked, whose files are verified. folder: another zoo.
    """
    path = zoo.find(source, folder)
    if path.is_file() and read_header(path).get("format") in exact.FORMATS:
        return exact.load(path)
    return models.load(path)
