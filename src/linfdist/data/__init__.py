"""Image data sets, whole in memory as uint8: fetched, verified, stored once, loaded at once."""

from .augment import Augment, augment, centre_crop
from .base import DataError, Dataset, Info
from .catalogue import NAMES, Fetched, fetch, info, load
from .folder import read_image
from .store import data_root

__all__ = [
    "NAMES",
    "Augment",
    "DataError",
    "Dataset",
    "Fetched",
    "Info",
    "augment",
    "centre_crop",
    "data_root",
    "fetch",
    "info",
    "load",
    "read_image",
]
