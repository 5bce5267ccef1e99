"""`linfdist data`: list the data sets, and fetch them."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from linfdist.data import NAMES, data_root, info
from linfdist.data import fetch as fetch_data
from linfdist.errors import cell, closest, console

from .boundary import Verb, VerbGroup, say
from .options import DataDir

app = typer.Typer(cls=VerbGroup, help="Data sets: list them, fetch them.", no_args_is_help=True)


@app.command("list", cls=Verb)
def list_(data_dir: DataDir = None) -> None:
    """Show the data sets and which are stored here.

    Example: linfdist data list
    """
    root = data_root(data_dir)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("name", "what", "train + test", "shape", "classes", "stored"):
        table.add_column(heading, justify="right" if heading == "classes" else "left", no_wrap=True)
    for name in NAMES:
        facts = info(name)
        files = [root / name / f"{split}.safetensors" for split in ("train", "test")]
        stored = all(file.is_file() for file in files)
        table.add_row(
            f"[bold]{name}[/]",
            cell(facts.title),
            f"{facts.train:,} + {facts.test:,}",
            "×".join(str(side) for side in facts.shape),
            str(facts.num_classes),
            f"[green]{_size(files)}[/]" if stored else "[dim]no[/]",
        )
    console().print(table)
    lines = [f"{name}: {info(name).licence}" for name in NAMES if info(name).licence]
    lines.append(f"stored in {root}")
    lines.append("your own images: give the path of a folder `class/image.png`")
    say("", *lines)


def _size(files: list[Path]) -> str:
    total = sum(file.stat().st_size for file in files)
    return f"{total / 1e9:.1f} GB" if total >= 1e9 else f"{total / 1e6:.1f} MB"


@app.command(cls=Verb)
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help=f"Any of: {', '.join(NAMES)}.")],
    data_dir: DataDir = None,
) -> None:
    """Get data sets from the first source that works, verify them and store them; a second call is instant.

    Example: linfdist data fetch mnist
    """
    for name in names:  # before the first is fetched
        if name not in NAMES:
            raise typer.BadParameter(
                f"unknown data set {name}; the data sets are {', '.join(NAMES)}{closest(name, NAMES)}",
                param_hint="NAME",
            )
    for name in names:
        start = time.monotonic()
        fetched = fetch_data(name, data_dir)
        seconds = time.monotonic() - start
        what = f"fetched in {seconds:.1f} s" if fetched.fresh else "stored already, intact"
        say(f"{name}: {what}, {fetched.folder} (from {fetched.source})")
