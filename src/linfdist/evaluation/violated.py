"""The error for a proof and an attack that contradict each other, and the files kept for a bug report."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from ..data.samples import as_pixels
from ..errors import LinfdistError
from ..files import replacing, write_atomically
from ..runs.rows import Violation

_SHOWN_SIDE = 256  # pixels on the screen, at least


class Violated(LinfdistError, RuntimeError):
    """A proved claim and another result contradict each other: one of them is wrong, and so is this program."""

    def __init__(self, violations: Sequence[Violation], saved: Sequence[Path]) -> None:
        listing = "\n".join(f"  - {violation}" for violation in violations)
        files = f"\nThe images are in {', '.join(map(str, saved))}." if saved else ""
        super().__init__(
            "certificates and attacks contradict each other; no result of this evaluation can be trusted, "
            f"please report this:\n{listing}{files}"
        )
        self.violations = tuple(violations)
        self.saved = tuple(saved)


def save(
    found: Sequence[Violation],
    out: Path,
    images: Mapping[int, Tensor],
    attacked: Mapping[str, Mapping[int, Tensor]],
    settings: Mapping[str, Any],
) -> list[Path]:
    """Write violation-INDEX.png and .json for every image concerned, and return the paths of the PNGs.

    images: bytes or floats (C, H, W) by index. attacked: pixels (C, H, W) by attack and index, where they are known.
    The PNG shows the image and what the attacks made of it side by side; the JSON holds the attacked pixels exactly.
    """
    saved = []
    for index in sorted({violation.row.index for violation in found}):
        mine = [violation for violation in found if violation.row.index == index]
        results = {name: known[index].detach().cpu() for name, known in attacked.items() if index in known}
        path = out / f"violation-{index}.png"
        pictures = [(as_pixels(image) * 255).round().to(torch.uint8) for image in (images[index], *results.values())]
        with replacing(path) as unfinished:
            _side_by_side(pictures).save(unfinished, format="PNG")
        content = {
            "violations": [violation.what for violation in mine],
            "row": mine[0].row.as_json(),
            "settings": dict(settings),
            "attacked": {name: image.tolist() for name, image in results.items()},
        }
        write_atomically(path.with_suffix(".json"), json.dumps(content) + "\n")
        saved.append(path)
    return saved


def _side_by_side(images: Sequence[Tensor]) -> Image.Image:
    """One picture of images uint8 (C, H, W), large enough to see; channels beyond three are not shown."""
    row = torch.cat([image.cpu() for image in images], 2).movedim(0, 2)[..., :3]
    pixels = row if row.shape[2] == 3 else row[..., 0]
    picture = Image.fromarray(pixels.contiguous().numpy())
    scale = max(1, -(-_SHOWN_SIDE // row.shape[0]))
    return picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
