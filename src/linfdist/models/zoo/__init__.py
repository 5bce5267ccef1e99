"""Trained networks that come with the package, each with a card that describes and measures it.

A file that its card does not describe is refused.
"""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import closest
from ...files import parse_json, read_bytes

if TYPE_CHECKING:
    from .cards import Card

__all__ = ["FILES", "card", "check", "file", "find", "names"]
FILES = Path(__file__).parent / "files"


def names(folder: Path | None = None) -> list[str]:
    """List the networks of the zoo, or of another folder."""
    return sorted(path.stem for path in (folder or FILES).glob("*.json"))


def card(name: str, folder: Path | None = None) -> "Card":
    """Read the card of a network of the zoo; raise ValueError that lists the names if there is none."""
    from .cards import read  # pydantic takes its time, and is needed for this alone

    if name not in (known := names(folder)):
        raise ValueError(f"no network {name!r} in the zoo{_instead(name, known)}")
    found = read((folder or FILES) / f"{name}.json")
    if found.name != name:
        raise ValueError(f"{name}.json is the card of {found.name!r}: the zoo is damaged, install it again")
    return found


def file(name: str, folder: Path | None = None) -> Path:
    """Find the file of a network of the zoo, and verify its sha256."""
    path = (folder or FILES) / f"{name}.safetensors"
    card(name, folder)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: the zoo is damaged, install linfdist again")
    check(path, read_bytes(path))
    return path


def check(path: Path, content: bytes) -> None:
    """Raise ValueError unless this is the content that the card beside the path of a network describes.

    Of the card, only the name and the sha256 are read: pydantic, which checks the rest, takes longer than the network.
    """
    words = parse_json(read_bytes(path.with_suffix(".json")), f"{path.stem}.json")
    if not isinstance(words, dict) or words.get("name") != path.stem or not isinstance(words.get("sha256"), str):
        raise ValueError(f"{path.stem}.json is not the card of {path.stem!r}: the zoo is damaged, install it again")
    expected, found = words["sha256"], hashlib.sha256(content).hexdigest()
    if found != expected:
        raise ValueError(
            f"{path} is not what was measured: its sha256 is {found[:12]}…, the card says {expected[:12]}…; "
            "install linfdist again"
        )


def find(source: str | os.PathLike[str], folder: Path | None = None) -> Path:
    """Find the file, or the run's folder, that a name of the zoo or a path stands for; folder: another zoo.

    Text that is a name of the zoo means that network, even if a file of that name is in the working directory: write
    ./NAME for the path. A `Path` that exists always means the path. `load` verifies what it reads from the zoo.
    """
    text = os.fspath(source)
    known = names(folder) if _could_be_a_name(text) else []
    if text in known and (isinstance(source, str) or not Path(text).exists()):
        return (folder or FILES) / f"{text}.safetensors"
    if Path(text).exists() or not _could_be_a_name(text):
        return Path(text)
    raise FileNotFoundError(
        f"no network {text!r}: give a name of the zoo, a model.safetensors or the folder of a finished run"
        + _instead(text, known)
    )


def _could_be_a_name(text: str) -> bool:
    return "/" not in text and os.sep not in text and not text.endswith(".safetensors")


def _instead(word: str, known: list[str]) -> str:
    """Return a suggestion for a misspelt name, else the names of the zoo."""
    return closest(word, known) or (f"; the zoo has {', '.join(known)}" if known else "; the zoo is empty")
