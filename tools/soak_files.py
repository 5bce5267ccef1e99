"""Files of every kind, changed at random and at every depth: each is read, or refused with an error that says why.

A change replaces, removes, adds or swaps a value anywhere in the JSON of a file, also in JSON that is text within
JSON, or flips, cuts and repeats bytes. What a reader may raise is what the command line prints on one line.
"""

import json
import random
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from linfdist import data, models, nn, recipes
from linfdist.errors import LinfdistError
from linfdist.exact import certificates, freeze, load, save, twin, verify
from linfdist.exact.certificate import read_certificate
from linfdist.exact.network import image_sha256
from linfdist.models import DistNet, DistNetMLP, Mean
from linfdist.models.zoo import FILES, cards
from linfdist.runs.folder import Run
from linfdist.sklearn import LinfDistClassifier

from .soak_crashes import prepare

REFUSED = (LinfdistError, OSError, TypeError, ValueError)
Reader = Callable[[Path], object]


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


ANYTHING = [
    None, True, False, 0, 1, -1, 2, 7, 255, 1.0, 0.5, -0.0, 1e-300, 1e300, float("nan"), float("inf"), 2**31, 2**63,
    -(2**63), 10**30, 10**400, "", "1", "0.3", "8/255", "nan", "linfdist", "\x1b[2J", "\u202eabc", "a\nb", "\ud800",
    "x" * 5000, [], [1],
    [1, 2, 3], [[]], {}, {"a": 1}, [{}], [None], "F32", "I64", "2^-8", "DistNet", "Mean", [0, 8], _deep(15), _deep(200),
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the paths to everything inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, part in inside for each in places(part, (*path, key)))]


def mangle(value: Any, draw: random.Random) -> Any:
    """Change one thing in a JSON value, at any depth, and return it."""
    path = draw.choice(places(value))
    if not path:
        return draw.choice(ANYTHING)
    within, last = value, path[-1]
    for key in path[:-1]:
        within = within[key]
    action = draw.choice(["set", "set", "nudge", "remove", "add", "swap"])
    if action == "remove":
        del within[last]
    elif action == "add" and isinstance(within, dict):
        within[draw.choice(["a", "", "config", "format", "members", "\x1b[31m", str(last) + " "])] = draw.choice(
            ANYTHING
        )
    elif action == "add":
        within.insert(last, draw.choice(ANYTHING))
    elif action == "nudge" and type(within[last]) in (int, float):
        within[last] += draw.choice([-8, -1, 1, 8, 1e-9] if abs(within[last]) < 2**53 else [-8, -1, 1, 8])
    elif action == "swap" and isinstance(within, dict):
        other = draw.choice(list(within))
        within[last], within[other] = within[other], within[last]
    else:
        within[last] = draw.choice(ANYTHING)
    return value


class Inner(dict[str, Any]):
    """An object that is text within the JSON around it."""


def opened(value: Any) -> Any:
    """Replace texts that are JSON objects by these, so that they are changed inside, too."""
    if isinstance(value, str) and value.startswith("{"):
        return Inner(opened(json.loads(value)))
    if isinstance(value, dict):
        return {key: opened(each) for key, each in value.items()}
    return [opened(each) for each in value] if isinstance(value, list) else value


def closed(value: Any) -> Any:
    """Undo `opened`."""
    if isinstance(value, dict):
        plain = {key: closed(each) for key, each in value.items()}
        return json.dumps(plain, separators=(",", ":")) if isinstance(value, Inner) else plain
    return [closed(each) for each in value] if isinstance(value, list) else value


def change(content: bytes, suffix: str, draw: random.Random) -> bytes:
    """Change one to three things in a file."""
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        if suffix in (".png", ".toml") or draw.random() < 0.2:
            content = _bytes(content, draw)
            continue
        try:
            content = _json(content, suffix, draw)
        except (ValueError, struct.error, RecursionError):  # it is no JSON any more
            content = _bytes(content, draw)
    return content


def _json(content: bytes, suffix: str, draw: random.Random) -> bytes:
    if suffix == ".safetensors":
        (length,) = struct.unpack("<Q", content[:8])
        header = closed(mangle(opened(json.loads(content[8 : 8 + length])), draw))
        text = json.dumps(header, separators=(",", ":")).encode()
        return struct.pack("<Q", len(text)) + text + content[8 + length :]
    lines = content.splitlines(keepends=True) if suffix == ".jsonl" else [content]
    number = draw.randrange(len(lines)) if lines else 0
    lines[number] = json.dumps(mangle(json.loads(lines[number]), draw)).encode() + b"\n"
    return b"".join(lines)


def _bytes(content: bytes, draw: random.Random) -> bytes:
    at, length = draw.randrange(len(content) + 1), draw.choice([1, 1, 2, 8, 100])
    action = draw.choice(["flip", "cut", "remove", "repeat", "insert"])
    if action == "flip" and at < len(content):
        return content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :]
    if action == "cut":
        return content[:at]
    if action == "remove":
        return content[:at] + content[at + length :]
    return content[:at] + (content[at : at + length] if action == "repeat" else draw.randbytes(length)) + content[at:]


