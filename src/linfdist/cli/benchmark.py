"""`linfdist benchmark`: verification instances whose answers are known."""

from pathlib import Path
from typing import Annotated

import typer

from .boundary import say
from .options import DataDir


def benchmark(
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The new folder to write.")] = None,
    check: Annotated[Path | None, typer.Option(metavar="DIR", help="Check a folder that was written, instead.")] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="trivial, tiny, small, medium, large, mnist.", show_default="all except mnist"
        ),
    ] = None,
    images: Annotated[int, typer.Option(metavar="N", min=1, help="Images of each network, five properties each.")] = 5,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of the networks and of the search.")] = 0,
    data_dir: DataDir = None,
) -> None:
    """Write verification instances whose answers are known, for verifiers of neural networks.

    A folder as in VNN-COMP, and for each instance a certificate or a counterexample. Its README explains the files.

    Example: linfdist benchmark --out runs/benchmark --sizes trivial,tiny
    """
    from linfdist.experiments import kit

    if (out is None) == (check is None):
        raise typer.BadParameter("name either a folder to write, --out DIR, or one to check, --check DIR")
    if check is not None:
        say(f"checked: {kit.check(check, say)} instances, every proof, witness, property and hash")
        return
    assert out is not None
    names = kit.DEFAULT if sizes is None else [name.strip() for name in sizes.split(",")]
    count = kit.generate(out, names, images, seed, data_dir, say)
    say(f"written: {count} instances in {out}, explained by its README.md")
