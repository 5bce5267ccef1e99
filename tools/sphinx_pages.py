"""A Sphinx extension: pages from files of the root, the navigation, docstrings of this house, formulas as MathML."""

import contextlib
import inspect
import re
from typing import Any

from . import ROOT

PAGES = {"index": "README.md", "contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
_LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )(?![a-z]+:|#)([^)\s]+)", re.MULTILINE)
_OUTSIDE = re.compile(r"\]\((\.\./[^)#]+\.md)\)")
_SITE = re.compile(r"^<!-- site\n(.*?)\n-->$", re.DOTALL | re.MULTILINE)
_GROUP = re.compile(r"^## (.+)\n\n((?:- \[.+\n)+)", re.MULTILINE)
_ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*): \S")
_SECTION = re.compile(r"(Args|Attributes|Examples?|Notes?|Parameters|Raises|Returns|Yields):$")
_UNDERLINE = re.compile(r"-{3,}$")


def setup(app: Any) -> dict[str, bool]:
    """Register what this extension does."""
    app.connect("source-read", _read_page)
    app.connect("autodoc-process-docstring", _process_docstring, priority=400)  # before napoleon
    app.add_html_math_renderer("mathml", inline_renderers=(_inline_math, None), block_renderers=(_block_math, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _read_page(app: Any, name: str, source: list[str]) -> None:
    """Take what only the site shows out of its comments.

    A file of the root comes before what the page itself says: it is written once, and its links hold on both sides.
    """
    source[0] = _SITE.sub(r"\1", source[0])
    if "/" not in name:
        source[0] = _OUTSIDE.sub(r"](path:\1)", source[0])  # a file beside docs/, which is no page of the site
    if name == "index":
        source[0] += navigation(source[0])
    if name in PAGES:
        text = (ROOT / PAGES[name]).read_text(encoding="utf-8")
        source[0] = root_page(text) + "\n" + source[0]


def navigation(index: str) -> str:
    """Turn each list of links below a heading into a part of the site's navigation."""
    trees = []
    for caption, links in _GROUP.findall(index):
        pages = "\n".join(re.findall(r"^- \[.+?\]\((.+?)\.md\)", links, re.MULTILINE))
        trees.append(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n")
    return "".join(trees)


def root_page(text: str) -> str:
    """Turn the links of a file of the root into links of a page in docs/."""
    pages = {file: f"{page}.md" for page, file in PAGES.items()}

    def turned(link: re.Match[str]) -> str:
        file, mark, anchor = link[2].partition("#")
        page = pages.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else f"../{file}")
        return f"{link[1]}{page}{mark}{anchor}"

    return _LINK.sub(turned, text)


def _process_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_rst(lines, _parameters(obj))


def _parameters(obj: Any) -> set[str]:
    """Return the names that a docstring may explain, one entry each."""
    names = set(getattr(obj, "__annotations__", {}))
    with contextlib.suppress(TypeError, ValueError):  # of some things no signature is known
        names |= set(inspect.signature(obj).parameters)
    return names | {"Returns"}


def to_rst(lines: list[str], parameters: set[str]) -> list[str]:
    """Turn a docstring of plain text, Markdown's backticks and `name: meaning` entries into what napoleon reads."""
    done: list[str] = []
    place = "text"  # or "entry", "section", "list", "literal", "numpy": what an indented line belongs to
    for number, line in enumerate(lines):
        entry, indented = _ENTRY.match(line), line.startswith("  ")
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if not line.strip():
            done.append("")
            continue
        if line.lstrip().startswith((">>> ", "... ")):
            done.append(line)
            continue
        if _UNDERLINE.match(following.strip()) and len(following.strip()) == len(line.strip()):
            place = "numpy"  # a heading of NumPy's style: the rest is napoleon's
        if place == "numpy":
            done.append(line if _UNDERLINE.match(line.strip()) else _escaped(line))
        elif _SECTION.match(line):
            place = "section"
            done += [*([] if not done or not done[-1] else [""]), line]
        elif entry and {each.strip(" *") for each in entry[1].split(",")} <= parameters:
            if place != "entry":
                done += ["", "Args:"]
            place = "entry"
            done.append(f"    {_escaped(line)}")
        elif line.startswith("- "):
            done += [*([] if place == "list" or not done or not done[-1] else [""]), _escaped(line)]
            place = "list"
        elif indented and place == "entry":
            done.append(f"    {_escaped(line)}")
        elif indented and place in ("section", "list"):
            done.append(_escaped(line))
        elif indented:
            done += [*([] if place == "literal" else ["", "::", ""]), line]
            place = "literal"
        else:
            done += [*([] if place == "text" or not done or not done[-1] else [""]), _escaped(line)]
            place = "text"
    return [*done, ""]


def _escaped(line: str) -> str:
    """Markdown's code becomes RST's; nothing else is markup."""
    parts = re.split(r"(``.+?``|:\w+:`[^`]+`|`[^`]+`)", line)
    for k, part in enumerate(parts):
        if k % 2:
            parts[k] = part if part.startswith(("``", ":")) else f"`{part}`"
            if k + 1 < len(parts) and re.match(r"\w", parts[k + 1]):
                parts[k] += "\\ "
        else:
            parts[k] = re.sub(r"([\\*|]|_(?=\W|$)|`)", r"\\\1", part)
    return "".join(parts)


def _inline_math(writer: Any, node: Any) -> None:
    _math(writer, node, block=False)


def _block_math(writer: Any, node: Any) -> None:
    _math(writer, node, block=True)


def _math(writer: Any, node: Any, block: bool) -> None:
    """Write MathML, which browsers show without a script; docutils translates."""
    from docutils import nodes
    from docutils.utils.math import wrap_math_code
    from docutils.utils.math.latex2mathml import tex2mathml

    text = node.astext()
    mathml = tex2mathml(wrap_math_code(text, as_block=True) if block else text, as_block=block)
    writer.body.append(f'<div class="math">{mathml}</div>' if block else mathml)
    raise nodes.SkipNode
