"""Image data sets, whole in memory as uint8: fetched and verified once, stored, then loaded at once."""

from .augment import Augment, augment
from .base import DataError, Dataset, Info
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
