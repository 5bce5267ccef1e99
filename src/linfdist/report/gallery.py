"""The most and the least robust images with their smallest attacks: gallery.safetensors, and its pictures."""

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ..files import load_tensors
from ..numbers import down, up
from .rows import Row

Pixels = NDArray[np.uint8]
CELL = 112  # pixels of a picture's side, about
DELETE = "delete it, or evaluate again with --attack"


@dataclass(frozen=True, eq=False)
class Exhibit:
    """One image. image: uint8 (H, W, 3); attacked: float32 (H, W, 3); size: of the attack, None if none succeeded."""

    index: int
    label: int
    prediction: int  # of the attacked image
    radius: float
    size: float | None
    image: Pixels
    attacked: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Gallery:
    """Exhibits by radius, ascending. least: how many of them are of the less robust half of all correct images."""

    exhibits: tuple[Exhibit, ...]
    classes: tuple[str, ...]
    least: int

    @property
    def halves(self) -> dict[str, tuple[Exhibit, ...]]:
        """Under their titles; a half without exhibits is left out."""
        parts = {"Least robust": self.exhibits[: self.least], "Most robust": self.exhibits[self.least :]}
        return {title: part for title, part in parts.items() if part}


def read_gallery(path: Path, rows: tuple[Row, ...]) -> Gallery:
    """Every image must be one of `rows`, with that label and radius; else the file is another evaluation's."""
    tensors, header = load_tensors(path)
    try:
        images, attacked = tensors["images"], tensors["attacked"]
        lists = {key: list(header[key]) for key in ("index", "label", "radius", "size", "prediction")}
        classes = tuple(str(name) for name in header["classes"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is no gallery: it lacks {error}; {DELETE}") from None
    count = len(images)
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"{path}: images must be uint8 (N, 1 or 3, H, W), got {images.dtype} {tuple(images.shape)}")
    if attacked.dtype != torch.float32 or attacked.shape != images.shape:
        raise ValueError(f"{path}: attacked must be float32 and shaped like images; {DELETE}")
    if any(len(values) != count for values in lists.values()):
        raise ValueError(f"{path}: its header must have {count} entries for each of {', '.join(lists)}; {DELETE}")
    known = {row.index: row for row in rows if row.correct}
    exhibits = []
    for k, (image, other) in enumerate(zip(_hwc(images), _hwc(attacked), strict=True)):
        values = {key: entries[k] for key, entries in lists.items()}
        exhibit = _exhibit(values, image.astype(np.uint8), other.astype(np.float32), path)
        row = known.get(exhibit.index)
        if row is None or (row.label, row.radius) != (exhibit.label, exhibit.radius):
            raise ValueError(
                f"{path}: index {exhibit.index} is not like that in rows.jsonl: another evaluation; {DELETE}"
            )
        exhibits.append(exhibit)
    exhibits.sort(key=_by_radius)
    # Images that no attack broke may be missing from either half: the rows tell which half an exhibit is from.
    ordered = sorted(known.values(), key=_by_radius)
    lower = {row.index for row in ordered[: len(ordered) // 2]}
    return Gallery(tuple(exhibits), classes, sum(exhibit.index in lower for exhibit in exhibits))


def _by_radius(image: Row | Exhibit) -> tuple[float, int]:
    return image.radius, image.index


def _hwc(images: torch.Tensor) -> NDArray[Any]:
    """(N, C, H, W) -> (N, H, W, 3), grey as three equal channels."""
    return images.permute(0, 2, 3, 1).expand(-1, -1, -1, 3).numpy()


def _exhibit(values: Mapping[str, Any], image: Pixels, attacked: NDArray[np.float32], path: Path) -> Exhibit:
    try:
        index, label, prediction = (int(values[key]) for key in ("index", "label", "prediction"))
        radius = float(values["radius"])
        size = None if values["size"] is None else float(values["size"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: a damaged header entry ({error}); {DELETE}") from None
    if not radius >= 0 or (size is not None and not size > 0) or not np.isfinite(attacked).all():
        raise ValueError(f"{path}: index {index} has radius {radius}, size {size} or pixels out of range; {DELETE}")
    if size is not None and radius > 0 and size <= radius:
        raise ValueError(
            f"{path}: index {index} is proved up to {radius!r}, but broken with size {size!r}: the certificate is "
            "wrong; please report this with the model"
        )
    return Exhibit(index, label, prediction, radius, size, image, attacked)


def pictures(exhibit: Exhibit) -> tuple[Image.Image, Image.Image, Image.Image]:
    """The image, the attacked image (in 8 bits) and their magnified difference: grey is none, white is more."""
    views = (exhibit.image / 255, exhibit.attacked, 0.5 + _times(exhibit) * _difference(exhibit))
    return tuple(_enlarged(view) for view in views)  # type: ignore[return-value]


def magnification(exhibit: Exhibit) -> str:
    """How many times larger the difference is drawn than it is."""
    times = _times(exhibit)
    return f"{times:.0f}" if times >= 9.95 else f"{times:.1f}".removesuffix(".0")


def _difference(exhibit: Exhibit) -> NDArray[np.float32]:
    return exhibit.attacked - exhibit.image.astype(np.float32) / np.float32(255)


def _times(exhibit: Exhibit) -> float:
    """Makes the largest difference black or white; one that is larger in truth is cut, never made smaller."""
    largest = float(np.abs(_difference(exhibit)).max())
    return max(1.0, 0.5 / largest) if largest else 1.0


def captions(exhibit: Exhibit, classes: tuple[str, ...]) -> tuple[str, str]:
    """What is proved, and what is broken: the true robust radius lies between the two numbers."""
    found = (
        "no attack found"
        if exhibit.size is None
        else f"{name_of(exhibit.prediction, classes)} at {up(exhibit.size, 4)}"
    )
    return f"{name_of(exhibit.label, classes)} up to {down(exhibit.radius, 4)}", found


def name_of(label: int, classes: tuple[str, ...]) -> str:
    """The class's name, or its number."""
    return classes[label] if label < len(classes) else str(label)


def png(image: Image.Image) -> bytes:
    """The bytes of a PNG; nothing in them depends on the clock."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _enlarged(view: NDArray[Any]) -> Image.Image:
    """Whole multiples, so that every pixel stays a square."""
    factor = max(1, CELL // view.shape[0])
    pixels = (np.clip(view, 0, 1) * 255).round().astype(np.uint8)
    return Image.fromarray(pixels.repeat(factor, 0).repeat(factor, 1))


def sheet(gallery: Gallery) -> bytes:
    """gallery.png: two rows of columns (image, attacked, difference), with radius and attack size beneath."""
    scale = 2  # for slides: text is drawn at twice its size
    first = pictures(gallery.exhibits[0])[0]
    width, height = scale * first.width, scale * first.height
    gap, caption, title = 14 * scale, 58 * scale, 34 * scale
    columns = max(len(half) for half in gallery.halves.values())
    block = title + 3 * (height + gap // 3) + caption
    small, large = ImageFont.load_default(11 * scale), ImageFont.load_default(17 * scale)
    titles = [f"{name}: image, smallest attack found, difference" for name in gallery.halves]
    widest = max(math.ceil(large.getlength(text)) for text in titles)
    size = gap + max(columns * (width + gap), widest + gap), len(gallery.halves) * block + gap
    canvas = Image.new("RGB", size, "#ffffff")
    draw = ImageDraw.Draw(canvas)
    for part, half in enumerate(gallery.halves.values()):
        top = part * block + gap
        draw.text((gap, top - gap // 4), titles[part], "#1b1f24", large)
        for column, exhibit in enumerate(half):
            left = gap + column * (width + gap)
            y = top + title
            for picture in pictures(exhibit):
                canvas.paste(picture.resize((width, height), Image.Resampling.NEAREST), (left, y))
                y += height + gap // 3
            proved, broken = captions(exhibit, gallery.classes)
            lines = (proved, broken, f"difference x {magnification(exhibit)}")
            for number, (line, ink) in enumerate(zip(lines, ("#0072b2", "#b34700", "#6a737d"), strict=True)):
                draw.text((left, y + number * 14 * scale), _fitting(line, small, width + gap // 2), ink, small)
    return png(canvas)


def _fitting(text: str, font: Any, width: int) -> str:
    """Cut with dots where a class name is too long for its column."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "...") > width:
        text = text[:-1]
    return text + "..."
