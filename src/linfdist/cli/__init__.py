"""The `linfdist` command: one file per verb (`commands.py` lists them), one place for errors (`boundary.py`)."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .commands import app

__all__ = ["app", "main"]
__getattr__, __dir__ = lazy_names(__name__, {"app": "commands"})


def main() -> None:
    """Run the command, as the installed script does.

    Imports take longer than most verbs. Ctrl-C during the imports ends the command as it does later, without a
    traceback.
    """
    try:
        from .commands import app
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    app(prog_name="linfdist")
