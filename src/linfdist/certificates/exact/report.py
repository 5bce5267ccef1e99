"""What freezing did to a network: its accuracy before and after."""

from dataclasses import dataclass
from fractions import Fraction

from torch import Tensor

from ...models import DistNet
from ..certificate import certify
from .certificate import certified_at
from .network import FrozenNet

BATCH = 1000


@dataclass(frozen=True)
class Comparison:
    """How many of n images are right (clean), and also proved at eps by the margin (certified): float, then exact."""

    n: int
    clean: tuple[int, int]
    certified: tuple[int, int]


def compare(network: DistNet, frozen: FrozenNet, images: Tensor, labels: Tensor, eps: Fraction) -> Comparison:
    """Both networks on images uint8 (N, C, H, W). Both margins are about the closed eps-ball of real images."""
    if not len(images):
        raise ValueError("there are no images to compare the networks on")
    clean, certified = [0, 0], [0, 0]
    for start in range(0, len(images), BATCH):
        x, y = images[start : start + BATCH], labels[start : start + BATCH]
        proof = certify(network, x.float() / 255, eps, y, method="margin", radii=False)
        assert proof.certified is not None
        logits = frozen(x)
        right = logits.argmax(1) == y
        clean[0] += int((proof.prediction == y).sum())
        clean[1] += int(right.sum())
        certified[0] += int(proof.certified.sum())
        certified[1] += int((certified_at(frozen, logits, eps) & right).sum())
    return Comparison(len(images), (clean[0], clean[1]), (certified[0], certified[1]))
