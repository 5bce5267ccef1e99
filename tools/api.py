"""The tables of the reference, docs/api/: every public name, its arguments and what it is, for readers of the files.

The site has all docstrings below them, from the directives that stand in comments there.
"""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from .markdown import fill, markdown

_HEADING = re.compile(r"# (?:`(linfdist[\w.]*)`|API reference)\n")


def pages(root: Path) -> dict[Path, str]:
    """Write the pages of the reference as they should be."""
    return {path: page(path) for path in sorted((root / "docs" / "api").glob("*.md"))}


def page(path: Path) -> str:
    """Write one page with its table as it should be."""
    text = path.read_text(encoding="utf-8")
    heading = _HEADING.match(text)
    if heading is None:
        raise ValueError(f"{path} must begin with a line such as # `linfdist.nn`")
    return fill(text, {"names": table(heading[1] or "linfdist")}, path.name)


def table(module_name: str) -> str:
    """Write the table of a module's public names."""
    module = importlib.import_module(module_name)
    lines = []
    for name in module.__all__:
        thing = getattr(module, name)
        if not name.startswith("_"):
            shown = f"[`{name}`]({name}.md)" if inspect.ismodule(thing) else f"`{name}{_arguments(thing)}`"
            lines.append([shown, _summary(thing)])
    return markdown(["name", "what it is"], [[cell.replace("|", r"\|") for cell in line] for line in lines], 2)


def _arguments(thing: Any) -> str:
    """Return the signature without types, where there is one."""
    if not callable(thing):
        return ""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(…)"
    shown = []
    if str(signature).startswith("(*args: Any, **kwargs: Any)"):
        return "()"  # torch's own, of a layer without arguments
    for each in signature.parameters.values():
        default = each.default
        if default is not each.empty and (callable(default) or "<" in repr(default)):
            each = each.replace(default=...)  # what it prints as depends on the machine
        shown.append(each.replace(annotation=each.empty))
    without_types = signature.replace(parameters=shown, return_annotation=signature.empty)
    return str(without_types).replace("Ellipsis", "…")


def _summary(thing: Any) -> str:
    """Return the first paragraph of the docstring; of a constant, its value if that is short."""
    if inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing):
        return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return f"`{thing!r}`" if isinstance(thing, str | int | float | tuple) and len(repr(thing)) < 80 else "a constant"
