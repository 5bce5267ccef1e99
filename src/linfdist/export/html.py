"""One self-contained page that holds an exact network, runs it in the browser and proves what it shows.

The parts are files in `page/`: a template, a style sheet, and modules of plain JavaScript that are joined here. What
comes from a network, a data set or a file name goes in as escaped text or as JSON that HTML cannot misread, and a
content security policy allows no other script and no connection.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

from ..data import Dataset
from ..eps import Eps, as_text, parse_eps
from ..errors import printable
from ..exact import FrozenNet, save
from ..files import read_bytes, write_atomically
from ..version import __version__

# In this order: a module comes after those that it imports.
MODULES = (
    "json", "sha256", "file", "dist", "stages", "head", "network", "certificate",
    "attack", "explain", "png", "pictures", "draw", "view", "panels", "app",
)  # fmt: skip
SAMPLES = 60  # test images on the page, the first ones
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async )?(function|class|const)\b)", re.MULTILINE)


def page(
    network: FrozenNet | bytes,
    name: str,
    classes: Sequence[str] | None = None,
    samples: Dataset | None = None,
    eps: Eps | None = None,
) -> str:
    """Build the text of the page.

    network: an exact network, or the bytes of its file, which the page then contains unchanged. name: its name.
    classes: their names. samples: a data set whose first images the page offers. eps: the first radius.
    """
    content = network if isinstance(network, bytes) else _bytes(network)
    data = {
        "name": printable(name),
        "classes": None if classes is None else [printable(each) for each in classes],
        "eps": None if eps is None else {"text": as_text(eps), "levels": int(parse_eps(eps) * 255)},
        "samples": None if samples is None else _samples(samples),
    }
    style, script = _part("page.css"), script_text()
    values = {
        "title": html.escape(printable(name)),
        "version": html.escape(__version__),
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "data": _json(data),
        "network": base64.b64encode(content).decode("ascii"),
    }
    template = Template(_part("page.html"))
    size = len(template.substitute(values, size="").encode())
    return template.substitute(values, size=f"{-(-size // 1000):,} kB")


def to_html(
    network: FrozenNet | bytes,
    path: Path,
    name: str,
    classes: Sequence[str] | None = None,
    samples: Dataset | None = None,
    eps: Eps | None = None,
) -> None:
    """Write the page to a file; see `page`."""
    write_atomically(path, page(network, name, classes, samples, eps))


def script_text() -> str:
    """Join all modules into one script without imports and exports."""
    return "\n" + "".join(_EXPORT.sub("", _IMPORT.sub("", _part(f"{name}.js"))) for name in MODULES)


def _part(name: str) -> str:
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Hash a text, in the form that a content security policy states."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _json(value: object) -> str:
    """Write JSON that cannot end or start anything in HTML."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _bytes(network: FrozenNet) -> bytes:
    with TemporaryDirectory() as folder:
        save(network, Path(folder) / "exact.safetensors")
        return read_bytes(Path(folder) / "exact.safetensors")


def _samples(samples: Dataset) -> dict[str, object]:
    images = samples.images[:SAMPLES].contiguous().numpy()
    return {
        "data": samples.name,
        "images": base64.b64encode(images.tobytes()).decode("ascii"),
        "labels": samples.labels[:SAMPLES].tolist(),
    }
