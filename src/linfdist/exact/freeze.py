"""Convert a trained network to integers, and measure what that does to its accuracy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from ..certificates import certify
from ..certificates.checks import check_network
from ..data import Dataset
from ..eps import Eps, as_text, parse_eps, round_up
from ..models import PixelNet
from ..models.base import rounding_error
from ..models.folded import Folded, fold_network
from .bounds import INT32, prune
from .certificate import box_certified_at, certified_at
from .fold import fold_head, head_distance
from .network import FrozenLayer, FrozenNet
from .stem import LEVELS, MAX_K, Pool, Stem

Domain = tuple[Tensor, Tensor]
FINEST = 64  # steps a level: finer grids gain nothing that could be measured
COARSEST = 4  # below, rounding could be seen in the accuracy: better some layers in int32
ELSE = 16  # the grid then


@torch.no_grad()
def freeze(
    network: PixelNet,
    k: int | None = None,
    domain: Domain | None = None,
    facts: Mapping[str, Any] | None = None,
) -> FrozenNet:
    """Return the integer network nearest to `network`, pruned without loss, for 8-bit images.

    The network is scaled by its std, which makes it a dist net in pixels, and every weight is rounded to the grid of
    1/(255 · 2^k) pixels: once per layer, and the last bias once. Means, shifts and hidden biases need no rounding of
    their own, since |y - mean - w| = |y - (w + mean)|: they go into the weights that follow. The bounds of pixels that
    are clipped are rounded too. Where means of blocks come first, the grid is finer by the smallest factor that makes
    all of them whole numbers: 64 for blocks of 2, 4 and 8. The neurons of a class are added up, which is exact. A head
    stays as it is, in float64, with the grid's unit and the last shift in its own first layer: see `FrozenHead`.

    k: None takes the finest grid of 64 to 4 steps a level for which int16 provably holds every value; if there is none,
    a grid of 16 steps (or as near to that as the blocks allow), with int32 where needed. A given k takes int32 where
    needed. domain: two uint8 images (C, H, W), the least and the largest value of each pixel; None means every image.
    facts: plain JSON that is kept in the file.

    `facts["distance"]` of the result bounds, for all images of the domain, how far a logit of `network` times its std
    is from this network's, in pixels; with a head, how far the logits of both are apart as executed. Raises TypeError
    for networks with layers that have no integer form, such as convolutions.
    """
    _check(network)
    lower, upper = _domain(domain, network.shape)
    folded = fold_network(network, network.readout.lipschitz is not None)

    def at(k: int) -> FrozenNet:
        return _at(network, folded, _stem(folded, k), (lower, upper), facts or {})

    if k is not None:
        return at(k)
    steps = {each: _stem(folded, 0).steps * 2**each for each in range(MAX_K, -1, -1)}
    for finer in (each for each in steps if COARSEST <= steps[each] <= FINEST):
        frozen = at(finer)
        if all(layer.weight.dtype == torch.int16 for layer in frozen.layers):
            return frozen
    return at(next((each for each in steps if steps[each] <= ELSE), 0))


def _at(network: PixelNet, folded: Folded, stem: Stem, domain: Domain, facts: Mapping[str, Any]) -> FrozenNet:
    units = LEVELS * stem.steps
    rounded, moved = _to_grid(network, folded, stem)
    low, high = (stem(bound[None])[0].long() for bound in domain)
    layers: list[FrozenLayer] = []
    for entries in prune(rounded, low, high):
        layers.append(FrozenLayer.fitting(entries.weight, entries.mask, entries.bias, low, high))
        low, high = layers[-1].range
    away, head = _distance(network, folded.std, units, moved), None
    if network.readout.lipschitz is not None:
        distance = round_up(away)
    else:
        scale, shift = units * folded.std, folded.offset / folded.std  # off by 2^-53 of it; by 2^-50 size at most
        head = fold_head(network.readout, scale, shift)
        away = (away + Fraction(folded.size) * Fraction(2) ** -50) / Fraction(folded.std)
        distance = head_distance(network.readout, head, scale, shift, (low, high), away)
    made = {
        **facts,
        "std": folded.std,
        "distance": distance,
        "weights": sum(weight.numel() for weight, _ in rounded),
        "kept": sum(int(layer.mask.sum()) for layer in layers),
        "neurons": sum(len(bias) for _, bias in rounded),
        "neurons_kept": sum(len(layer.bias) for layer in layers),
    }
    return FrozenNet(network.shape, stem, *domain, tuple(layers), made, head, folded.per_class)


def _stem(folded: Folded, k: int) -> Stem:
    """Build the stem, with pixels on the grid of 2^k steps a level."""
    clip = None if folded.clip is None else _whole_clip(folded.clip, k)[0]
    return Stem(k, folded.crop, clip, Pool.of(folded.pool) if folded.pool else None)


@torch.no_grad()
def to_grid(network: PixelNet, stem: Stem) -> tuple[list[tuple[Tensor, Tensor]], Fraction]:
    """Round weights (O, I) and biases (O,) to whole units of the stem's grid, int64.

    Returns them, and a bound in such units of how far rounding, that of the stem's clipping included, can move an
    output or the mean of the outputs of a class. Biases are 0, except those of the last layer where it gives the
    logits.
    """
    return _to_grid(network, fold_network(network, network.readout.lipschitz is not None), stem)


def _to_grid(network: PixelNet, folded: Folded, stem: Stem) -> tuple[list[tuple[Tensor, Tensor]], Fraction]:
    units, rounded, moved = LEVELS * stem.steps, [], Fraction(0)
    if folded.clip is not None:
        moved = _whole_clip(folded.clip, stem.k)[1] * stem.steps / 2**stem.k
    for layer in folded.layers:
        weight, error = _whole(layer.weight, units, layer.size)
        rounded.append((weight, torch.zeros(len(weight), dtype=torch.int64)))
        moved += error
    if network.readout.lipschitz is not None:
        bias, error = _whole(folded.offset, units, folded.size)
        rounded[-1] = (rounded[-1][0], bias)
        moved += error
    return rounded, moved


def _whole_clip(clip: tuple[float, float], k: int) -> tuple[tuple[int, int], Fraction]:
    """Round the ends of clipped pixels to whole steps; also return a bound of how far a pixel moves."""
    exact = [Fraction(end) * LEVELS * 2**k for end in clip]
    low, high = (min(round(end), LEVELS << k) for end in exact)
    return (low, high), max(abs(low - exact[0]), abs(high - exact[1])) + Fraction(2) ** -40


def _whole(values: Tensor, units: int, size: float) -> tuple[Tensor, Fraction]:
    """Round values in pixels to whole units; return also a bound of |result - exact value|, in units.

    values: float64, sums of at most three terms, one of them at most `size`. The bound covers what was rounded away,
    and the rounding of float64.
    """
    scaled = values * units
    largest = float(scaled.abs().max())
    if not largest <= INT32:  # NaN too
        raise ValueError(f"weights of {largest / units} pixels are too large for 32 bits, or not finite")
    whole = scaled.round()
    unseen = (largest + 3 * size * units) * 2**-48
    return whole.long(), Fraction(float((scaled - whole).abs().max())) + Fraction(unseen)


def _distance(network: PixelNet, std: float, units: int, moved: Fraction) -> Fraction:
    """Bound the distance of a logit, in pixels, from the float32 network's as executed, times std.

    If there is a head, the bound is that of a feature instead. The layers are 1-Lipschitz, so the roundings of all
    layers add up and are not amplified. The float network adds its own rounding, and that of the pixel n/255 as a
    float32.
    """
    own = rounding_error(network)
    if not math.isfinite(own):
        raise ValueError("the float network could overflow, so nothing can be said about its distance")
    return moved / units + Fraction(std) * Fraction(own) + Fraction(2) ** -24


def _check(network: PixelNet) -> None:
    if not isinstance(network, PixelNet):
        raise TypeError(f"only networks of linfdist.models can be frozen to integers, not {type(network).__name__}")
    check_network(network)
    for name, tensor in network.state_dict().items():
        if tensor.dtype != torch.float32:
            raise TypeError(f"only float32 networks can be frozen, {name} is {tensor.dtype}")


def _domain(domain: Domain | None, shape: tuple[int, int, int]) -> Domain:
    if domain is None:
        return torch.zeros(shape, dtype=torch.uint8), torch.full(shape, 255, dtype=torch.uint8)
    for name, bound in zip(("least", "largest"), domain, strict=True):
        if bound.dtype != torch.uint8 or tuple(bound.shape) != shape:
            raise ValueError(
                f"the {name} image of the domain must be uint8 {shape}, got {bound.dtype} {tuple(bound.shape)}"
            )
    if (domain[0] > domain[1]).any():
        raise ValueError("the domain is empty: somewhere its least value is above its largest")
    return domain[0].contiguous(), domain[1].contiguous()


BATCH = 1000


@dataclass(frozen=True)
class Comparison:
    """How many of n images are correct (clean), and also certified at eps: float network, then exact network.

    By `method`: the margin, or boxes where there is a head. The float network's boxes take the better of IBP and CROWN
    through the head, the frozen one's IBP alone.
    """

    method: str
    n: int
    clean: tuple[int, int]
    certified: tuple[int, int]


def compare(network: PixelNet, frozen: FrozenNet, images: Tensor, labels: Tensor, eps: Eps) -> Comparison:
    """Evaluate both networks on images uint8 (N, C, H, W). Both proofs are about the closed eps-ball of real images."""
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
    """Compare a frozen network with its original on the (first `limit`) test images; store the result in its facts."""
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
