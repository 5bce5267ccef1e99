"""A network joins the zoo: rounded to 16 bits, measured as it is then, with a card."""

import re
from datetime import date
from pathlib import Path

from .. import data, models
from ..eps import parse_eps
from ..files import file_sha256, write_atomically
from ..models import count_parameters, save
from ..runs import MODEL, Run
from . import curve
from .cards import NAME, Card
from .measure import METHOD, measure
from .run import machine
from .shelf import FILES, names

COMPACT = "compact"  # the folder in that of the run, for the rounded network and its rows


def add(
    run: Path,
    name: str,
    folder: Path | None = None,
    results: Path | None = None,
    data_dir: Path | None = None,
    hours: float | None = None,
    replace: bool = False,
    show_progress: bool = False,
) -> Card:
    """Put the network of a finished run into the zoo; its card.

    folder: the zoo, if not the package's own; results: where to keep its curves, if anywhere; hours: of training in
    all, where other runs led to this one. Stopped, the same call goes on. The test set is read here, once.
    """
    target = folder or FILES
    if re.fullmatch(NAME, name) is None:
        raise ValueError(f"name = {name!r}: must be lower-case letters, digits, dots and dashes, such as mnist-0.3-mlp")
    if name in names(target) and not replace:
        raise FileExistsError(f"{name} is in the zoo: choose another name, or say that it shall be replaced")
    trained = Run(run)
    trained.check_trained()
    recipe = trained.recipe
    if recipe.data not in data.NAMES:
        raise ValueError(f"{run} was trained on {recipe.data}: the zoo is for {', '.join(data.NAMES)}")
    network, header = models.load(trained.model_file), {"recipe": recipe.name}
    rounded = run / COMPACT / MODEL
    rounded.parent.mkdir(exist_ok=True)
    save(network, rounded, header, compact=True)  # the same bytes every time, so that a measurement can go on
    sha256 = file_sha256(rounded)
    out = rounded.parent / sha256[:12]  # rows of another network, trained in the same folder before, do not count
    measured = measure(rounded, data.load(recipe.data, "test", data_dir), recipe.eps, out, show_progress)
    card = Card(
        name=name,
        data=recipe.data,
        eps=recipe.eps,
        recipe=recipe.model_dump(),
        seeds=[recipe.seed],
        hours=round(trained.seconds / 3600, 2) if hours is None else hours,
        machine=machine(),
        date=date.today().isoformat(),
        parameters=count_parameters(network),
        sha256=sha256,
        n=measured.n,
        clean=measured.clean,
        pgd20=measured.pgd20,
        strongest=measured.strongest,
        certified=measured.certified,
        method=METHOD,
        mean_radius=measured.mean_radius,
    )
    target.mkdir(parents=True, exist_ok=True)
    stored = target / f"{name}.safetensors"
    save(network, stored, header, compact=True)
    stored.chmod(0o644)  # safetensors files are their writer's alone; these are for all
    if file_sha256(stored) != sha256:
        stored.unlink()
        raise ValueError(f"{stored} would not be what was measured: {rounded} has changed meanwhile; call again")
    if results is not None:
        curve.write(results / "curves" / f"{name}.json", measured.rows, float(parse_eps(recipe.eps)), trained.metrics)
    write_atomically(target / f"{name}.json", card.model_dump_json(indent=2) + "\n")
    return card
