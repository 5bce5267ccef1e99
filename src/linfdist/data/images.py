"""Image files: reading returns exactly the pixels in the file, 8 bits per channel, or refuses the file.

Size, mode and depth are checked before anything is decoded. No conversion changes what a viewer would show: a
certificate is about the pixels that were hashed, and these must be the ones in the file.
"""

import io
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import PIL.ImageFile
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from ..files import read_bytes
from .builtin import Corrupt, DataError, Pixels

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp"})
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")  # Pillow knows others that run programs
MAX_PIXELS = 25_000_000  # larger ones are refused before they fill the memory
MAX_BYTES = 1 << 27

_CHANNELS = {"L": 1, "LA": 1, "P": 3, "PA": 3, "RGB": 3, "RGBA": 3}
_ORIENTATION = 0x0112  # the tag
_TURNS = {  # by the tag's value, how the stored image is made upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class ImageFile:
    """An image whose header has been read and accepted; its pixels are decoded on demand.

    channels: 1 (gray) or 3 (colour).
    """

    def __init__(self, data: bytes, where: str) -> None:
        self.where = where
        with _refusing(where):
            self._image = Image.open(io.BytesIO(data), formats=FORMATS)
            columns, rows = self._image.size
            if rows * columns > MAX_PIXELS:
                raise self._of_size(rows, columns, f"more than {MAX_PIXELS:,} in all: crop or resize it first")
            if self._image.mode not in _CHANNELS or _bits(self._image) != 8:
                raise DataError(
                    f"{where} is not gray or RGB with 8 bits per channel ({self._image.format}, mode "
                    f"{self._image.mode}): convert it first, and mind that this changes the image"
                )
            if (frames := getattr(self._image, "n_frames", 1)) != 1:
                raise DataError(f"{where} holds {frames} images: save the one that is meant alone")
        self.channels = _CHANNELS[self._image.mode]

    def pixels(
        self,
        channels: int | None = None,
        size: tuple[int, int] | None = None,
        need: str = "",
        resize: int | None = None,
    ) -> Pixels:
        """Decode to uint8 (C, H, W), upright, with the channels of the file or with `channels` (1 or 3).

        Colour never becomes gray, but RGB with three equal channels is gray already.

        size: the (height, width) that it must have; need: how the error states that. An image of another size is
        refused before it is decoded. An alpha channel is left out if every pixel is opaque, else the image is refused.
        resize:
        the side to which the largest square in the middle is resized.
        """
        columns, rows = self._image.size
        if size is not None and size not in ((rows, columns), (columns, rows)):  # it may have to be turned
            raise self._of_size(rows, columns, need)
        with _refusing(self.where):
            self._image.load()
            turn = self._turn()
            image: Image.Image = self._image
            if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
                image = image.convert("RGBA")
                if image.getchannel("A").getextrema() != (255, 255):
                    raise DataError(f"{self.where} is transparent in places: put it on a background first")
            image = image.convert("RGB" if 3 in (channels, self.channels) else "L")
            image = image if turn is None else image.transpose(turn)
            if resize is not None and image.size != (resize, resize):
                # Weights are not negative and sum to 1: a resized pixel moves no more than those it is the mean of.
                image = ImageOps.fit(image, (resize, resize), Image.Resampling.BILINEAR)
            pixels = np.array(image)
        if channels == 1 and pixels.ndim == 3:
            if not (pixels == pixels[..., :1]).all():
                raise DataError(f"{self.where} is in colour, but must be gray: convert it first")
            pixels = pixels[..., 0]
        if size is not None and pixels.shape[:2] != size:
            raise self._of_size(pixels.shape[0], pixels.shape[1], need)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)) if pixels.ndim == 3 else pixels[None]

    def _turn(self) -> Image.Transpose | None:
        """Read from EXIF how to turn the image upright."""
        try:
            value = self._image.getexif().get(_ORIENTATION, 1)
            return None if value in (0, 1) else _TURNS[value]  # some cameras write 0 where they do not know
        except Exception as error:  # a parser of bytes that anybody may have written: it can fail in any way
            raise Corrupt(
                f"{self.where} has EXIF data that cannot be read ({error!r}): save the image without metadata"
            ) from error

    def _of_size(self, rows: int, columns: int, need: str) -> DataError:
        return DataError(f"{self.where} has {columns} × {rows} pixels, {need}")


