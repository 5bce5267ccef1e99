"""What integers gain: `python -m benchmarks.exact NETWORK`."""

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console, Group, RenderableType
from rich.table import Table
from torch import Tensor

import linfdist as ld
from linfdist import data, exact, zoo
from linfdist.certificates.proofs import rows_at_once
from linfdist.exact.freeze import to_grid
from linfdist.exact.network import FrozenLayer
from linfdist.experiments.bench.races import undisturbed
from linfdist.models import PixelNet
from linfdist.ops.dist import dist
from linfdist.ops.exact import dense

from . import Ratio, gain, parse, parser, seconds_by_turn

SIDE, ROWS = 512, 2048  # of the layer with nothing to prune
RANGE = 2**14  # its values lie within ±RANGE, so that all differences fit int16
SINGLE = 20  # images per turn, one at a time
SMALLER = 8.0  # times, the file


@dataclass(frozen=True)
class Gains:
    """`kept`: share of the weights; bytes: of all tensors in float32, and of the exact file."""

    images: int
    kept: float
    speeds: list[Ratio]
    float_bytes: int
    exact_bytes: int


@torch.no_grad()
def measure(network: PixelNet, images: Tensor, turns: int = 15) -> Gains:
    """Measure the network and its frozen form on images uint8 (N, C, H, W), on this machine's threads.

    The float network gets pixels that are floats already, in chunks or all at once, whichever is faster here. Its
    engine leaves out weights, those that cannot matter to the batch at hand, and looks for them in every call. So does
    the dense integer kernel; pruned means that what no image can need is gone beforehand.
    """
    frozen, levels = exact.freeze(network), exact.freeze(network, k=0)
    unpruned = _unpruned(network, frozen)
    pixels = images.float() / 255
    alone = range(0, len(images), -(-len(images) // SINGLE))
    chunk = rows_at_once(network)
    coarse = f"{'8 bits' if levels.in_bytes else 'coarsest'} (k = 0), pruned"  # of means of blocks, 8 bits hold too few
    x, w = (torch.randint(-RANGE, RANGE, (rows, SIDE), dtype=torch.int16) for rows in (ROWS, SIDE))
    across, nothing = x.T.contiguous(), torch.zeros(SIDE, dtype=torch.int32)
    wide, weight = x.float(), w.float()
    in_chunks, at_once = f"float32, {chunk} at a time", "float32, all at once"
    with undisturbed():
        many = seconds_by_turn(
            {
                in_chunks: lambda: [network(part) for part in pixels.split(chunk)],
                at_once: lambda: network(pixels),
                "int16, dense": lambda: _dense(unpruned, frozen, images),
                "int16, pruned": lambda: frozen(images),
                coarse: lambda: levels(images),
            },
            turns,
        )
        layer = seconds_by_turn(
            {"float32": lambda: dist(wide, weight), "int16": lambda: dense(across, w, nothing)}, turns
        )
        single = seconds_by_turn(
            {
                "float32": lambda: [network(pixels[k : k + 1]) for k in alone],
                "exact": lambda: [frozen(images[k : k + 1]) for k in alone],
            },
            turns,
        )
    fastest = min(in_chunks, at_once, key=lambda name: statistics.median(many[name]))
    one = {f"{name}, one image": [seconds / len(alone) for seconds in each] for name, each in single.items()}
    bare = {f"{name}, a {SIDE} x {SIDE} layer, nothing to prune": each for name, each in layer.items()}
    facts, plain = frozen.facts, frozen.head is None  # a head, which stays in floats, has no targets
    return Gains(
        images=len(images),
        kept=facts["kept"] / facts["weights"],
        speeds=[
            gain(many, fastest, fastest, None),
            gain(many, "int16, dense", fastest, 1.7 if plain else None),
            gain(many, "int16, pruned", fastest, 5.0 if plain else None),
            gain(many, coarse, fastest, None),
            *(gain(bare, name, next(iter(bare)), target) for name, target in zip(bare, (None, 1.7), strict=True)),
            *(gain(one, name, next(iter(one)), None) for name in one),
        ],
        float_bytes=sum(tensor.numel() * tensor.element_size() for tensor in network.state_dict().values()),
        exact_bytes=_file_size(frozen),
    )


def _unpruned(network: PixelNet, frozen: exact.FrozenNet) -> list[FrozenLayer]:
    """All weights and neurons of the network, on the same grid."""
    low, high = (frozen.stem(bound[None])[0].long() for bound in (frozen.lower, frozen.upper))
    layers: list[FrozenLayer] = []
    for weight, bias in to_grid(network, frozen.stem)[0]:
        layers.append(FrozenLayer.fitting(weight, torch.ones_like(weight, dtype=torch.bool), bias, low, high))
        low, high = layers[-1].range
    return layers


def _dense(layers: list[FrozenLayer], frozen: exact.FrozenNet, images: Tensor) -> Tensor:
    """Compute the same logits with the dense integer kernel.

    The kernel leaves out what cannot matter to these images, as the float engine does.
    """
    x = frozen.stem(images).T.contiguous()  # (I, B)
    for layer in layers:
        x = dense(x.to(layer.weight.dtype), layer.weight, layer.bias)
    features = x.T.to(torch.int32).contiguous()
    return -frozen.summed(features) if frozen.head is None else frozen.head(features)


def _file_size(frozen: exact.FrozenNet) -> int:
    with tempfile.TemporaryDirectory() as folder:
        exact.save(frozen, Path(folder) / "exact.safetensors")
        return (Path(folder) / "exact.safetensors").stat().st_size


def terminal(gains: Gains, title: str) -> RenderableType:
    """Lay out the speeds as a table, with a line about the sizes."""
    table = Table(title=f"exact: {title}, {gains.images:,} images, {torch.get_num_threads()} threads")
    table.add_column("what")
    for heading in ("time", "times faster", "at least"):
        table.add_column(heading, justify="right")
    for speed in gains.speeds:
        target = "" if speed.target is None else f"{speed.target:g}"
        ratio = "" if speed.what == speed.over else f"{speed.ratio:.2f}"
        table.add_row(speed.what, f"{speed.milliseconds:.3f} ms", ratio, target)
    return Group(
        table,
        f"weights kept: {100 * gains.kept:.1f} %. File: {gains.exact_bytes:,} bytes, "
        f"{gains.float_bytes / gains.exact_bytes:.1f} times smaller than {gains.float_bytes:,} (at least {SMALLER:g})",
    )


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("network", choices=zoo.names(), help="of the zoo; on the test images of its data set")
    given = parse(options)
    name = zoo.card(given.network).data
    network = ld.load(given.network)
    if not isinstance(network, PixelNet):
        options.error(f"{given.network} is not a float network")
    gains = measure(network, data.load(name, split="test").images, turns=5 if given.quick else 15)
    Console().print(terminal(gains, f"{given.network}, {name} test"))
