"""A folder of the user's own images: `class/image.png`, optionally below `train/` and `test/`."""

import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from .base import SPLITS, Corrupt, DataError, Dataset, Info, Pixels
from .measure import measure

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp"})
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")  # Pillow knows others that run programs
_TEST_SHARE = 5  # without train/ and test/, one image in five is for testing
_GRAY = frozenset({"1", "L", "LA"})
_COLOUR = frozenset({"P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"})


def load(root: Path, split: str) -> Dataset:
    """One split of a folder of images.

    Classes are the sorted names of the folders. Without `train/` and `test/` an image is for testing if a hash of its
    path says so: every fifth or so, the same ones on every machine, whatever is added or removed besides.
    One gray channel if all images of both splits are gray, else RGB.
    """
    paths, classes = _listing(root)
    chosen = paths[split]
    if not chosen:
        raise DataError(f"{root} has no {split} images: it needs more images, or folders train/ and test/")
    channels = _channels([path for split in SPLITS for _, path in paths[split]])
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        images = list(pool.map(lambda entry: decode(entry[1].read_bytes(), str(entry[1]), channels), chosen))
    for image, (_, path) in zip(images, chosen, strict=True):
        if image.shape != images[0].shape:
            raise DataError(
                f"all images must have one size: {path} has {image.shape[2]} × {image.shape[1]} pixels, "
                f"{chosen[0][1]} has {images[0].shape[2]} × {images[0].shape[1]}"
            )
    labels = torch.tensor([label for label, _ in chosen])
    return Dataset(str(root), torch.from_numpy(np.stack(images)), labels, classes)


def info(root: Path) -> Info:
    """Sizes, and mean and standard deviation of the training images."""
    return measure(load(root, "train"), root.name, test=len(_listing(root)[0]["test"]))


def read_image(path: str | os.PathLike[str], channels: int | None = None) -> Tensor:
    """One image file as uint8 (C, H, W): gray or RGB as it is, or as `channels` (1 or 3) says."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {os.fspath(path)}: {error}") from error
    return torch.from_numpy(decode(data, os.fspath(path), channels))


def decode(data: bytes, where: str, channels: int | None = None) -> Pixels:
    """An image file as uint8 (C, H, W), turned upright, without its alpha channel.

    Gray becomes RGB if need be; colour never becomes gray.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
            own = _own_channels(opened.mode, where)
            if channels == 1 and own == 3:
                raise DataError(f"{where} is in colour, gray is needed")
            image = ImageOps.exif_transpose(opened)
            pixels = np.array(image.convert("RGB" if (channels or own) == 3 else "L"))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise Corrupt(f"{where} is not an intact image: {error}") from error
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)) if pixels.ndim == 3 else pixels[None]


def _listing(root: Path) -> tuple[dict[str, list[tuple[int, Path]]], tuple[str, ...]]:
    """Per split the labelled files in order, and the classes."""
    given = [split for split in SPLITS if (root / split).is_dir()]
    if len(given) == 1:
        missing = next(split for split in SPLITS if split not in given)
        raise DataError(f"{root} has a folder {given[0]}/ but no {missing}/: give both or neither")
    if not given:
        found = _by_class(root)
        paths: dict[str, list[tuple[int, Path]]] = {split: [] for split in SPLITS}
        for label, files in enumerate(found.values()):
            for path in files:
                paths[_split_of(path.relative_to(root).as_posix())].append((label, path))
        return paths, tuple(found)
    parts = {split: _by_class(root / split) for split in SPLITS}
    classes = tuple(parts["train"])
    unknown = sorted(parts["test"].keys() - parts["train"].keys())
    if unknown:
        raise DataError(f"{root / 'test'} has classes that train/ lacks: {', '.join(unknown)}")
    labelled = {
        split: [(classes.index(name), path) for name, files in part.items() for path in files]
        for split, part in parts.items()
    }
    return labelled, classes


def _by_class(root: Path) -> dict[str, list[Path]]:
    """The images of each class folder, sorted; names that start with a dot are left out."""
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = {
        folder.name: sorted(
            path
            for path in folder.rglob("*")
            if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")
        )
        for folder in folders
    }
    if not found:
        raise DataError(f"{root} has no folders: images are expected as {root / 'class' / 'image.png'}")
    empty = [name for name, files in found.items() if not files]
    if empty:
        raise DataError(f"no images in {', '.join(str(root / name) for name in empty)}")
    return found


def _split_of(name: str) -> str:
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return "test" if number % _TEST_SHARE == 0 else "train"


def _channels(paths: list[Path]) -> int:
    """3 if any image has colour. Reads the headers only."""
    channels = 1
    for path in paths:
        try:
            with Image.open(path, formats=FORMATS) as image:
                channels = max(channels, _own_channels(image.mode, str(path)))
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise Corrupt(f"{path} is not an intact image: {error}") from error
        if channels == 3:
            break
    return channels


def _own_channels(mode: str, where: str) -> int:
    if mode not in _GRAY | _COLOUR:
        raise DataError(f"{where} has pixels of mode {mode}; gray or RGB with 8 bits a channel is needed")
    return 1 if mode in _GRAY else 3
