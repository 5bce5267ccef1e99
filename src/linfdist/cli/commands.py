"""All verbs of the `linfdist` command, each imported when it is asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer

import linfdist

from .boundary import Verb, Verbs, say

GROUPS = ("data", "recipes", "zoo")  # of verbs
VERBS = (
    "info", "bench", "train", "evaluate", "certify", "export", "demo", "verify", "report", "reproduce", "compare",
    "tune", "benchmark", *GROUPS,
)  # fmt: skip


class Commands(Mapping[str, Any]):
    """The verbs by name. The file of a verb is imported when it is asked for."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in VERBS and name not in self.made:
            module, one = import_module(f".{name}", __package__), typer.Typer()
            if name in GROUPS:
                one.add_typer(module.app, name=name)
            else:
                one.command(cls=Verb)(getattr(module, name))
            self.made[name] = typer.main.get_group(one).commands[name]
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)

    def __contains__(self, name: object) -> bool:
        return name in VERBS


class LinfdistVerbs(Verbs):
    """All verbs of the package, imported when they are needed: a command does not pay for the others."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = Commands()


app = typer.Typer(
    cls=LinfdistVerbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},  # of every verb
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"linfdist {linfdist.__version__}")
        raise typer.Exit


@app.callback()
def verbs(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """ℓ∞-dist networks: classifiers whose robustness is proved.

    Networks that come with the package, such as mnist-0.3, are listed by `linfdist zoo list`.

    Example: linfdist certify mnist-0.3 seven.png
    """
