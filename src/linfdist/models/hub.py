"""Networks on the Hugging Face Hub, and folders in its form: weights, JSON, and a card with what was measured.

Of a repository two files are read, weights and JSON, within limits. Nothing in them is executed.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ..eps import down, nearest, up, written
from ..errors import printable
from ..files import MOST_BYTES, excerpt, read_bytes, read_json_object, write_atomically
from ..runs.folder import MODEL, SUMMARY, Run
from ..version import __version__
from . import zoo
from .base import Network
from .loading import HUB, parse, read, save

CONFIG = "config.json"
CARD = "README.md"
FORMAT = "linfdist-hub-1"
MOST_MODEL_BYTES = 2**31
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_SOURCE = re.compile(rf"{HUB}({_PART}/{_PART})(?:@([A-Za-z0-9][A-Za-z0-9._-]{{0,99}}))?(?:#([0-9a-f]{{64}}))?")


def save_pretrained(source: object, folder: str | Path, results: str | Path | None = None) -> Path:
    """Write model.safetensors, config.json and a model card, README.md, into a folder, and return it.

    source: a network, or what `load` takes; a file is copied as it is. results: the folder of an evaluation of this
    very network, whose numbers the card states. By default they are those of the run that `source` is, if it was
    evaluated, or of the network's card in the zoo.
    """
    (content, name), target = _content(source), Path(folder)
    network, digest = parse(content, target / MODEL), hashlib.sha256(content).hexdigest()  # as `load` will read it
    if results is None and isinstance(source, str | os.PathLike) and (Path(source) / SUMMARY).is_file():
        results = Path(source)
    measured = _of_zoo(name) if results is None and source == name and name in zoo.names() else None
    if results is not None:
        measured = _of_run(Run(results), {digest, network.checksum()})
    if (target / MODEL).exists() and not (target / CONFIG).exists():
        raise FileExistsError(f"{target} holds a {MODEL} of something else, such as a run: choose another folder")
    config = {
        "format": FORMAT, "library_name": "linfdist", "linfdist": __version__, "sha256": digest,
        "shape": list(network.shape), "classes": network.classes, "exact": network.exact, "measured": measured,
    }  # fmt: skip
    target.mkdir(parents=True, exist_ok=True)
    write_atomically(target / MODEL, content)
    write_atomically(target / CONFIG, json.dumps(config, indent=2, allow_nan=False) + "\n")
    write_atomically(target / CARD, _card(printable(name), config))
    return target


def push_to_hub(source: object, name: str, results: str | Path | None = None, private: bool = False) -> str:
    """Upload what `save_pretrained` writes to the repository "owner/name", made if missing.

    Returns the text that loads this very commit and file: "hf:owner/name@commit#sha256". Needs the extra `hub`, and a
    token as `hf auth login` stores it.
    """
    repository, revision, digest = _parts(HUB + name.removeprefix(HUB))
    if revision or digest:
        raise ValueError(f"name = {excerpt(name)}: must be owner/name, without a revision or a sha256")
    api = _package().HfApi(library_name="linfdist", library_version=__version__)
    with tempfile.TemporaryDirectory() as work:
        folder = save_pretrained(source, Path(work) / repository.split("/")[1], results)
        digest = read_json_object(folder / CONFIG)["sha256"]
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repository, folder_path=folder, commit_message="A network of linfdist")
    return f"{HUB}{repository}@{commit.oid}#{digest}"


def fetch(source: str) -> tuple[bytes, Path]:
    """Read the network's file in a repository, and its path in the Hub's cache, where it is kept.

    The file must have the sha256 that config.json of the same commit states, and that of `source`, if it has one.
    """
    repository, revision, digest = _parts(source)
    hub = _package()
    files = {}
    for name, most in ((CONFIG, MOST_BYTES), (MODEL, MOST_MODEL_BYTES)):
        try:
            found = hub.hf_hub_download(repository, name, revision=revision, dry_run=True)
            if found.file_size is None or found.file_size > most:
                raise ValueError(f"{source}: its {name} has {found.file_size} bytes, expected at most {most:,}")
            files[name] = Path(hub.hf_hub_download(repository, name, revision=revision))
            revision = found.commit_hash  # both files are of one commit
        except OSError as error:
            why = str(error).strip().partition("\n")[0] or type(error).__name__
            raise OSError(f"{source}: {name} cannot be fetched: {printable(why)[:300]}") from None
    content = read_bytes(files[MODEL], MOST_MODEL_BYTES)
    config = read_json_object(files[CONFIG])
    if config.get("format") != FORMAT:
        raise ValueError(f"{source}: format = {excerpt(config.get('format'))} in its {CONFIG}, expected {FORMAT!r}")
    _check(content, config.get("sha256"), f"{source}: the {MODEL}", f"its {CONFIG}")
    if digest is not None:
        _check(content, digest, f"{source}: the {MODEL}", "what was asked for")
    return content, files[MODEL]


def check_folder(path: Path, content: bytes) -> None:
    """Raise ValueError if a config.json of `save_pretrained` beside the file at `path` was written for another file."""
    if (path.parent / CONFIG).is_file():
        config = read_json_object(path.parent / CONFIG)
        if config.get("format") == FORMAT:
            _check(content, config.get("sha256"), str(path), f"the {CONFIG} beside it")


def _check(content: bytes, expected: object, what: str, where: str) -> None:
    if (found := hashlib.sha256(content).hexdigest()) != expected:
        raise ValueError(f"{what} has the sha256 {found[:12]}…, but {where} says {excerpt(expected)}: fetch it again")


def _parts(source: str) -> tuple[str, str | None, str | None]:
    """Return the repository, the revision and the sha256 that a text names."""
    match = _SOURCE.fullmatch(source)
    if match is None or "--" in match[1] or ".." in match[1]:
        raise ValueError(
            f"{excerpt(source)} names no network on the Hub: write hf:owner/name, hf:owner/name@revision "
            "or hf:owner/name@revision#sha256"
        )
    return match[1], match[2], match[3]


def _package() -> ModuleType:
    try:
        return import_module("huggingface_hub")
    except ImportError as error:
        raise ImportError(
            f"networks on the Hub need the package huggingface_hub ({error}): pip install 'huggingface_hub>=2'",
            name="huggingface_hub",
        ) from None


def _content(source: object) -> tuple[bytes, str]:
    """Return the file of a network, and a name for it."""
    if isinstance(source, str | os.PathLike):
        content, path = read(source)
        return content, path.parent.resolve().name if path.name == MODEL else path.stem
    with tempfile.TemporaryDirectory() as work:
        save(source, Path(work) / MODEL)  # type: ignore[arg-type]  # it refuses what is no network
        assert isinstance(source, Network)
        return read_bytes(Path(work) / MODEL), type(source).__name__


def _of_run(run: Run, digests: set[str]) -> dict[str, Any]:
    """Return what an evaluation has measured, if it is about the network of one of these sha256."""
    run.check_evaluated()
    summary = run.summary
    if summary["model_sha256"] not in digests:
        raise ValueError(
            f"{run.folder} is an evaluation of another network: its sha256 is {summary['model_sha256'][:12]}…, "
            f"this one's is {min(digests)[:12]}…: give the file that was evaluated"
        )
    keys = ("eps", "method", "n", "clean", "certified", "mean_radius", "attacks", "domain_sha256")
    about = {"data": Path(str(summary.get("data"))).name, "split": summary.get("split", "test")}
    return about | {key: summary[key] for key in keys if key in summary}


def _of_zoo(name: str) -> dict[str, Any]:
    card = zoo.card(name)
    keys = ("data", "eps", "method", "n", "clean", "certified", "mean_radius")
    attacks = {each.attack: each.percent for each in (card.pgd20, card.strongest)}
    return {"split": "test", **{key: getattr(card, key) for key in keys}, "attacks": attacks}


def _card(name: str, config: Mapping[str, Any]) -> str:
    """Write the model card: metadata, which JSON writes since YAML contains it, and a page."""
    found = config["measured"]
    radius = printable(found["eps"]) if found else "8/255"
    head: dict[str, Any] = {"library_name": "linfdist", "tags": ["certified-robustness", "linfdist"]}
    lines = [
        f"# {name}", "", "A classifier with certified robustness to small changes of every pixel (ℓ∞-dist net).", "",
        "```python", "import linfdist as ld", "", 'network = ld.load("hf:owner/name")  # this repository',
        f'proof = ld.certify(network, images, eps="{radius}")', "```", "",
    ]  # fmt: skip
    if found:
        data, eps, method = printable(found["data"]), radius, printable(found["method"])
        rows = [("accuracy", "clean accuracy", found["clean"], nearest)]
        rows += [("accuracy", f"survive {printable(each)} at ε = {eps}", value, up)
                 for each, value in found.get("attacks", {}).items()]  # fmt: skip
        rows.append(("certified_accuracy", f"proved at ε = {eps} ({method})", found["certified"], down))
        head["pipeline_tag"] = "image-classification"
        head["model-index"] = [{"name": name, "results": [{
            "task": {"type": "image-classification"},
            "dataset": {"name": data, "type": data, "split": printable(found["split"])},
            "metrics": [{"type": kind, "name": f"{title}, %", "value": value} for kind, title, value, _ in rows],
        }]}]  # fmt: skip
        lines += [f"Measured on {found['n']:,} images of {data}, split {printable(found['split'])}:", ""]
        lines += ["| | % of images |", "|---|---|"]
        lines += [f"| {title.replace('|', '/')} | {show(written(value), 2)} |" for _, title, value, show in rows]
        lines += ["", "Proved means: no change of pixels of [0, 1] by at most ε changes the answer.", ""]
    lines += [f"sha256 of {MODEL}: `{config['sha256']}`", ""]
    yaml = (f"{key}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}" for key, value in head.items())
    return "\n".join(["---", *yaml, "---", *lines])
