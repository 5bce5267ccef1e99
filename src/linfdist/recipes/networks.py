"""The networks that recipes train, by the names that recipes use: all that is said of one without its layers.

To add one, write its class in `linfdist.models` and declare it here. Keys of a recipe that its constructor has an
argument for are passed on to it.
"""

from dataclasses import dataclass
from typing import Literal

Ending = Literal["plain", "head"]


@dataclass(frozen=True)
class Architecture:
    """What is declared of one network.

    place: its module in `linfdist.models`, and its class there. title: its name in tables. summary: what it is, in the
    comment beside the key `model` of a recipe. ending: what losses need to know of it. depths: the smallest and the
    largest depth that it can have; None if there is no largest one. pools: whether it takes the key `pool`.
    """

    place: tuple[str, str]
    title: str
    summary: str
    ending: Ending
    depths: tuple[int, int | None] = (1, None)
    pools: bool = True


NETWORKS: dict[str, Architecture] = {
    "dist_net": Architecture(("dist_net", "DistNet"), "ℓ∞-dist Net", "plain net", "plain", depths=(2, None)),
    "dist_net_mlp": Architecture(
        ("dist_net", "DistNetMLP"), "ℓ∞-dist Net+MLP", "net with an MLP head (Table 5)", "head"
    ),
    "conv_dist_net": Architecture(
        ("dist_net", "ConvDistNet"), "Conv ℓ∞-dist Net", "convolutional net", "plain", depths=(3, None), pools=False
    ),
    "conv_dist_net_mlp": Architecture(
        ("dist_net", "ConvDistNetMLP"),
        "Conv ℓ∞-dist Net+MLP",
        "convolutional net with an MLP head (Table 8)",
        "head",
        depths=(6, 6),
        pools=False,
    ),
}
