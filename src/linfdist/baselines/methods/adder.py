"""Networks of ℓ1 and ℓ2 distances, trained without any defence (Remark 3.5 and Appendix C of the paper)."""

from typing import Any

from ..adder_net import AdderNet
from ..networks import depth_and_width
from .natural import Natural


class Adder(Natural):
    """The cross-entropy of a network of ℓ1 distances: neurons much like those of ℓ∞-dist nets, without proofs."""

    name = "l1-dist"
    title = "ℓ1-dist net"
    source = "Chen et al., 2020"
    certified_by = ("box",)
    settings = tuple({"lr": lr} for lr in (0.03, 0.01, 0.1))
    kind = AdderNet
    norm = 1

    def layers(self, size: str, width: float) -> dict[str, Any]:
        """As many hidden layers as `sized` has of either kind, each of 512 · width neurons."""
        return {"hidden": depth_and_width(size, width), "norm": self.norm}


class Euclidean(Adder):
    """The same with ℓ2 distances."""

    name = "l2-dist"
    title = "ℓ2-dist net"
    source = "Wang et al., 2019"
    norm = 2
