"""What must hold for every image, whatever the network: checked after every run, on the rows."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from ..eps import parse_eps
from ..errors import LinfdistError
from ..files import write_atomically
from .summary import Row

_SHOWN_SIDE = 256  # pixels on the screen, at least


@dataclass(frozen=True)
class Violation:
    """Two results about one image that cannot both be true."""

    row: Row
    what: str
    attack: str | None = None

    def __str__(self) -> str:
        return f"image {self.row['index']}: {self.what}"


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


def violations(rows: Iterable[Row], eps: str) -> list[Violation]:
    """All contradictions: certified but wrong or broken, or not margin radius <= radius < every successful attack.

    Numbers are compared exactly. A radius is that of a closed ball, so a success at exactly the radius contradicts it.
    """
    exact = parse_eps(eps)
    return [violation for row in rows for violation in _of_row(row, eps, exact)]


def _of_row(row: Row, eps: str, exact: Fraction) -> Iterable[Violation]:
    if row["certified"] and row["prediction"] != row["label"]:
        yield Violation(row, f"certified for class {row['label']}, but predicted {row['prediction']}")
    if row["margin_radius"] is not None and row["margin_radius"] > row["radius"]:
        yield Violation(row, f"margin radius {row['margin_radius']!r} > radius {row['radius']!r}")
    for name, result in row["attacks"].items():
        if not result["broken"]:
            continue
        size = result["size"]
        found = f"{name} makes it class {result['prediction']} with a perturbation of {size!r}"
        if result["prediction"] == row["label"]:
            yield Violation(row, f"counted as broken by {name}, but still class {row['label']}", name)
        if row["certified"] and Fraction(size) <= exact:
            yield Violation(row, f"certified at eps = {eps}, but {found}", name)
        elif row["radius"] > 0 and Fraction(size) <= Fraction(row["radius"]):  # radius 0: nothing was proved
            yield Violation(row, f"radius {row['radius']!r}, but {found}", name)


def save(
    found: Sequence[Violation],
    out: Path,
    images: Mapping[int, Tensor],
    attacked: Mapping[str, Mapping[int, Tensor]],
    settings: Mapping[str, Any],
) -> list[Path]:
    """Write violation-INDEX.png and .json for every image concerned; the PNGs' paths.

    images: uint8 (C, H, W) by index; attacked: pixels (C, H, W) by attack and index, where they are known. The PNG
    shows the image and what the attacks made of it side by side; the JSON has the attacked pixels exactly.
    """
    saved = []
    for index in sorted({violation.row["index"] for violation in found}):
        mine = [violation for violation in found if violation.row["index"] == index]
        results = {name: known[index].detach().cpu() for name, known in attacked.items() if index in known}
        path = out / f"violation-{index}.png"
        pictures = [images[index], *[(image * 255).round().to(torch.uint8) for image in results.values()]]
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        _side_by_side(pictures).save(unfinished, format="PNG")
        os.replace(unfinished, path)
        content = {
            "violations": [violation.what for violation in mine],
            "row": mine[0].row,
            "settings": dict(settings),
            "attacked": {name: image.tolist() for name, image in results.items()},
        }
        write_atomically(path.with_suffix(".json"), json.dumps(content) + "\n")
        saved.append(path)
    return saved


def _side_by_side(images: Sequence[Tensor]) -> Image.Image:
    """uint8 (C, H, W) each, side by side, large enough to see; channels beyond three are not shown."""
    row = torch.cat([image.cpu() for image in images], 2).movedim(0, 2)[..., :3]
    pixels = row if row.shape[2] == 3 else row[..., 0]
    picture = Image.fromarray(pixels.contiguous().numpy())
    scale = max(1, -(-_SHOWN_SIDE // row.shape[0]))
    return picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
