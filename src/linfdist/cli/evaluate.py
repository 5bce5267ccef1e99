"""`linfdist evaluate`: measure clean, attacked and certified accuracy, one row per image."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from linfdist.attacks import ATTACKS
from linfdist.eps import down, nearest, parse_eps, share, up
from linfdist.errors import cell, console
from linfdist.evaluation import BATCH, Shard, for_data_sets, parse_attacks

from .boundary import is_first, say
from .options import AUTO, DataDir, DeviceName, ModelName, open_model

if TYPE_CHECKING:
    from linfdist.evaluation import Evaluation


def evaluate(
    model: ModelName,
    eps: Annotated[
        str | None, typer.Option(metavar="E", help="Radius, e.g. 0.3 or 8/255.", show_default="the recipe's")
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="|".join(("none", *ATTACKS)),
            help="Attacks to run on correctly classified images; repeatable, or separated by commas.",
            show_default="none",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(metavar="|".join(for_data_sets()), help="The method of proof, or several separated by commas."),
    ] = "box",
    dataset: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="NAME", help="The data set, or a folder of images.", show_default="the recipe's"
        ),
    ] = None,
    split: Annotated[str, typer.Option(metavar="train|test", help="Which images of the data set.")] = "test",
    limit: Annotated[int | None, typer.Option(metavar="N", help="Only the first N images.")] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="K/N", help="Evaluate only part K of N; the part that finishes last merges all."),
    ] = None,
    batch: Annotated[
        int, typer.Option(metavar="N", help="Images per batch; an evaluation that is stopped loses one batch.")
    ] = BATCH,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start afresh, and replace what --out holds.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder for rows and summary.", show_default="the run's folder"),
    ] = None,
    device: DeviceName = AUTO,
    data_dir: DataDir = None,
) -> None:
    """Write rows.jsonl and summary.json, and show the summary. Stopped at any moment, the same command resumes.

    Example: linfdist evaluate mnist-0.3 --attack pgd,strong --limit 1000
    """
    from linfdist import data
    from linfdist.evaluation import evaluate as run

    attacks = parse_attacks(attack or [])
    part = Shard.parse(shard) if shard is not None else Shard.of_this_process()
    opened = open_model(model, device)
    name, radius = opened.data(dataset), opened.eps(eps)
    parse_eps(radius)  # before the data are fetched
    target = out or opened.folder
    result = run(
        opened.network, data.load(name, split=split, data_dir=data_dir, resize=opened.network.resize), radius, target,
        opened.file,
        model=None if Path(model).resolve() == target.resolve() else model,
        split=split, limit=limit, method=method, attacks=attacks, shard=part, batch=batch, fresh=fresh,
        show_progress=is_first(),
    )  # fmt: skip
    _show(result, target)


def _show(result: "Evaluation", target: Path) -> None:
    summary = result.summary
    if "shard" in summary:
        others = f"not yet: {', '.join(result.waiting)}" if result.waiting else "another process has merged the shards"
        text = f"shard {summary['shard']} is finished, {summary['n']:,} images; {others}"
    else:
        console().print(table(summary))
        text = f"rows and summary {'were finished before' if result.before else 'are'} in {target}"
        text += ": --fresh starts afresh" if result.before else ""
    say(text)


def table(summary: dict[str, Any]) -> Table:
    """Tabulate the headline numbers: what is proved is never rounded up, what survives attacks never down."""
    title = f"{summary['data']} {summary['split']}, eps = {summary['eps']}, {summary['n']:,} images"
    if "domain_sha256" in summary:
        title += ", within the domain of the network"
    shown = Table(title=cell(title))
    n = summary["n"]
    columns = {"clean": f"{nearest(share(summary['clean'], n), 2)} %"}
    proved = share(summary["certified"], n)

    def survive(value: float) -> str:
        left = share(value, n)
        return f"{(down if left == proved else up)(left, 2)} %"  # equal numbers are printed equally

    columns |= {name: survive(value) for name, value in summary["attacks"].items()}
    if len(summary["attacks"]) > 1:
        columns["all attacks"] = survive(summary["robust"])
    columns[f"certified ({summary['method']})"] = f"{down(proved, 2)} %"
    columns["mean radius"] = down(summary["mean_radius"], 4)
    for heading in columns:
        shown.add_column(heading, justify="right")
    shown.add_row(*columns.values())
    return shown
