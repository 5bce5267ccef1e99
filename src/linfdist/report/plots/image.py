"""One image, an attack on it, and their difference."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...eps import down, up
from .style import LIGHT, Theme, new_figure, styled

Pixels = NDArray[np.floating[Any]]  # (H, W, 3) in [0, 1]


def views(image: Pixels, attacked: Pixels) -> tuple[Pixels, Pixels, Pixels]:
    """Return the image, the attacked image and their magnified difference; grey means no difference."""
    difference = attacked - image
    return image, attacked, np.clip(0.5 + factor(difference) * difference, 0, 1)


def factor(difference: Pixels) -> float:
    """Return the factor that makes the largest difference black or white; differences are never made smaller."""
    largest = float(np.abs(difference).max())
    return max(1.0, 0.5 / largest) if largest else 1.0


def magnification(difference: Pixels) -> str:
    """Write the factor by which the difference is magnified."""
    times = factor(difference)
    return f"{times:.0f}" if times >= 9.95 else f"{times:.1f}".removesuffix(".0")


def name_of(label: int, classes: Sequence[str] | None) -> str:
    """Return the name of a class, or its number if it has none."""
    return classes[label] if classes is not None and label < len(classes) else str(label)


@styled
def image(
    image: Any,
    radius: float | None = None,
    prediction: int | None = None,
    *,
    attacked: Any = None,
    attacked_prediction: int | None = None,
    classes: Sequence[str] | None = None,
    axes: Sequence[Any] | None = None,
    theme: Theme = LIGHT,
) -> tuple[Any, ...]:
    """Draw an image with its class and proved radius, and beside it an attack on it and their difference.

    image: (C, H, W), (H, W, C) or (H, W), a tensor or an array; bytes (uint8), or floats in [0, 1].
    radius: proved, as `Certificate.radius` has it; shown rounded down.
    prediction: the class of the image.
    attacked: the attacked image, of the same shape; without it, only the image is drawn.
    attacked_prediction: the class of the attacked image.
    classes: the names of the classes.
    axes: one of matplotlib's axes, or three with an attack; by default new ones.
    theme: `linfdist.report.plots.LIGHT` or `DARK`, or colours of your own.

    Returns:
        The axes: of the image, of the attacked image and of their difference, or of the image alone.

    Example:
        >>> proof = ld.certify(model, x, eps=None)
        >>> found = ld.attacks.smallest(model, x, y)
        >>> ld.report.plots.image(x[0], proof.radius[0], proof.prediction[0], attacked=found.images[0])
    """
    shown = [_pixels(image)]
    if attacked is not None:
        shown = list(views(shown[0], _pixels(attacked, shown[0].shape)))
    if axes is None:
        axes = new_figure(2.6 * len(shown), 3.0).subplots(1, len(shown), squeeze=False)[0]
    if len(axes) != len(shown):
        raise ValueError(f"{len(axes)} axes for {len(shown)} pictures")
    captions = [_caption(prediction, classes, "up to", None if radius is None else down(float(radius), 4))]
    colours = [theme.certified, theme.broken, theme.muted]
    if attacked is not None:
        difference = shown[1] - shown[0]
        size = up(float(np.abs(difference).max()), 4)
        captions += [
            _caption(attacked_prediction, classes, "at", size),
            f"difference × {magnification(difference)}",
        ]
    for each, picture, caption, colour in zip(axes, shown, captions, colours, strict=False):
        each.imshow(picture, vmin=0, vmax=1, interpolation="nearest")
        each.set_xticks([])
        each.set_yticks([])
        each.grid(visible=False)
        each.set_xlabel(caption, color=colour)
        for spine in each.spines.values():
            spine.set_visible(False)
    return tuple(axes)


def _caption(label: int | None, classes: Sequence[str] | None, word: str, number: str | None) -> str:
    name = "" if label is None else name_of(int(label), classes)
    return " ".join(part for part in (name, f"{word} {number}" if number is not None else "") if part)


def _pixels(image: Any, like: tuple[int, ...] | None = None) -> Pixels:
    """Return an image (C, H, W), (H, W, C) or (H, W) as (H, W, 3) in [0, 1], grey as three equal channels."""
    array = np.asarray(image.detach().cpu() if hasattr(image, "detach") else image)
    whole, shape = array.dtype == np.uint8, array.shape
    array = array.astype(np.float64) / (255 if whole else 1)
    if array.ndim == 2:
        array = array[None]
    if array.ndim == 3 and array.shape[0] not in (1, 3):
        array = array.transpose(2, 0, 1)  # channels last
    if array.ndim != 3 or array.shape[0] not in (1, 3):
        raise ValueError(f"an image of shape {shape}: must be (H, W), (C, H, W) or (H, W, C), C = 1 or 3")
    if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
        raise ValueError("an image with values outside [0, 1]: must be bytes (uint8), or floats in [0, 1]")
    pixels = np.broadcast_to(array.transpose(1, 2, 0), (*array.shape[1:], 3))
    if like is not None and pixels.shape != like:
        raise ValueError(f"the attacked image has another size, {pixels.shape[:2]}, than the image, {like[:2]}")
    return pixels
