"""`linfdist certify`: the class of images, and the radius within which nothing can change it."""

import hashlib
import json
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from linfdist import data
from linfdist import exact as frozen
from linfdist.certificates import Certificate
from linfdist.certificates import certify as prove
from linfdist.data.folder import SUFFIXES
from linfdist.eps import parse_eps
from linfdist.files import write_atomically
from linfdist.models import PixelNet
from linfdist.numbers import down

from .sources import Source, open_source


class Method(str, Enum):
    """How it is proved: by the margin, by interval bounds, or by an exact search for tiny networks."""

    margin = "margin"
    box = "box"
    milp = "milp"


def certify(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model.safetensors, or a run's folder.")],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files, or folders of them.")],
    eps: Annotated[
        str | None,
        typer.Option(metavar="E", help="Radius, e.g. 0.3 or 8/255.", show_default="the recipe's, if there is one"),
    ] = None,
    method: Annotated[
        Method, typer.Option(help="margin: fastest; box: never weaker; milp: exact, tiny plain networks only.")
    ] = Method.box,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write a JSON object an image; - is the output.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Where data sets are, for class names.")] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="MODEL is from `export --format exact`: write certificates for `verify`.")
    ] = False,
) -> None:
    """Show the class of each image, and the radius within which no change of its pixels can change that class.

    Radii are in pixels of [0, 1], and in levels of 0 to 255. They are proved, and rounded down.
    """
    try:
        if exact:
            _exact(model, images, eps, method.value, json_file)
            return
        source = open_source(model)
        radius = eps if eps is not None or source.recipe is None else source.recipe.eps
        if radius is not None:
            parse_eps(radius)
        if json_file is not None and not json_file.parent.is_dir():
            raise FileNotFoundError(f"cannot write {json_file}: the folder {json_file.parent} does not exist")
        paths = _listed(images)
        x = torch.stack([_read(path, source.network) for path in paths])  # (B, C, H, W)
        proof = prove(source.network, x, radius, method=method.value)
        names = _names(source, data_dir)
        if json_file is not None:
            rows = _rows(paths, proof, names, radius, method.value, source.model_file)
            text = "".join(json.dumps(row) + "\n" for row in rows)
            if json_file == Path("-"):
                typer.echo(text, nl=False)
                return
            write_atomically(json_file, text)
    except (ImportError, OSError, TypeError, ValueError, data.DataError) as error:
        Console(stderr=True).print(f"error: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    Console().print(_table(paths, proof, names, radius))
    if json_file is not None:
        Console().print(f"written: {json_file}", markup=False, highlight=False, soft_wrap=True)


def _exact(model: Path, images: list[Path], eps: str | None, method: str, json_file: Path | None) -> None:
    """Certificates in integers, a JSON object a line, to a file or the output."""
    if eps is not None:
        raise ValueError("--eps: not with --exact, where a certificate states the largest radius that is proved")
    network = frozen.load(model)
    paths, pixels = _listed(images), []
    for path in paths:
        pixels.append(data.read_image(path, network.shape[0]))
        try:
            network.check(pixels[-1][None])
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    try:
        proofs = frozen.certify(network, torch.stack(pixels), method)
    except frozen.Undecided as error:
        raise ValueError(f"{paths[error.image]}: {error}") from None
    text = "".join(json.dumps(proof.json()) + "\n" for proof in proofs)
    if json_file is None or json_file == Path("-"):
        typer.echo(text, nl=False)
        return
    write_atomically(json_file, text)
    Console().print(f"written: {json_file}", markup=False, highlight=False, soft_wrap=True)


def _listed(given: list[Path]) -> list[Path]:
    """The files, and in place of each folder the image files below it, sorted."""
    paths = []
    for path in given:
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: give image files, or folders of them")
        if not path.is_dir():
            paths.append(path)
            continue
        found = sorted(
            each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES and not each.name.startswith(".")
        )
        if not found:
            raise ValueError(f"{path} holds no images: files that end in {', '.join(sorted(SUFFIXES))}")
        paths += found
    return paths


def _read(path: Path, network: PixelNet) -> Tensor:
    """Pixels of [0, 1] (C, H, W). An image of another size is refused: what was resized is another image."""
    channels, *sides = network.shape
    image = data.read_image(path, channels)
    if tuple(image.shape) != network.shape:
        raise ValueError(
            f"{path} has {image.shape[2]} × {image.shape[1]} pixels, but the network takes {sides[1]} × {sides[0]}, "
            f"{'gray' if channels == 1 else f'{channels} channels'}: crop or resize it first, and certify the result"
        )
    return image.float() / 255


def _names(source: Source, data_dir: Path | None) -> tuple[str, ...] | None:
    """The classes' names, if the data set that the network was trained on is here: it is not fetched for them."""
    name = source.recipe.data if source.recipe else None
    if name is None or (name in data.NAMES and not (data.data_root(data_dir) / name / "test.safetensors").is_file()):
        return None
    try:
        classes = data.load(name, split="test", data_dir=data_dir).classes
    except (OSError, data.DataError):
        return None
    return classes if len(classes) == source.network.config["classes"] else None


def _rows(
    paths: list[Path],
    proof: Certificate,
    names: tuple[str, ...] | None,
    eps: str | None,
    method: str,
    model_file: Path,
) -> list[dict[str, Any]]:
    sha256 = hashlib.sha256(model_file.read_bytes()).hexdigest()
    certified = [None] * len(paths) if proof.certified is None else proof.certified.tolist()
    return [
        {
            "image": str(path),
            "prediction": prediction,
            "class": names[prediction] if names else None,
            "radius": radius,
            "eps": eps,
            "certified": sure,
            "method": method,
            "model_sha256": sha256,
        }
        for path, prediction, radius, sure in zip(
            paths, proof.prediction.tolist(), proof.radius.tolist(), certified, strict=True
        )
    ]


def _table(paths: list[Path], proof: Certificate, names: tuple[str, ...] | None, eps: str | None) -> Table:
    table = Table()
    table.add_column("image", overflow="fold")
    table.add_column("class")
    table.add_column("radius", justify="right", no_wrap=True)
    table.add_column("levels", justify="right", no_wrap=True)
    if proof.certified is not None:
        table.add_column(f"certified at {eps}")
    for row, path in enumerate(paths):
        prediction, radius = int(proof.prediction[row]), float(proof.radius[row])
        cells = [escape(str(path)), escape(names[prediction] if names else str(prediction))]
        cells += [down(radius, 4), down(255 * Fraction(radius), 1)]
        if proof.certified is not None:
            cells.append("[green]yes[/]" if proof.certified[row] else "[red]no[/]")
        table.add_row(*cells)
    return table
