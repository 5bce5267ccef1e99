"""TinyImageNet: 110,000 labelled photographs of 200 kinds of thing, 64 × 64, RGB.

For non-commercial research only. The test split is the labelled val split; the unlabelled one is not used.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .builtin import Builtin, Content, Corrupt, Info, Pixels, Source
from .sources import download, members, progress, read_file

_FOLDER = "tiny-imagenet-200"
_ARCHIVES = (f"{_FOLDER}.zip", f"{_FOLDER}.tar.xz", f"{_FOLDER}-trainval.tar.xz", f"{_FOLDER}.tar.gz")
_PUBLIC = f"http://cs231n.stanford.edu/{_FOLDER}.zip"
_PUBLIC_LIMIT = 300_000_000
_FILE_LIMIT = 10_000_000  # words.txt is the largest
_CLASSES, _TRAIN_A_CLASS, _TEST = 200, 500, 10000

# Of every JPEG's class, number and sha256, in the order of `_records`: the files count, not how they were packed.
SUMS = {
    "train": "64f8d4b09dec03ff4809625cb8645a4cddd976ccf16ff168cee7645d9df802df",
    "test": "d322fedf3a5c3d1e6be2e5173087832cfe5e54b0c55401a28fb9eacbcb79b769",
}

_TRAIN_NAME = re.compile(r"train/(n\d{8})/images/n\d{8}_(\d+)\.JPEG")
_TEST_NAME = re.compile(r"val/images/val_(\d+)\.JPEG")
_LISTS = ("val/val_annotations.txt", "words.txt")

Record = tuple[str, int, bytes]  # class, number, JPEG


def content(files: dict[str, bytes], where: str) -> Content:
    """Verify the files, named relative to the top folder, and decode them."""
    import numpy as np

    wnids = sorted({match[1] for name in files if (match := _TRAIN_NAME.fullmatch(name))})
    records = _records(files, where)
    splits = {}
    for split, found in records.items():
        digest = fingerprint(found)
        if digest != SUMS[split]:
            raise Corrupt(
                f"{where}: the {len(found)} {split} images are not TinyImageNet's "
                f"(fingerprint {digest}, should be {SUMS[split]}): incomplete or changed"
            )
        labels = np.array([wnids.index(wnid) for wnid, _, _ in found], np.int64)
        splits[split] = (_decode_all([jpeg for _, _, jpeg in found], f"{where}, {split}"), labels)
    return Content(splits, _class_names(wnids, files.get("words.txt", b"")))


def fingerprint(records: Iterable[Record]) -> str:
    digest = hashlib.sha256()
    for wnid, number, jpeg in records:
        digest.update(f"{wnid} {number} {hashlib.sha256(jpeg).hexdigest()}\n".encode())
    return digest.hexdigest()


def _records(files: dict[str, bytes], where: str) -> dict[str, list[Record]]:
    """Sort the training images by class and number, the test images by number."""
    annotations = files.get("val/val_annotations.txt")
    if annotations is None:
        raise Corrupt(f"{where} lacks val/val_annotations.txt")
    rows = [line.split("\t") for line in annotations.decode("ascii", "replace").splitlines()]
    class_of = {row[0]: row[1] for row in rows if len(row) > 1}
    train: list[Record] = []
    test: list[Record] = []
    for name, data in files.items():
        if match := _TRAIN_NAME.fullmatch(name):
            train.append((match[1], int(match[2]), data))
        elif match := _TEST_NAME.fullmatch(name):
            test.append((class_of.get(f"val_{match[1]}.JPEG", ""), int(match[1]), data))
    return {
        "train": sorted(train, key=lambda record: record[:2]),
        "test": sorted(test, key=lambda record: record[1]),
    }


def _decode_all(jpegs: list[bytes], where: str) -> Pixels:
    import numpy as np

    from .images import decode, warnings_refused

    images = np.empty((len(jpegs), 3, 64, 64), np.uint8)

    def work(start: int, stop: int) -> int:
        for number in range(start, stop):
            images[number] = decode(jpegs[number], f"{where}, image {number}", 3)
        return stop - start

    block = 500
    starts = range(0, len(jpegs), block)
    with (
        warnings_refused(),
        ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,
        progress("decode TinyImageNet", len(jpegs)) as advance,
    ):
        for done in pool.map(work, starts, [min(start + block, len(jpegs)) for start in starts]):
            advance(done)
    return images


def _class_names(wnids: list[str], words: bytes) -> tuple[str, ...]:
    """Take the first name that WordNet gives, and the id where there is none or where two classes share it."""
    rows = (line.partition("\t") for line in words.decode("utf-8", "replace").splitlines())
    names = {wnid: text.split(",")[0].strip() for wnid, _, text in rows}
    chosen = [names.get(wnid) or wnid for wnid in wnids]
    return tuple(
        f"{name} ({wnid})" if chosen.count(name) > 1 else name for name, wnid in zip(chosen, wnids, strict=True)
    )


def _wanted(name: str) -> bool:
    return name in _LISTS or bool(_TRAIN_NAME.fullmatch(name) or _TEST_NAME.fullmatch(name))


def _from_archive(archive: Path) -> Content:
    top = f"{_FOLDER}/"
    files = {}
    with progress(f"read {archive.name}", _CLASSES * _TRAIN_A_CLASS + _TEST + len(_LISTS)) as advance:
        for name, data in members(
            archive, lambda name: name.startswith(top) and _wanted(name[len(top) :]), _FILE_LIMIT
        ):
            files[name[len(top) :]] = data
            advance(1)
    return content(files, str(archive))


def _from_folder(folder: Path) -> Content:
    files = {}
    paths = (
        *folder.glob("train/*/images/*.JPEG"),
        *folder.glob("val/images/*.JPEG"),
        *(folder / name for name in _LISTS),
    )
    with progress(f"read {folder.name}", len(paths)) as advance:
        for path in paths:
            name = path.relative_to(folder).as_posix()
            if path.is_file() and _wanted(name):
                files[name] = read_file(path, _FILE_LIMIT)
            advance(1)
    return content(files, str(folder))


def _local(root: Path) -> Content | None:
    for base in (root, root / "tinyimagenet"):
        if (base / _FOLDER).is_dir():
            return _from_folder(base / _FOLDER)
        for name in _ARCHIVES:
            if (base / name).is_file():
                return _from_archive(base / name)
    return None


TINY_IMAGENET = Builtin(
    info=Info(
        name="tinyimagenet",
        title="photographs",
        shape=(3, 64, 64),
        num_classes=_CLASSES,
        train=_CLASSES * _TRAIN_A_CLASS,
        test=_TEST,
        mean=(0.4802, 0.4481, 0.3975),
        std=0.2276,
        licence="non-commercial research only",
    ),
    local=_local,
    sources=(Source("public archive", lambda work: _from_archive(download(_PUBLIC, _PUBLIC_LIMIT, work))),),
    by_hand=f"put {_FOLDER}.zip, or the folder {_FOLDER} that is in it, into {{folder}}",
)
