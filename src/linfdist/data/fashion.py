"""Fashion-MNIST: 70,000 articles of clothing, 28 × 28, gray."""

from pathlib import Path

from . import mnist
from .builtin import Builtin, Content, Info, Source, Unavailable
from .sources import apt_tree

CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")

_PACKAGE = "dataset-fashion-mnist"
_INSTALLED = "usr/share/datasets/fashion-mnist"
_MIRROR = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"


def _below(root: Path, otherwise: str) -> Content:
    files = mnist.read_folder(root / _INSTALLED)
    if files is None:
        raise Unavailable(otherwise)
    return mnist.content("fashion", files, str(root / _INSTALLED), CLASSES)


FASHION = Builtin(
    info=Info(
        name="fashion",
        title="clothing",
        shape=(1, 28, 28),
        num_classes=10,
        train=60000,
        test=10000,
        mean=(0.2860,),
        std=0.3520,
        licence="MIT",
    ),
    local=lambda root: mnist.local("fashion", ("fashion", "FashionMNIST/raw"), root, CLASSES),
    sources=(
        Source(f"installed Debian package {_PACKAGE}", lambda work: _below(Path("/"), "the package is not installed")),
        Source(
            f"Debian package {_PACKAGE}", lambda work: _below(apt_tree(_PACKAGE, work), "the package holds no data")
        ),
        Source("public mirror", lambda work: mnist.mirror("fashion", _MIRROR, work, CLASSES)),
    ),
    by_hand=mnist.BY_HAND,
)
