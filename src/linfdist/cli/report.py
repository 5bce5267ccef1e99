"""`linfdist report`: show a run as one page, and its charts as PNGs."""

import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from linfdist.models import zoo
from linfdist.report import write, write_assurance, write_comparison
from linfdist.runs.folder import MODEL, Run

from .boundary import say
from .options import DataDir


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders that `linfdist evaluate` wrote into: runs/mnist-0.3."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The folder for page and charts.", show_default="RUN/report; of several: comparison"
        ),
    ] = None,
    eps: Annotated[
        str | None, typer.Option(metavar="E,E", help="With several runs: further radii to compare at, such as 0.1,0.2.")
    ] = None,
    data_dir: DataDir = None,
    assurance: Annotated[
        bool,
        typer.Option("--assurance", help="Write assurance.json and .html instead: what was assessed, in ISO's terms."),
    ] = False,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Write report.html, one self-contained page, and the charts as PNGs. Several runs are compared on one page.

    Example: linfdist report runs/mnist-0.3 --open
    """
    for run in runs:
        _check(run)
    if len(runs) == 1 and eps is not None:
        raise ValueError(
            f"--eps {eps}: goes with several runs; `linfdist evaluate --eps` measures one at another radius"
        )
    if assurance and len(runs) > 1:
        raise ValueError(f"--assurance: speaks of one run, got {len(runs)}: give them one by one")
    if assurance:
        _, page = write_assurance(runs[0], out, _facts(Run(runs[0])))
    elif len(runs) == 1:
        page = write(runs[0], out)
    else:
        further = [each.strip() for each in eps.split(",")] if eps else []
        page = write_comparison(runs, out or Path("comparison"), eps=further, data_dir=data_dir)
    say(f"report: {page}")
    if open_:
        webbrowser.open(page.resolve().as_uri())


def _check(run: Path) -> None:
    """Raise ValueError if this is a network: a report needs an evaluation."""
    name = str(run)
    if not run.exists() and name in zoo.names():
        raise ValueError(
            f"{name} is a network, and a report is about an evaluation: "
            f"linfdist evaluate {name}, then linfdist report runs/{name}"
        )
    if run.is_file():
        raise ValueError(f"{name} is a file: give the folder that `linfdist evaluate` wrote into")


def _facts(run: Run) -> dict[str, Any] | None:
    """Return what is known of the network that was evaluated, if its file is at hand."""
    from linfdist.models import load

    run.check_evaluated()
    name = str(run.summary.get("model"))
    for source in (str(run.folder / MODEL), name):
        if not Path(source).exists() and source not in zoo.names():
            continue
        network, file = load(source), zoo.find(source)
        if network.checksum(file) == run.summary["model_sha256"]:
            dtype = str(network.floats.any_tensor.dtype).removeprefix("torch.")
            return {
                "file": source, "kind": type(network).__name__, "exact": network.exact,
                "arithmetic": "integers" if network.exact else dtype, "shape": list(network.shape),
                "classes": network.classes, "head": _has_head(network),
                "recipe": zoo.card(source).recipe if source in zoo.names() else None,
            }  # fmt: skip
    return None


def _has_head(network: Any) -> bool:
    return network.head is not None if network.exact else network.readout.lipschitz is None
