"""Output and errors of the command line: one place where errors become a line and an exit code."""

import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from linfdist.errors import LinfdistError, console, printable

INTERRUPTED = 130
MISUSED = 2
_UsageError: Any = typer.BadParameter.__base__  # typer has no public name for it
_RESUME = {  # what to do after Ctrl-C, by verb, where it is not what the library says
    "evaluate": "what is finished is kept, and the same command without --fresh resumes",
    "compare": "what is finished is kept, and the same command resumes",
    "tune": "finished trials are kept, and the same command resumes",
    "reproduce": "the same command resumes",
}


def say(*lines: str, error: bool = False) -> None:
    """Print plain lines without markup, colours and wrapping. A name with a line break in it stays on its line."""
    text = "\n".join(printable(line) for line in lines)
    console(stderr=error).print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)


def fail(*lines: str, code: int = 1, topic: str | None = None) -> typer.Exit:
    """Print to stderr; return the exception to raise to leave with that exit code.

    Print each error once per machine: processes whose errors have the same text or `topic` print one.
    """
    text = "\n".join(lines)
    tell_launcher(text)
    if first_to_say(topic or text):
        say(*lines, error=True)
    return typer.Exit(code)


@contextmanager
def checking(parameter: str) -> Iterator[None]:
    """Turn an error about a parameter's value into a usage error, exit code 2."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise typer.BadParameter(explain(error), param_hint=parameter) from error


def is_first() -> bool:
    """Return whether this is the process that prints, among those that `torchrun` has started."""
    return os.environ.get("RANK", "0") == "0"


def explain(error: BaseException) -> str:
    """Describe an error; for the system's errors, name the file and the reason."""
    if isinstance(error, MemoryError):
        return "there is not enough memory for this: give fewer images at a time, or a smaller network"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _bare_flags(parameters: list[Any]) -> list[Any]:
    """Return a command's parameters, with flags whose help does not end in typer's <bool>."""
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return parameters


class Verb(TyperCommand):
    """One verb. A flag takes no value, and its help shows none."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All arguments and options, --help among them."""
        return _bare_flags(super().get_params(ctx))


class VerbGroup(TyperGroup):
    """Verbs that start with the same word, such as `linfdist data`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All options before the verb, --help among them."""
        return _bare_flags(super().get_params(ctx))


class Verbs(VerbGroup):
    """All verbs. Errors that a user can cause are printed to stderr, exit code 1; only bugs give a traceback.

    A misused command prints its error in the same way, exit code 2, with a second line about help.
    """

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the options before the verb."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except _UsageError as error:
            raise _misused(error) from None

    def invoke(self, ctx: Any) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except _UsageError as error:
            raise _misused(error) from None
        except KeyboardInterrupt as stop:
            if not is_first():  # several processes were stopped at once: one of them says so
                raise typer.Exit(INTERRUPTED) from None
            what, hint = str(stop) or "stopped", _RESUME.get(ctx.invoked_subcommand or "")
            raise fail(f"{what.split(';')[0]}; {hint}" if hint else what, code=INTERRUPTED) from None
        except (LinfdistError, ImportError, MemoryError, OSError, TypeError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # whoever was reading the output has left
            raise fail(*_lines(f"error: {explain(error)}"), topic=getattr(error, "topic", None)) from None
        except RuntimeError as error:
            if (known := _cause(error)) is None:
                raise
            raise fail(f"error: {known}") from None


def _lines(text: str) -> list[str]:
    """Split an error with several reasons into indented lines."""
    first, *rest = text.split("\n  ")
    return [first, *(f"  {each}" for each in rest)]


def _misused(error: Any) -> Exception:
    """Print what is wrong with the command and where its help is; the verb's help itself if nothing was given."""
    if type(error).__name__ == "NoArgsIsHelpError" or error.ctx is None:
        return error
    text = " ".join(error.format_message().replace("Value error, ", "").split())  # of pydantic, within typer
    return fail(f"error: {text}", f"help: {error.ctx.command_path} --help", code=MISUSED)


def _cause(error: RuntimeError) -> str | None:
    """Return whether the machine or the environment caused a RuntimeError, rather than a bug."""
    if "DefaultCPUAllocator" in str(error):
        return explain(MemoryError())
    from linfdist.ops.machine import backend_in_use

    try:
        backend_in_use()
    except RuntimeError as refusal:
        return f"no backend can run: {refusal}"
    return None


def first_to_say(topic: str) -> bool:
    """Return whether this is the first process to ask, among those that `torchrun` has started on this machine.

    Torchrun gives each process a file for its error, in a folder of this machine, job and attempt.
    """
    place = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not place:
        return True
    which = f"{os.environ.get('MASTER_PORT')} {topic}"  # the port changes when processes are started again
    try:
        Path(place).parent.with_name(f"said-{hashlib.sha256(which.encode()).hexdigest()[:16]}").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True  # better twice than never
    return True


def tell_launcher(text: str) -> None:
    """Write the reason where `torchrun` reads it for its report of the first failure."""
    place = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not place or Path(place).exists():
        return
    reason = {"message": {"message": text, "extraInfo": {"timestamp": str(int(time.time()))}}}
    try:
        Path(place).write_text(json.dumps(reason), encoding="utf-8")
    except OSError:
        return  # the reason is told on stderr in any case
