"""scikit-learn's digits: 1,797 handwritten digits, 8 × 8, gray; they come with scikit-learn."""

import hashlib
from pathlib import Path

from .builtin import Builtin, Content, Corrupt, Info, Source, Unavailable

CLASSES = tuple("0123456789")
_TEST = 450  # the last ones, as the file orders them
_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"  # values, then labels, a byte each


def _bundled(work: Path) -> Content:
    import numpy as np

    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ImportError as error:
        raise Unavailable(f"scikit-learn cannot be imported ({error}): pip install scikit-learn") from error
    digits = load_digits()
    values = digits.images.astype(np.uint8)  # (1797, 8, 8), 0 ... 16
    labels = digits.target.astype(np.int64)
    found = hashlib.sha256(values.tobytes() + labels.astype(np.uint8).tobytes()).hexdigest()
    if found != _SHA256:
        raise Corrupt(f"scikit-learn's digits: sha256 is {found}, should be {_SHA256}")
    images = np.rint(values[:, None] * (255 / 16)).astype(np.uint8)
    return Content({"train": (images[:-_TEST], labels[:-_TEST]), "test": (images[-_TEST:], labels[-_TEST:])}, CLASSES)


DIGITS = Builtin(
    info=Info(
        name="digits",
        title="handwritten digits",
        shape=(1, 8, 8),
        num_classes=10,
        train=1347,
        test=_TEST,
        mean=(0.3058,),
        std=0.3754,
        licence="CC BY 4.0",
    ),
    local=lambda root: None,
    sources=(Source("scikit-learn", _bundled),),
    by_hand="pip install scikit-learn",
)
