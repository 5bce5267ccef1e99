"""The base of our errors, and what messages show: near words, values in a few words, foreign text made safe.

Errors that a caller may want to tell apart derive from `LinfdistError`. All others are plain ValueErrors, TypeErrors,
and OSErrors.
"""

import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_ORDER = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})  # they change the order of text
_HIDDEN = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, halves of characters, breaks of lines


class LinfdistError(Exception):
    """Base of the package's own errors.

    Every error derives from a builtin one too (`DataError` is a `RuntimeError`, `RecipeError` a `ValueError`), so that
    `except ValueError` means what it always means. `training.Interrupted` is not among them: it is a
    `KeyboardInterrupt`, which `except Exception` must not swallow.

    topic: processes that fail with the same topic say so once, if their texts differ.
    """

    topic: str | None = None


def closest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?`, or nothing if no known word is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def described(value: object) -> str:
    """Describe a value that was given in place of the expected one: its text, or its type and shape."""
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    shape = getattr(value, "shape", None)
    return type(value).__name__ + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")


def printable(text: object, breaks: bool = False) -> str:
    """Return text on one line, with what a terminal or browser would obey written out, such as \\x1b.

    breaks: keep the line breaks.
    """
    return "".join(_shown(each, breaks) for each in str(text))


def _shown(character: str, breaks: bool) -> str:
    if character.isprintable() or (breaks and character == "\n"):
        return character  # `isprintable` is quick, and holds for none of the others
    hidden = unicodedata.category(character) in _HIDDEN or unicodedata.bidirectional(character) in _ORDER
    return character.encode("unicode_escape", "surrogatepass").decode() if hidden else character


def cell(text: object) -> str:
    """Return text for a cell of a table: one line, and nothing in it is markup."""
    from rich.markup import escape

    return escape(printable(text))


def console(**options: Any) -> "Console":
    """Return a console of rich that prints no control characters, whatever it is given; line breaks are kept."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Safe(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Any:
            for segment in super().render(renderable, options):
                if segment.control is None and not segment.text.isprintable():
                    segment = Segment(printable(segment.text, breaks=True), segment.style)
                yield segment

    return Safe(**options)
