"""Make foreign text safe to show: names of classes and files must not move a cursor, nor reverse a line."""

import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_ORDER = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})  # they change the order of text
_HIDDEN = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, halves of characters, breaks of lines


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
