"""What one image costs: `python -m benchmarks.latency NETWORK...`, in processor time, beside forward passes."""

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from linfdist import certify, data, load, zoo
from linfdist.certificates import Certifier

from . import parse, parser

NETWORKS = ("mnist-0.3", "cifar10-8_255", "cifar10-8_255-mean", "tinyimagenet-1_255", "mnist-0.3-mlp")
HEADINGS = ("network", "forward", "certify", "Certifier, ε alone", "Certifier", "ratio", "first call, more")


def milliseconds(run: Callable[[], object]) -> float:
    """Return the processor time of one run."""
    start = time.process_time()
    run()
    return 1e3 * (time.process_time() - start)


def measure(name: str, images: int) -> list[str]:
    """Return the row of a network of the zoo: medians over as many test images, each of which takes its turn with all.

    ratio: the median of the ratios of `Certifier` to the forward pass of the same image.
    """
    network, card = load(name), zoo.card(name)
    x = network.from_bytes(data.load(card.data, split="test").images[: images + 1])
    certifier, eps = Certifier(network), card.eps
    first = milliseconds(lambda: certifier(x[:1], eps))
    turns = []
    for one in x[1:].split(1):
        with torch.no_grad():
            forward = milliseconds(partial(network, one))
        runs = (
            partial(certify, network, one, eps),
            partial(certifier, one, eps, radii=False),
            partial(certifier, one, eps),
        )
        turns.append([forward, *map(milliseconds, runs)])
    medians = [statistics.median(column) for column in zip(*turns, strict=True)]
    ratio = statistics.median(turn[3] / turn[0] for turn in turns)
    return [name, *(f"{each:.2f}" for each in medians), f"{ratio:.1f}", f"{first - medians[3]:.1f}"]


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    given = parse(options)
    print(f"| {' | '.join(HEADINGS)} |\n|---{'|--:' * (len(HEADINGS) - 1)}|")
    for network in given.networks:
        print(f"| {' | '.join(measure(network, 10 if given.quick else 60))} |")
