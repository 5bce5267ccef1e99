"""`linfdist verify`: re-check a certificate."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from linfdist.data import DataError, read_image
from linfdist.exact.twin import read, sha256_of, unique
from linfdist.exact.twin import verify as check


def verify(
    certificate: Annotated[Path, typer.Argument(metavar="CERT.json", help="Written by certify --exact.")],
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="The image it is about.")],
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Written by export --format exact.")],
) -> None:
    """Compute a certificate again, with numpy alone and in a few lines, and compare; exit code 1 where it is wrong."""
    try:
        pixels = read_image(image, read(model)[0]["shape"][0]).numpy()
        found = _read(certificate, sha256_of(pixels))
        check(found, pixels, model)
    except (OSError, ValueError, DataError) as error:
        Console(stderr=True).print(f"refused: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    Console().print(
        f"verified: class {found['class']} for all images of the domain within {found['levels']} levels of {image}",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip


def _read(path: Path, image: str) -> dict[str, Any]:
    """The certificate of this image in a file that holds one, or several, one a line."""
    text = path.read_text(encoding="utf-8").strip()
    try:
        certificates = [
            json.loads(part, object_pairs_hook=unique) for part in (text.splitlines() if "\n{" in text else [text])
        ]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON that can be trusted ({error})") from None
    if not all(isinstance(each, dict) for each in certificates):
        raise ValueError(f"{path} holds no certificate: a JSON object is expected, or one a line")
    found = [each for each in certificates if each.get("image_sha256") == image]
    if len(found) != 1:
        count = "no certificate" if not found else f"{len(found)} certificates"
        raise ValueError(f"{path} holds {count} of this image, whose sha256 is {image}: one is expected")
    return found[0]
