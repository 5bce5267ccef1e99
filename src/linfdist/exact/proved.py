"""The proved checker: a program extracted from the Coq proofs in `proofs/`, run on certificates and images.

Python decodes the images and selects the certificates; the program reads the network's file by itself, computes all
hashes and decides. Its input is plain: the certificates as `json.dumps` writes them, one per line, and each image as
the bytes that its sha256 is computed from, "C,H,W:" and its pixels.
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
PROVED, VALID = "proved", "valid"


class NoChecker(LinfdistError, RuntimeError):
    """The proved checker was not built here."""


def find() -> Path:
    """Find the program that the environment variable LINFDIST_CHECKER names, else the one that `make prove` built.

    Raises NoChecker if there is none.
    """
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else BUILT
    if path.is_file() and os.access(path, os.X_OK):
        return path
    why = f"{VARIABLE} names {named}, which is not a program" if named else "it was not built here"
    raise NoChecker(
        f"the proved checker is missing: {why}. Run `make prove` in a checkout of linfdist (it takes Debian's packages "
        f"coq and ocaml), or let {VARIABLE} name one that was built; without --proved, numpy verifies certificates"
    )


def verify(certificate: dict[str, Any], image: NDArray[np.uint8], model: Path) -> None:
    """Raise ValueError, with the reason, unless the program accepts the certificate of this image (C, H, W)."""
    (verdict,) = judge([certificate], [image], model)
    if verdict != PROVED:
        raise ValueError(f"the proved checker says {verdict}")


def judge(certificates: Sequence[dict[str, Any]], images: Sequence[NDArray[np.uint8]], model: Path) -> list[str]:
    """Return a verdict for each certificate and its image (C, H, W): "proved", or "refused: " and the reason.

    Raises ValueError if the network is refused, or an image has the wrong shape.
    """
    with tempfile.TemporaryDirectory() as folder:
        lines, pixels = Path(folder) / "certificates", Path(folder) / "images"
        lines.write_text("".join(json.dumps(each) + "\n" for each in certificates))
        pixels.write_bytes(b"".join(as_hashed(image) for image in images))
        head, *verdicts = _run(model, lines, pixels)
    if head != VALID:
        raise ValueError(f"{model}: the proved checker says {head}")
    return verdicts


def as_hashed(image: NDArray[np.uint8]) -> bytes:
    """Return the bytes whose sha256 is the image's."""
    return (",".join(map(str, image.shape)) + ":").encode() + image.tobytes()


def _run(*files: Path) -> list[str]:
    program = find()
    done = subprocess.run([program, *files], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()
    if done.returncode not in (0, 1) or not said:
        raise RuntimeError(f"{program} failed with exit code {done.returncode}: {done.stderr.strip()[:300]}")
    return said
