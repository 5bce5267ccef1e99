"""`linfdist verify`: check a certificate by computing it again."""

from pathlib import Path
from typing import Annotated

import typer

from linfdist.errors import LinfdistError

from .boundary import explain, fail, say


def verify(
    certificate: Annotated[Path, typer.Argument(metavar="CERT.json", help="Written by certify --exact.")],
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="The image it is about.")],
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Written by export --format exact.")],
    proved: Annotated[
        bool, typer.Option("--proved", help="Also run the machine-checked checker, which `make prove` builds.")
    ] = False,
) -> None:
    """Compute a certificate again, with numpy alone, and compare; exit code 1 where it is wrong.

    With --proved, a second program computes it again: one whose soundness is a theorem that Coq has checked.

    Example: linfdist verify seven.json seven.png runs/mnist-0.3/exact.safetensors
    """
    from linfdist.data import read_image
    from linfdist.exact import proved as checker
    from linfdist.exact.certificate import read_certificate
    from linfdist.exact.twin import read, sha256_of
    from linfdist.exact.twin import verify as check

    if proved:
        checker.find()
    if not model.exists():
        raise fail(f"refused: {model} does not exist: give a file that `linfdist export --format exact` has written")
    try:
        pixels = read_image(image, read(model)[0]["shape"][0]).numpy()
        found = read_certificate(certificate, sha256_of(pixels))
        check(found, pixels, model)
        if proved:
            checker.verify(found, pixels, model)
    except (LinfdistError, OSError, ValueError) as error:
        raise fail(f"refused: {explain(error)}") from None
    how = "verified, also by the proved checker" if proved else "verified"
    say(f"{how}: class {found['class']} for all images of the domain within {found['levels']} levels of {image}")