def kinds(base: Path) -> dict[str, tuple[Path, Reader]]:
    """Write a file of each kind into `base`, and return them with what reads each."""
    torch.manual_seed(0)
    plain = DistNet((1, 4, 4), 3, 5, 2, [0.3], 0.31, pool=[1, 2], clip=[0.2, 0.9], per_class=2).eval()
    plain.class_names = ("a", "b", "c")
    members = [DistNetMLP((1, 4, 4), 3, 5, 2, [0.3], 0.31, head=4) for _ in range(2)]
    models.save(plain, base / "network.safetensors", {"recipe": {"name": "mine", "list": [1, [2, {"a": None}]]}})
    models.save(plain, base / "compact.safetensors", compact=True)
    own = nn.Stack(
        nn.Clip(0.1, 0.9), nn.Normalize([0.3], 0.31), nn.MirrorPairs(), nn.DistConv2d(1, 2, 3, padding=1),
        nn.MeanPool([1, 2]), nn.DistLinear(40, 5, bias=True), nn.MeanShift(5),
    )  # fmt: skip
    models.save(models.Composed(own, nn.NearestClass(5, 3, 2), (1, 4, 4)).eval(), base / "own.safetensors")
    models.save(plain, base / "pruned.safetensors", compact=True, prune=True)
    both = Mean(members, views=("same", "mirror")).eval()
    models.save(both, base / "mean.safetensors")
    models.save(members[0].eval(), base / "member.safetensors")
    models.save(both, base / "named.safetensors", prune=True, members=("member",))
    exact = freeze(plain)
    save(exact, base / "exact.safetensors")
    save(freeze(members[0].eval()), base / "head.safetensors")
    pixels = torch.randint(256, (1, 1, 4, 4), dtype=torch.uint8)
    Image.fromarray(pixels[0, 0].numpy()).save(base / "image.png")
    certificate = certificates(exact, pixels)[0].json()
    (base / "certificate.json").write_text(json.dumps(certificate))
    x = np.random.default_rng(0).random((30, 2))
    LinfDistClassifier(width=4, depth=2, max_iter=5, random_state=0).fit(x, np.arange(30) % 2).save(
        base / "table.safetensors"
    )
    (base / "recipe.toml").write_text(recipes.to_toml(recipes.load("digits-quick")))
    card = base / "card.json"
    card.write_bytes(next(iter(sorted(FILES.glob("*.json")))).read_bytes())
    prepare(base)

    def checked(path: Path) -> None:
        found = read_certificate(path, image_sha256(pixels))
        verify(found, pixels[0].numpy(), base / "exact.safetensors")
        for key in ("class", "levels", "radius"):
            if key in certificate and found[key] != certificate[key]:
                raise AssertionError(f"a certificate with another {key} was verified: {found[key]!r}")

    def run(path: Path) -> None:
        folder = Run(path.parent)
        folder.check_trained()
        folder.check_evaluated()

    files: dict[str, tuple[Path, Reader]] = {
        "network": (base / "network.safetensors", models.load),
        "compact network": (base / "compact.safetensors", models.load),
        "network of own layers": (base / "own.safetensors", models.load),
        "pruned network": (base / "pruned.safetensors", models.load),
        "mean of networks": (base / "mean.safetensors", models.load),
        "mean that names a network": (base / "named.safetensors", models.load),
        "exact network": (base / "exact.safetensors", load),
        "exact network, by the verifier": (base / "exact.safetensors", twin.read),
        "exact network with a head": (base / "head.safetensors", load),
        "certificate": (base / "certificate.json", checked),
        "estimator": (base / "table.safetensors", LinfDistClassifier.load),
        "recipe": (base / "recipe.toml", recipes.load),
        "card": (card, cards.read),
        "image": (base / "image.png", data.read_image),
        "data set": (
            base / "data" / "digits" / "test.safetensors",
            lambda path: data.load("digits", "test", base / "data"),
        ),
    }
    for name in ("recipe.json", "metrics.jsonl", "rows.jsonl", "summary.json", "gallery.safetensors"):
        if (base / "run" / name).exists():
            files[f"a run's {name}"] = (base / "run" / name, run)
    return {name: each for name, each in files.items() if each[0].exists()}


def try_files(files: dict[str, tuple[Path, Reader]], seed: int, found: Counter[str]) -> dict[str, Any] | None:
    """Change the file of one kind and read it; return what went wrong, with the content, if anything did."""
    draw = random.Random(seed)
    name = draw.choice(list(files))
    path, read = files[name]
    before = path.read_bytes()
    content = change(before, path.suffix, draw)
    path.write_bytes(content)
    try:
        read(path)
        found[f"{name}: read"] += 1
    except REFUSED as error:
        found[f"{name}: refused"] += 1
        if not str(error).strip():
            return {"kind": name, "seed": seed, "error": f"{error!r} says nothing", "content": content.hex()}
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"kind": name, "seed": seed, "error": repr(error)[:300], "content": content.hex()}
    finally:
        path.write_bytes(before)
    return None
