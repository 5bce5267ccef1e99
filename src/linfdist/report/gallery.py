"""Pictures of the most and the least robust images, each with the smallest attack that was found."""

import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ..eps import down, up
from ..runs.folder import Run
from ..runs.rows import Row
from .plots.image import magnification as _magnification
from .plots.image import name_of, views

CELL = 112  # pixels of a picture's side, about


@dataclass(frozen=True, eq=False)
class Exhibit:
    """One image of a gallery. image: uint8 (H, W, 3). attacked: float32 (H, W, 3).

    size, prediction: of the attacked image; size is None if no attack succeeded.
    """

    row: Row
    size: float | None
    prediction: int
    image: NDArray[np.uint8]
    attacked: NDArray[np.float32]


Halves = dict[str, tuple[Exhibit, ...]]  # by title


def halves(run: Run) -> Halves:
    """Group the exhibits of a run, ordered by radius, under their titles; a half without exhibits is left out.

    Images that no attack broke may be missing from either half, so the rows decide which half an exhibit belongs to.
    """
    gallery = run.gallery
    if gallery is None:
        return {}
    columns = gallery.rows, gallery.sizes, gallery.predictions, hwc(gallery.images), hwc(gallery.attacked)
    exhibits = sorted((Exhibit(*each) for each in zip(*columns, strict=True)), key=lambda each: _by_radius(each.row))
    ordered = sorted((row for row in run.rows if row.correct), key=_by_radius)
    lower = {row.index for row in ordered[: len(ordered) // 2]}
    parts = {
        "Least robust": tuple(each for each in exhibits if each.row.index in lower),
        "Most robust": tuple(each for each in exhibits if each.row.index not in lower),
    }
    return {title: part for title, part in parts.items() if part}


def _by_radius(row: Row) -> tuple[float, int]:
    return row.radius, row.index


def hwc(images: torch.Tensor) -> NDArray[Any]:
    """Convert (N, C, H, W) to (N, H, W, 3), grey as three equal channels."""
    return images.permute(0, 2, 3, 1).expand(-1, -1, -1, 3).numpy()


def pictures(exhibit: Exhibit) -> tuple[Image.Image, Image.Image, Image.Image]:
    """Draw the image, the attacked image (in 8 bits) and their magnified difference; grey means no difference."""
    return tuple(enlarged(view) for view in views(exhibit.image / 255, exhibit.attacked))  # type: ignore[return-value]


def magnification(exhibit: Exhibit) -> str:
    """Write the factor by which the difference is magnified."""
    return _magnification(exhibit.attacked - exhibit.image / 255)


def captions(exhibit: Exhibit, classes: tuple[str, ...]) -> tuple[str, str]:
    """Write the proved radius and the size of the attack: the true robust radius lies between the two."""
    proved = f"{classes[exhibit.row.label]} up to {down(exhibit.row.radius, 4)}"
    if exhibit.size is None:
        return proved, "no attack found"
    return proved, f"{name_of(exhibit.prediction, classes)} at {up(exhibit.size, 4)}"


def png(image: Image.Image) -> bytes:
    """Encode the image as a PNG; nothing in the bytes depends on the clock."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def enlarged(view: NDArray[Any]) -> Image.Image:
    """Enlarge a picture by a whole factor, so that every pixel stays a square."""
    factor = max(1, CELL // view.shape[0])
    pixels = (np.clip(view, 0, 1) * 255).round().astype(np.uint8)
    return Image.fromarray(pixels.repeat(factor, 0).repeat(factor, 1))


def sheet(parts: Halves, classes: tuple[str, ...]) -> bytes:
    """Draw gallery.png: two rows of columns (image, attacked, difference), with radius and attack size beneath."""
    scale = 2  # for slides: text is drawn at twice its size
    first = pictures(next(iter(parts.values()))[0])[0]
    width, height = scale * first.width, scale * first.height
    gap, caption, title = 14 * scale, 58 * scale, 34 * scale
    columns = max(len(half) for half in parts.values())
    block = title + 3 * (height + gap // 3) + caption
    small, large = ImageFont.load_default(11 * scale), ImageFont.load_default(17 * scale)
    titles = [f"{name}: image, smallest attack found, difference" for name in parts]
    widest = max(math.ceil(large.getlength(text)) for text in titles)
    size = gap + max(columns * (width + gap), widest + gap), len(parts) * block + gap
    canvas = Image.new("RGB", size, "#ffffff")
    draw = ImageDraw.Draw(canvas)
    for part, half in enumerate(parts.values()):
        top = part * block + gap
        draw.text((gap, top - gap // 4), titles[part], "#1b1f24", large)
        for column, exhibit in enumerate(half):
            left = gap + column * (width + gap)
            y = top + title
            for picture in pictures(exhibit):
                canvas.paste(picture.resize((width, height), Image.Resampling.NEAREST), (left, y))
                y += height + gap // 3
            proved, broken = captions(exhibit, classes)
            lines = (proved, broken, f"difference x {magnification(exhibit)}")
            for number, (line, ink) in enumerate(zip(lines, ("#0072b2", "#b34700", "#6a737d"), strict=True)):
                draw.text((left, y + number * 14 * scale), _fitting(line, small, width + gap // 2), ink, small)
    return png(canvas)


def _fitting(text: str, font: Any, width: int) -> str:
    """Cut the text with dots if it is too long for its column."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "...") > width:
        text = text[:-1]
    return text + "..."
