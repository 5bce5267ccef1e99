"""A network of distances around an image as a mixed-integer linear program."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models import PixelNet
from ..models.base import rounding_error
from ..models.folded import fold_network

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

FEASIBILITY = 1e-9  # room in each constraint, far above the rounding of its numbers; also the solver's tolerance
TOLERANCE = 1e-6  # in pixels: how closely the optimum is found


class Pieces(NamedTuple):
    """The linear pieces s (x[i] - w[i]) of each neuron of a layer, first all with s = 1, then all with s = -1."""

    low: Floats  # (O, 2 I) bounds over a box
    high: Floats  # (O, 2 I)
    keep: Flags  # (O, 2 I): those that can be the largest somewhere in the box

    @property
    def lower(self) -> Floats:
        """Bounds of the largest piece, a distance: (O,)"""
        return np.maximum(self.low.max(1), 0.0)

    @property
    def upper(self) -> Floats:
        return self.high.max(1)


@dataclass(frozen=True)
class Layer:
    """y = max_i |x[i] - weight[:, i]| + shift: (I,) -> (O,)"""

    weight: Floats
    shift: Floats

    def __call__(self, x: Floats) -> Floats:
        return np.abs(x - self.weight).max(1) + self.shift

    def pieces(self, lower: Floats, upper: Floats) -> Pieces:
        low = np.concatenate([lower - self.weight, self.weight - upper], 1)
        high = np.concatenate([upper - self.weight, self.weight - lower], 1)
        sure = low.argmax(1)  # never below the others' least, so pieces that stay below this one can go
        keep = high > low.max(1, keepdims=True)
        keep[np.arange(len(keep)), sure] = True
        return Pieces(low, high, keep)


@dataclass(frozen=True)
class Plain:
    """A network of distances in float64 and in pixels (`Folded`).

    Its largest logit is the least output of the last layer, or the least mean of the outputs of a class.
    """

    layers: list[Layer]
    crop: int | None
    error: float  # of an output: at most this far from that of the network as executed
    own_error: float  # the part of it that is due to the float64 here
    per_class: int = 1  # outputs of the last layer

    @classmethod
    def of(cls, network: PixelNet) -> "Plain":
        """Fold a network that passes `check_network`; TypeError if it does not consist of distances alone."""
        folded = fold_network(network)
        if folded.clip is not None or folded.pool:
            raise TypeError("a network that clips or pools its pixels has no form as a mixed-integer program: take box")
        layers = [Layer(double(layer.weight), np.zeros(len(layer.weight))) for layer in folded.layers]
        layers[-1] = Layer(layers[-1].weight, double(folded.offset))
        error = rounding_error(network) * folded.std
        unit = torch.finfo(network.any_tensor.dtype).eps
        own = error * 2**-50 / unit  # a few operations more, each with 2^-53
        return cls(layers, folded.crop, error + own, own, folded.per_class)

    def by_class(self, y: Floats) -> Floats:
        """Average the outputs of each class: (O,) -> (classes,)."""
        return y.reshape(-1, self.per_class).mean(1)

    def values(self, x: Floats) -> list[Floats]:
        """Compute the output of each layer for pixels x (I,)."""
        outputs = [x]
        for layer in self.layers:
            outputs.append(layer(outputs[-1]))
        return outputs[1:]

    def bounds(self, lower: Floats, upper: Floats) -> list[Pieces]:
        """Return the pieces of each layer, with their bounds over a box of pixels."""
        found = []
        for layer in self.layers:
            found.append(layer.pieces(lower, upper))
            lower, upper = found[-1].lower + layer.shift, found[-1].upper + layer.shift
        return found

    def neurons(self, label: int) -> range:
        """Return the outputs of the last layer that belong to a class."""
        return range(label * self.per_class, (label + 1) * self.per_class)

    def near(self, x: Floats, reach: float) -> list[Pieces]:
        """Do the same as `bounds` over the ball around x (I,) within [0, 1]."""
        return self.bounds(*ball(x, reach))

    def count_binaries(self) -> int:
        """Count the binary variables of a program over all images and classes; around one image there are far fewer."""
        pixels = self.layers[0].weight.shape[1]
        kept = [pieces.keep.sum(1) for pieces in self.bounds(np.zeros(pixels), np.ones(pixels))]
        return int(sum(count[count > 1].sum() for count in kept))


def ball(x: Floats, reach: float) -> tuple[Floats, Floats]:
    """Bound all pixels within `reach` of x and within [0, 1]."""
    return np.maximum(x - reach, 0.0), np.minimum(x + reach, 1.0)


def double(tensor: Tensor) -> Floats:
    return tensor.detach().double().cpu().numpy()


class Program:
    """Minimise the radius r <= reach at which the output of class `rival` is at most that of `prediction`, + slack.

    An output is y = max over pieces of s (x - w), + shift. The lower constraint, y is at least each piece, is linear;
    the upper one, y is at most one of them, needs a binary variable for each piece that can be the largest in the ball.
    Either is left out where a y too small (too large) could not help the rival. |y - y(image)| <= r, since layers are
    1-Lipschitz, makes the linear relaxation as tight as the margin. Columns hold differences of pixels and outputs from
    those of the image, so they and all constants are small, whatever the size of the weights.
    """

    def __init__(self, net: Plain, x: Floats, prediction: int, rival: int, reach: float, slack: float) -> None:
        self.slack = slack
        self.lower, self.upper = [0.0], [reach]  # of the columns; column 0 is r
        self.binaries: list[int] = []
        self.rows: list[dict[int, float]] = []  # coefficients of columns, whose sum is at most
        self.limits: list[float] = []  # this
        bounds, values = net.near(x, reach), x
        wanted = _wanted(bounds, net.neurons(prediction), net.neurons(rival))
        low, high = ball(x, reach)
        self.pixels = {i: self.near(low[i] - values[i], high[i] - values[i]) for i in wanted[0].either()}
        inputs = self.pixels
        for layer, pieces, flags, new in zip(net.layers, bounds, wanted[1:], net.values(x), strict=True):
            outputs = {}
            here = np.concatenate([values - layer.weight, layer.weight - values], 1)  # (O, 2 I) the pieces at the image
            offset = layer.shift - new  # (O,)
            for k in flags.either():
                y = outputs[k] = self.near(pieces.lower[k] + offset[k], pieces.upper[k] + offset[k])
                kept = np.flatnonzero(pieces.keep[k]).tolist()
                terms = [
                    (inputs[m % len(values)], 1.0 if m < len(values) else -1.0, here[k, m] + offset[k]) for m in kept
                ]
                if flags.least[k]:
                    for source, sign, constant in terms:
                        self.add({source: sign, y: -1.0}, -constant)
                if flags.most[k]:
                    self.at_most_one(y, terms, pieces.low[k, kept] + offset[k], pieces.high[k, kept] + offset[k])
            inputs, values = outputs, new
        means, share = net.by_class(values), 1.0 / net.per_class
        self.gap = float(means[prediction] - means[rival])
        own, others = (net.neurons(each) for each in (prediction, rival))
        self.add(
            {inputs[j]: share for j in others} | {inputs[j]: -share for j in own}, self.gap + slack
        )  # the last row

    def column(self, low: float, high: float) -> int:
        self.lower.append(low)
        self.upper.append(high)
        return len(self.lower) - 1

    def near(self, low: float, high: float) -> int:
        """Add a column that lies between these bounds, widened for rounding, and between -r and r."""
        column = self.column(low - FEASIBILITY, high + FEASIBILITY)
        self.add({column: 1.0, 0: -1.0}, 0.0)
        self.add({column: -1.0, 0: -1.0}, 0.0)
        return column

    def add(self, row: dict[int, float], limit: float) -> None:
        self.rows.append(row)
        self.limits.append(limit + FEASIBILITY)

    def at_most_one(self, y: int, terms: list[tuple[int, float, float]], low: Floats, high: Floats) -> None:
        """Require y <= sign * source + constant for one of the terms, chosen by the binary variables."""
        choice = [self.column(0.0, 1.0) for _ in terms] if len(terms) > 1 else []
        self.binaries += choice
        for sign in (1.0, -1.0) if choice else ():  # exactly one is chosen
            self.add(dict.fromkeys(choice, sign), sign)
        for m, (source, sign, constant) in enumerate(terms):
            others = {each: low[m] - high[n] for n, each in enumerate(choice) if n != m}  # one chosen: y <= high[n]
            self.add({y: 1.0, source: -sign, **others}, constant)


class _Wanted(NamedTuple):
    least: Flags  # outputs that must be at least each of their pieces, lest the rival gain by smaller ones
    most: Flags  # outputs that must be at most one of their pieces, lest it gain by larger ones

    def either(self) -> list[int]:
        return np.flatnonzero(self.least | self.most).tolist()


def _wanted(bounds: list[Pieces], own: range, others: range) -> list[_Wanted]:
    """Decide which outputs to bound from which side: one entry for the pixels, then one for each layer.

    own, others: the outputs of the last layer that belong to the prediction, and to its rival.
    """
    last = np.arange(len(bounds[-1].keep))
    found = [_Wanted(np.isin(last, others), np.isin(last, own))]
    for pieces in reversed(bounds):
        (least, most), (plus, minus) = found[0], np.split(pieces.keep, 2, axis=1)
        smaller = np.logical_or.reduce(np.concatenate([plus[least], minus[most]]))
        larger = np.logical_or.reduce(np.concatenate([minus[least], plus[most]]))
        found.insert(0, _Wanted(smaller, larger))
    return found
