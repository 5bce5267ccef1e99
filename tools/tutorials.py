"""Run the tutorials and write what their code prints and draws below it, for readers of the files and of the site.

python -m tools.tutorials [NAME...]   # those whose code has changed since they were run; --all: every one
"""

import argparse
import ast
import hashlib
import io
import os
import pprint
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from linfdist.files import write_atomically

from . import ROOT

FOLDER = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
OUTPUT = re.compile(r"\n<!-- output -->\n.*?<!-- end of output -->\n", re.DOTALL)
RAN = re.compile(r"\n<!-- the outputs are those of the code with the hash (\w*) -->\n")
MOST_LINES, FIRST, LAST = 24, 12, 8  # of an output; of a longer one, so many are shown from its ends
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def blocks(text: str) -> list[str]:
    """Return the blocks of code of a page."""
    return BLOCK.findall(OUTPUT.sub("", text))


def code_hash(text: str) -> str:
    """Return the hash of all code of a page."""
    return hashlib.sha256("\n".join(blocks(text)).encode()).hexdigest()[:16]


def is_current(text: str) -> bool:
    """Tell whether the outputs of a page are those of its code."""
    found = RAN.search(text)
    return found is not None and found[1] == code_hash(text)


def with_outputs(name: str, text: str, images: Path) -> str:
    """Run the code of a page from top to bottom; return the page with outputs. Pictures are written into `images`."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    source, pictures = RAN.sub("", OUTPUT.sub("", text)), 0
    parts, end = [], 0
    _figures()  # those that others left open are not this page's
    for block in BLOCK.finditer(source):
        printed, drawn = run(block[1], namespace)
        shown = [f"```text\n{printed}\n```\n"] if printed else []
        for picture in drawn:
            pictures += 1
            images.mkdir(exist_ok=True)
            write_atomically(images / f"{name}-{pictures}.png", picture)
            shown.append(f"![What this code draws](images/{name}-{pictures}.png)\n")
        parts.append(source[end : block.end()])
        if shown:
            parts.append("\n<!-- output -->\n" + "\n".join(shown) + "<!-- end of output -->\n")
        end = block.end()
    parts += [source[end:], f"\n<!-- the outputs are those of the code with the hash {code_hash(source)} -->\n"]
    return "".join(parts)


def run(code: str, namespace: dict[str, Any]) -> tuple[str, list[bytes]]:
    """Run a block as a notebook does; return what it printed, with its last value, and the pictures that it drew."""
    tree, last = ast.parse(code), None
    if isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    printed, drawn = io.StringIO(), []
    with redirect_stdout(printed):
        exec(compile(tree, "<tutorial>", "exec"), namespace)
        value = None if last is None else eval(compile(last, "<tutorial>", "eval"), namespace)
        picture = getattr(value, "_repr_png_", None)
        if picture is not None:
            drawn.append(picture())
        elif value is not None:
            print(pprint.pformat(value, width=110, sort_dicts=False))
    return shortened(_ESCAPE.sub("", printed.getvalue()).rstrip()), [*drawn, *_figures()]


def shortened(printed: str) -> str:
    """Leave out the middle of a long output."""
    lines = printed.splitlines()
    return printed if len(lines) <= MOST_LINES else "\n".join([*lines[:FIRST], "…", *lines[-LAST:]])


def _figures() -> list[bytes]:
    """Return the open figures as PNGs, and close them."""
    import matplotlib.pyplot as plt

    pictures = []
    for number in plt.get_fignums():
        buffer = io.BytesIO()
        plt.figure(number).savefig(buffer, format="png", dpi=100, metadata={"Software": None})
        pictures.append(buffer.getvalue())
    plt.close("all")
    return pictures


def _write(name: str, out: Path) -> None:
    page = FOLDER / f"{name}.md"
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)  # what a tutorial writes does not land in the repository
        text = with_outputs(name, page.read_text(encoding="utf-8"), out / "images")
        os.chdir(ROOT)
    write_atomically(out / page.name, text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what has to be run, each tutorial in a process of its own; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.tutorials", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: every tutorial")
    parser.add_argument("--all", action="store_true", help="also those whose code has not changed")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where the pages go, default: docs/tutorials")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.here:
        _write(given.names[0], given.out.resolve())
        return 0
    failed = []
    for name in given.names or sorted(path.stem for path in FOLDER.glob("*.md")):
        if given.all or not is_current((FOLDER / f"{name}.md").read_text(encoding="utf-8")):
            print(f"run {name}", flush=True)
            command = [sys.executable, "-m", "tools.tutorials", "--here", name, "--out", str(given.out)]
            if subprocess.run(command, cwd=ROOT, env={**os.environ, "MPLBACKEND": "agg"}, check=False).returncode:
                failed.append(name)
    if failed:
        print(f"error: these tutorials do not run: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
