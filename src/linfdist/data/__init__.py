"""Image data sets, whole in memory as uint8: fetched and verified once, stored, then loaded at once."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:  # what `__getattr__` below imports when it is first used
    from .augmentation import Augment, augment
    from .base import Dataset
    from .builtin import DataError, Info
    from .catalogue import NAMES, Fetched, fetch, info, load, stored_classes
    from .images import image_files, read_image, read_images
    from .store import data_root

__all__ = [
    "NAMES",
    "Augment",
    "DataError",
    "Dataset",
    "Fetched",
    "Info",
    "augment",
    "data_root",
    "fetch",
    "image_files",
    "info",
    "load",
    "read_image",
    "read_images",
    "stored_classes",
]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("Augment", "augment"), "augmentation"),
        "Dataset": "base",
        **dict.fromkeys(("DataError", "Info"), "builtin"),
        **dict.fromkeys(("NAMES", "Fetched", "fetch", "info", "load", "stored_classes"), "catalogue"),
        **dict.fromkeys(("image_files", "read_image", "read_images"), "images"),
        "data_root": "store",
    },
)
