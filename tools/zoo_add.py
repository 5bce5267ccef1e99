"""Put a network into the zoo, `python -m tools.zoo_add RUN NAME`: rounded, pruned, measured, with a card."""

import argparse
import re
import shlex
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from linfdist import data, models
from linfdist.eps import parse_eps
from linfdist.files import file_sha256, write_atomically
from linfdist.models import save
from linfdist.models.zoo import FILES, names
from linfdist.models.zoo.cards import NAME, Card
from linfdist.ops.machine import in_words
from linfdist.recipes import Recipe, command
from linfdist.runs.folder import MODEL, RECIPE, Run

from . import ROOT, attempt, curve
from .measure import METHOD, measure

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
    """Put the network of a finished run into the zoo and return its card.

    folder: the zoo, if not the package's own; results: where to keep its curves, if anywhere; hours: the training in
    all, where other runs led to this one. Stopped, the same call resumes. The test set is read here, once.
    """
    target = folder or FILES
    if re.fullmatch(NAME, name) is None:
        raise ValueError(f"name = {name!r}: must be lower-case letters, digits, dots and dashes, such as mnist-0.3-mlp")
    if name in names(target) and not replace:
        raise FileExistsError(f"{name} is in the zoo: choose another name, or add --replace")
    trained = Run(run)
    trained.check_trained()
    recipe = trained.recipe
    if recipe.data not in data.NAMES:
        raise ValueError(f"{run} was trained on {recipe.data}: the zoo is for {', '.join(data.NAMES)}")
    network, header, before = models.load_floats(trained.model_file), {"recipe": recipe.name}, runs_before(recipe)
    rounded = run / COMPACT / MODEL
    rounded.parent.mkdir(exist_ok=True)
    members = [place for place in recipe.mean_with if place in names()]

    def write(file: Path) -> None:
        save(network, file, header, compact=True, prune=True, members=members)

    write(rounded)  # the same bytes every time, so that a measurement can resume
    sha256 = file_sha256(rounded)
    out = rounded.parent / sha256[:12]  # rows of another network, trained in the same folder before, do not count
    measured = measure(rounded, data.load(recipe.data, "test", data_dir), recipe.eps, out, show_progress)
    card = Card(
        name=name,
        data=recipe.data,
        eps=recipe.eps,
        recipe=recipe.model_dump(),
        before=before,
        seeds=[recipe.seed],
        hours=round(trained.seconds / 3600, 2) if hours is None else hours,
        machine=in_words(),
        date=date.today().isoformat(),
        parameters=sum(each.numel() for each in network.parameters()),
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
    write(stored)
    if file_sha256(stored) != sha256:
        stored.unlink()
        raise ValueError(f"{stored} would not be what was measured: {rounded} has changed meanwhile; call again")
    if results is not None:
        curve.write(results / "curves" / f"{name}.json", measured.rows, float(parse_eps(recipe.eps)), trained.metrics)
    write_atomically(target / f"{name}.json", card.model_dump_json(indent=2) + "\n")
    return card


def runs_before(recipe: Recipe, after: Sequence[Path] = ()) -> list[str]:
    """List the commands of the runs that a recipe names, the earliest first; after: runs that come later.

    Networks of the zoo have cards of their own.
    """
    commands: list[str] = []
    for place in recipe.networks:
        if (Path(place) / RECIPE).exists():
            if (folder := Path(place).resolve()) in after:
                raise ValueError(f"{place} comes before itself: one of two runs has been trained again in its folder")
            earlier = Run(folder).recipe
            commands += [*runs_before(earlier, [*after, folder]), f"{command(earlier)} --out {shlex.quote(place)}"]
        elif place not in names():
            raise ValueError(f"the recipe names {place}, which is neither the folder of a run nor a network of the zoo")
    return list(dict.fromkeys(commands))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.zoo_add",
        description="Round and prune a network, measure what comes out on the test set, and write its file and card.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a finished run")
    parser.add_argument("name", metavar="NAME", help="such as mnist-0.3-mlp")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="another zoo than the package's own")
    parser.add_argument("--results", type=Path, metavar="DIR", default=ROOT / "results", help="where its curves go")
    parser.add_argument("--hours", type=float, metavar="H", help="of training in all; default: those of the run")
    parser.add_argument("--replace", action="store_true", help="replace the network of that name")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="the folder of all data sets")
    given = parser.parse_args(arguments)

    def work() -> None:
        card = add(**vars(given), show_progress=True)
        print(f"{card.name}: {card.certified:.2f} % certified at {card.eps}, {card.clean:.2f} % clean")

    return attempt(work)


if __name__ == "__main__":
    raise SystemExit(main())