def decode(data: bytes, where: str, channels: int | None = None) -> Pixels:
    """Decode an image file to uint8 (C, H, W), with the file's own channels or with `channels` (1 or 3)."""
    return ImageFile(data, where).pixels(channels)


def open_image(path: str | os.PathLike[str]) -> ImageFile:
    """Read the header of an image file. What is not a regular file is refused without waiting for it."""
    where = os.fspath(path)
    try:
        content = read_bytes(where, MAX_BYTES)
    except OSError as error:
        raise DataError(f"cannot read {where}: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(str(error)) from error
    return ImageFile(content, where)


def read_image(path: str | os.PathLike[str], channels: int | None = None) -> Tensor:
    """Read one image file as uint8 (C, H, W), with the file's own channels or with `channels` (1 or 3)."""
    with warnings_refused():
        return torch.from_numpy(open_image(path).pixels(channels))


def read_images(
    paths: Sequence[str | os.PathLike[str]], shape: tuple[int, int, int], resize: int | None = None
) -> Tensor:
    """Read image files for a network that takes (C, H, W) = `shape`: uint8 (B, C, H, W).

    An image of another size is refused before it is decoded, because a resized image is another image. Images are
    resized only for a network that was trained on resized images (`resize` is the side of the squares).
    """
    channels, height, width = shape
    if resize is not None:
        with warnings_refused():
            squares = [open_image(path).pixels(channels, resize=resize) for path in paths]
        return torch.from_numpy(np.stack(squares))
    kind = "gray" if channels == 1 else f"{channels} channels"
    need = f"but the network takes {width} × {height}, {kind}: crop or resize it first, and certify the result"
    with warnings_refused():
        images = [open_image(path).pixels(channels, (height, width), need) for path in paths]
    return torch.from_numpy(np.stack(images))


def image_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """List image files as given, replacing each folder by the files below it, sorted."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: give image files, or folders of them")
        below = files_below(path) if path.is_dir() else [path]
        if not below:
            raise DataError(f"{path} holds no images: files that end in {', '.join(sorted(SUFFIXES))}")
        found += below
    return found


def files_below(folder: Path) -> list[Path]:
    """List the image files below a folder by their endings, sorted; names that start with a dot are left out."""
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and not path.is_dir()
    )
    for path in found:
        if not path.is_file():
            raise DataError(f"{path} is not a regular file: take it out of {folder}")
    return found


@contextmanager
def warnings_refused() -> Iterator[None]:
    """Turn Pillow's warnings into errors. Enter it before threads start: warning filters belong to the process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module=r"PIL\.")
        yield


@contextmanager
def _refusing(where: str) -> Iterator[None]:
    lenient = PIL.ImageFile.LOAD_TRUNCATED_IMAGES  # a switch for the whole process, which others may have set
    PIL.ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        yield
    except (DataError, MemoryError):
        raise
    except Exception as error:  # decoders of bytes that anybody may have written: they can fail in any way
        why = "no format that is read" if isinstance(error, UnidentifiedImageError) else error
        raise Corrupt(f"{where} is not an intact image: {why}") from error
    finally:
        PIL.ImageFile.LOAD_TRUNCATED_IMAGES = lenient


def _bits(image: PIL.ImageFile.ImageFile) -> int:
    """Find the bits per channel in the file, 0 if they differ; Pillow's mode does not show 16 bits cut to 8.

    Entries of palettes always have 8.
    """
    if image.mode in ("P", "PA") or image.format not in ("PNG", "BMP", "PPM", "TIFF"):
        return 8
    if image.format == "TIFF":
        bits = set(image.tag_v2.get(258, (1,)))  # type: ignore[attr-defined]
        return bits.pop() if len(bits) == 1 else 0
    codec, _, _, arguments = image.tile[0]
    raw, *more = arguments if isinstance(arguments, tuple) else (arguments,)  # such as "RGB", or "RGB;16B"
    if image.format == "PPM" and codec != "raw":
        return 8 if more == [255] else 0  # the largest value: others are stretched to 255
    depth = str(raw).partition(";")[2].rstrip("BLN")
    return 8 if ";" not in str(raw) else int(depth) if depth.isdecimal() else 0
