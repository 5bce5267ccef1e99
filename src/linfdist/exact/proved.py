"""The proved checker: a program extracted from the Coq proofs in `proofs/`, run on certificates and images.

Python decodes the images and picks the certificates; the program reads the network's file by itself, forms all hashes
and decides. What is handed over is plain: the certificates as `json.dumps` writes them, one per line, and each image as
its sha256 is formed, "C,H,W:" and its pixels.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LinfdistError

VARIABLE = "LINFDIST_CHECKER"
BUILT = Path(__file__).parents[3] / "build" / "proofs" / "checker"  # of a checkout, by `make prove`


class NoChecker(LinfdistError, FileNotFoundError):
    """The proved checker was not built here."""


def checker() -> Path:
    """The program: what the environment variable LINFDIST_CHECKER names, else what `make prove` built."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else BUILT
    if path.is_file() and os.access(path, os.X_OK):
        return path
    where = f"{VARIABLE} names {named}, which is no program" if named else "it was not built here"
    raise NoChecker(
        f"the proved checker is missing: {where}. Run `make prove` in a checkout of linfdist (it needs Debian's coq and "
        f"ocaml), or let {VARIABLE} name a built one; without --proved, numpy verifies certificates"
    )


def judge(certificates: Sequence[dict[str, Any]], images: Sequence[NDArray[np.uint8]], model: Path) -> list[str]:
    """One verdict for each certificate and its image (C, H, W): "proved", or "refused: " and the reason.

    ValueError if the network is refused, or an image has another shape than it takes.
    """
    program = checker()
    with tempfile.TemporaryDirectory() as folder:
        lines, pixels = Path(folder) / "certificates", Path(folder) / "images"
        lines.write_text("".join(json.dumps(each) + "\n" for each in certificates))
        pixels.write_bytes(b"".join(_as_hashed(image) for image in images))
        verdicts = _run(program, model, lines, pixels)
    if len(verdicts) != len(certificates):  # the network itself, or the shape of an image
        raise ValueError(f"{model}: {verdicts[0].removeprefix('refused: ')}")
    return verdicts


def accepts(model: Path) -> str:
    """What the program says about a network alone: "valid", or "refused: " and the reason."""
    return _run(checker(), model)[0]


def _run(program: Path, *arguments: Path) -> list[str]:
    done = subprocess.run([program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    verdicts = done.stdout.splitlines()
    if done.returncode not in (0, 1) or not verdicts:
        raise RuntimeError(f"{program} failed with exit code {done.returncode}: {done.stderr.strip()[:300]}")
    return verdicts


def _as_hashed(image: NDArray[np.uint8]) -> bytes:
    """The bytes whose sha256 is the image's."""
    return (",".join(map(str, image.shape)) + ":").encode() + image.tobytes()
