"""`linfdist certify`: show the class of images, and the radius within which nothing can change it."""

import json
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from linfdist.certificates.methods import METHODS, methods_in_words
from linfdist.eps import down
from linfdist.errors import cell, console
from linfdist.files import output, write_atomically
from linfdist.models import zoo

from .boundary import fail, say
from .options import AUTO, DataDir, DeviceName, ModelName, open_model

if TYPE_CHECKING:
    from linfdist.certificates.images import CertifiedImage, Refused

OUTPUT = Path("-")
STDOUT = (OUTPUT, Path("/dev/stdout"))  # what was redirected there must not be replaced


def certify(
    model: ModelName,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files, or folders of them.")],
    eps: Annotated[
        str | None,
        typer.Option(metavar="E", help="Radius, e.g. 0.3 or 8/255.", show_default="the recipe's, if there is one"),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="|".join(METHODS),
            help=methods_in_words(),
        ),
    ] = "box",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write one JSON object per image; - is stdout.")
    ] = None,
    resize: Annotated[
        bool, typer.Option("--resize", help="Crop and resize images of other sizes; certify the resized images.")
    ] = False,
    device: DeviceName = AUTO,
    data_dir: DataDir = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact", help="Write certificates that `linfdist verify` checks; MODEL must be an exact network."
        ),
    ] = False,
) -> None:
    """Show the class of each image, and the radius within which no change of its pixels can change that class.

    Radii are on the 0–1 intensity scale, and in levels of 0 to 255. They are proved, and rounded down.

    Example: linfdist certify mnist-0.3 seven.png --eps 0.3
    """
    from linfdist import data
    from linfdist.certificates.images import certify_files

    files = data.image_files(images)
    if json_file is not None:
        json_file = OUTPUT if json_file in STDOUT else output(json_file, [Path(model), *files])
    if exact:
        if eps is not None:
            raise ValueError("--eps: not with --exact, where a certificate states the largest radius that is proved")
        if resize:
            raise ValueError("--resize: not with --exact, whose certificates are about the pixels of the file")
        if model in zoo.names():
            raise ValueError(
                f"--exact: {model} of the zoo is a float network; `linfdist export {model} --format exact` writes "
                f"runs/{model}/exact.safetensors, which is what --exact takes"
            )
        from linfdist import exact as frozen
        from linfdist.exact.certificate import certificates_of_files

        proofs, refused = certificates_of_files(frozen.load(model), files, method)
        if proofs:
            _write((proof.json() for proof in proofs), json_file or OUTPUT)
        _tell(refused, len(files), json_file)
        return
    opened = open_model(model, device)
    if json_file is not None and json_file != OUTPUT:
        opened.check_not_overwritten(json_file)
    radius = eps if eps is not None or opened.recipe is None else opened.recipe.eps
    names = opened.network.class_names or (data.stored_classes(opened.recipe.data, data_dir) if opened.recipe else None)
    if names and len(names) != opened.network.classes:
        names = None
    certified, refused = certify_files(opened.network, files, radius, method, names, resize)
    if json_file != OUTPUT and certified:
        console().print(_table(certified, radius))
        if (side := certified[0].resized_to) is not None:
            say(f"images were cut and resized to {side} × {side}: radii are about the resized pixels, not the files")
        if any(each.domain for each in certified):
            say("proved for images of the domain that the network was frozen for; nothing is known of others")
    if json_file is not None and certified:
        sha256 = opened.network.checksum(opened.file)
        _write((each.json(sha256) for each in certified), json_file)
    _tell(refused, len(files), json_file)


def _tell(refused: "Refused", files: int, json_file: Path | None) -> None:
    """If files were refused, say which and why, and whether an older result is left; then exit with code 1."""
    if refused:
        lines = [f"error: {next(iter(refused.values()))}"]
        if files > 1:
            lines = [f"error: {len(refused):,} of {files:,} images are not certified:"]
            lines += [f"  {why}" for why in refused.values()]
        if len(refused) == files and json_file not in (None, OUTPUT) and json_file.exists():
            lines.append(f"{json_file} is as it was before: its certificates are of an earlier call")
        raise fail(*lines)


def _write(rows: Iterable[dict[str, Any]], file: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if file == OUTPUT:
        typer.echo(text, nl=False)
    else:
        write_atomically(file, text)
        say(f"written: {file}")


def _table(certified: "list[CertifiedImage]", eps: str | None) -> Table:
    table = Table()
    table.add_column("image", overflow="fold")
    table.add_column("class")
    table.add_column("radius", justify="right", no_wrap=True)
    table.add_column("levels", justify="right", no_wrap=True)
    if eps is not None:
        table.add_column(f"certified at {cell(eps)}")
    for each in certified:
        cells = [cell(each.image), cell(each.name or str(each.prediction))]
        cells += [down(each.radius, 4), down(255 * Fraction(each.radius), 1)]
        if eps is not None:
            cells.append("[green]yes[/]" if each.certified else "[red]no[/]")
        table.add_row(*cells)
    return table
