"""What freezing did to a network: its accuracy before and after."""

from dataclasses import dataclass, replace

from torch import Tensor

from ..certificates import certify
from ..data import Dataset
from ..eps import Eps, as_text, parse_eps
from ..models import PixelNet
from .certificate import box_certified_at, certified_at
from .network import FrozenNet

BATCH = 1000


@dataclass(frozen=True)
class Comparison:
    """How many of n images are right (clean), and also proved at eps (certified): float, then exact.

    By `method`: the margin, or boxes where there is a head. The float network's boxes take the better of IBP and CROWN
    through the head, the frozen one's IBP alone.
    """

    method: str
    n: int
    clean: tuple[int, int]
    certified: tuple[int, int]


def compare(network: PixelNet, frozen: FrozenNet, images: Tensor, labels: Tensor, eps: Eps) -> Comparison:
    """Both networks on images uint8 (N, C, H, W). Both proofs are about the closed eps-ball of real images."""
    if not len(images):
        raise ValueError("there are no images to compare the networks on")
    radius = parse_eps(eps)
    method = "margin" if frozen.head is None else "box"
    clean, certified = [0, 0], [0, 0]
    for start in range(0, len(images), BATCH):
        x, y = images[start : start + BATCH], labels[start : start + BATCH]
        proof = certify(network, x.float() / 255, radius, y, method=method, radii=False)
        assert proof.certified is not None
        logits = frozen(x)
        best = logits.argmax(1)
        right = best == y
        proved = (
            certified_at(frozen, logits, radius) if frozen.head is None else box_certified_at(frozen, x, best, radius)
        )
        clean[0] += int((proof.prediction == y).sum())
        clean[1] += int(right.sum())
        certified[0] += int(proof.certified.sum())
        certified[1] += int((proved & right).sum())
    return Comparison(method, len(images), (clean[0], clean[1]), (certified[0], certified[1]))


def with_accuracy(
    frozen: FrozenNet, network: PixelNet, test: Dataset, eps: Eps, limit: int | None = None
) -> tuple[FrozenNet, Comparison]:
    """Compare a frozen network with the one it was made from on (the first `limit`) test images; its facts keep it."""
    part = slice(0, limit)
    compared = compare(network, frozen, test.images[part], test.labels[part], eps)
    measured = {
        "data": test.name,
        "split": "test",
        "n": compared.n,
        "eps": as_text(eps),
        "clean": 100 * compared.clean[1] / compared.n,
        "certified": 100 * compared.certified[1] / compared.n,
        "float_clean": 100 * compared.clean[0] / compared.n,
        "float_certified": 100 * compared.certified[0] / compared.n,
    }
    return replace(frozen, facts={**frozen.facts, "accuracy": measured}), compared
