"""Lemmas A.7 and A.8: a dist net is a ReLU network, neuron by neuron."""

import warnings
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ..certificates.checks import check_network
from ..eps import round_up
from ..exact import FrozenNet
from ..models import Network, PixelNet
from ..models.base import rounding_error
from ..models.folded import Folded, fold_network
from ..nn import CenterCrop

UNIT = Fraction(1, 2**53)  # of float64
WHOLE = 2**53  # float64 holds all whole numbers up to here
OPERATIONS = 8  # roundings, each of a number of at most twice the layer's size, from one level of a tree to the next


@dataclass(frozen=True, eq=False)
class Affine:
    """h -> weight h + bias: weight (O, I), sparse (COO) and coalesced; bias (O,); both float64."""

    weight: Tensor
    bias: Tensor

    @cached_property
    def transposed(self) -> Tensor:
        return self.weight.t().coalesce()

    @cached_property
    def size(self) -> Tensor:
        """|weight|"""
        return self.weight.abs()

    def __call__(self, h: Tensor) -> Tensor:
        """(I, B) -> (O, B)"""
        return torch.sparse.mm(self.weight, h) + self.bias[:, None]


@dataclass(frozen=True, eq=False)
class ReluNet:
    """logits = A_D ReLU(A_{D−1} ... ReLU(A_1 x)), x being the pixels (C·H·W), after the crop if there is one.

    layers: the affine maps A_1 ... A_D, in float64; shape: (C, H, W) of the images; crop: the side of the centre crop,
    or None; white: the value of a white pixel: 1, or 255 for an exact network; error: how far a logit, as computed by
    `__call__`, can be from that of the network this was made from, as executed: 0 if that is an exact network.
    """

    layers: tuple[Affine, ...]
    shape: tuple[int, int, int]
    crop: int | None
    white: float
    error: float

    @property
    def widths(self) -> list[int]:
        """How many ReLU neurons each hidden layer has."""
        return [len(layer.bias) for layer in self.layers[:-1]]

    @property
    def depth(self) -> int:
        """How many hidden layers there are."""
        return len(self.layers) - 1

    @property
    def classes(self) -> int:
        return len(self.layers[-1].bias)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Compute the logits (B, classes), float64, of images (B, C, H, W): pixels of [0, 1], or bytes if exact."""
        h = self.vectors(images).T
        for layer in self.layers[:-1]:
            h = layer(h).relu_()
        return self.layers[-1](h).T.contiguous()

    def vectors(self, images: Tensor) -> Tensor:
        """Return the pixels (B, I), in float64, that the first layer takes of images (B, C, H, W)."""
        if images.dim() != 4 or tuple(images.shape[1:]) != self.shape:
            raise ValueError(f"need images (B, {', '.join(map(str, self.shape))}), got {tuple(images.shape)}")
        return (images if self.crop is None else CenterCrop(self.crop)(images)).flatten(1).double()


def to_relu(model: Network) -> ReluNet:
    """Write a network of dist layers as a ReLU network that computes the same function.

    |x − w| = ReLU(x − w) + ReLU(w − x), and max(a, b) = ReLU(a − b) + ReLU(b) for b >= 0, as all distances are: so a
    dist neuron of d inputs takes one hidden layer of 2 d ReLU neurons, and ⌈log₂ d⌉ more for the maximum, of d
    neurons, d/2 and so on. All neurons of a layer are computed side by side.

    model: a network whose body and readout consist of distances (`DistNet` with neither pool, clip nor several neurons
    per class), or an exact network without a head; TypeError names the part that has no such form.

    Exact networks stay exact, to the last bit: their numbers are whole, and float64 holds them. In a float network the
    conversion rounds: max(a, b) becomes (a − b) + b, the normalisation goes into the weights, and the sums are taken in
    float64, while the network itself rounds to float32 in every layer. `error` of the result bounds all that.
    """
    if not isinstance(model, Network):
        raise TypeError(f"a {type(model).__name__} has no ReLU form: take a network of linfdist.models or an exact one")
    return _of_integers(cast(FrozenNet, model)) if model.exact else _of_floats(model.floats)


def fold_distances(model: PixelNet) -> Folded:
    """Fold a network into dist layers up to its logits, in pixels; TypeError names the part that is not one."""
    try:
        folded = fold_network(model)
    except TypeError as error:
        raise TypeError(f"a {type(model).__name__} with other parts than plain dist layers: {error}") from None
    _check_distances_alone(folded.clip is not None or bool(folded.pool) or folded.per_class > 1)
    return folded


def _check_distances_alone(averages: bool) -> None:
    if averages:
        raise TypeError("a network with clip, pool or several neurons per class has other parts than plain dist layers")


def neuron_widths(inputs: int) -> list[int]:
    """Count the ReLU neurons of one dist neuron by layer: 2 d for |x − w|, then one for each item to be halved."""
    widths, items = [2 * inputs], inputs
    while items > 1:
        widths.append(items)
        items = -(-items // 2)
    return widths


@torch.no_grad()
def _of_floats(model: PixelNet) -> ReluNet:
    check_network(model)
    folded = fold_distances(model)
    layers = [_Layer.dense(layer.weight) for layer in folded.layers]
    layers[-1] = layers[-1]._replace(bias=folded.offset)
    made = _build(layers, folded.layers[0].weight.shape[1], -1 / folded.std)
    size, lost = Fraction(1), Fraction(0)
    for layer in folded.layers:
        size += Fraction(float(layer.weight.abs().max())) + Fraction(layer.size)
        levels = len(neuron_widths(layer.weight.shape[1]))
        lost += (OPERATIONS * levels + 8) * 2 * size * UNIT  # folding rounds three terms, and the bias
    size += Fraction(folded.size)
    lost = (lost + 4 * size * UNIT) / Fraction(folded.std)
    error = Fraction(rounding_error(model)) + lost * Fraction(1025, 1024)  # the second order
    return ReluNet(tuple(made), model.shape, folded.crop, 1, round_up(error))


def _of_integers(model: FrozenNet) -> ReluNet:
    if model.head is not None:
        raise TypeError("an exact network with a head has no ReLU form: its tanh is not piecewise linear")
    _check_distances_alone(model.stem.clip is not None or model.stem.pool is not None or model.count > 1)
    if not model.whole_cube:
        raise ValueError("the network was frozen for some images only: freeze it for all, which needs no domain")
    layers = [_Layer.sparse(layer.mask, layer.weight.double(), layer.bias.double()) for layer in model.layers]
    made = _build(layers, model.layers[0].weight.shape[1], -1.0, scale=2.0**model.k)
    reach = max(int(torch.maximum(*(end.abs() for end in layer.range)).max()) for layer in model.layers)
    weights = max(int(layer.weight.abs().max()) for layer in model.layers)
    if 8 * (reach + weights + 255 * 2**model.k) > WHOLE:
        raise ValueError("the network has numbers that float64 does not hold exactly")
    return ReluNet(tuple(made), model.shape, model.crop, 255, 0.0)


class _Layer(NamedTuple):
    """max over the entries e of neuron o of |x[column[e]] − weight[e]|, + bias[o]: entries in the order of neurons."""

    neuron: Tensor
    column: Tensor
    weight: Tensor
    bias: Tensor

    @classmethod
    def dense(cls, weight: Tensor) -> "_Layer":
        return cls.sparse(torch.ones_like(weight, dtype=torch.bool), weight, weight.new_zeros(len(weight)))

    @classmethod
    def sparse(cls, mask: Tensor, weight: Tensor, bias: Tensor) -> "_Layer":
        neuron, column = mask.nonzero(as_tuple=True)
        return cls(neuron, column, weight[neuron, column], bias)


def _build(layers: list[_Layer], inputs: int, last: float, scale: float = 1.0) -> list[Affine]:
    """Build the affine maps; `last` multiplies the outputs, `scale` the inputs.

    Between two of them, the values that matter are sums of ReLU neurons h: `values` h + `constant`.
    """
    values, constant = _diagonal(torch.full((inputs,), scale, dtype=torch.float64)), None
    made: list[Affine] = []
    for layer in layers:
        count = len(layer.weight)
        signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(count)  # x − w, then w − x, for each entry
        pick = _sparse(torch.arange(2 * count), layer.column.repeat_interleave(2), signs, values.shape[0])
        offset = -signs * layer.weight.repeat_interleave(2)
        if constant is not None:
            offset = offset + signs * constant[layer.column].repeat_interleave(2)
        made.append(Affine(_product(pick, values), offset))
        values = _pairs(count)
        neuron = layer.neuron
        while len(neuron) > len(layer.bias):
            level, values, neuron = _halve(values, neuron)
            made.append(level)
        constant = layer.bias
    assert constant is not None
    made.append(Affine((values * last).coalesce(), constant * last))
    return made


def _halve(values: Tensor, neuron: Tensor) -> tuple[Affine, Tensor, Tensor]:
    """Compute one level of the maximum: halve the items, rows of `values`, of each neuron (items,).

    Neighbours a, b of the same neuron become ReLU(a − b) + ReLU(b); one without a neighbour becomes ReLU of itself.
    """
    items = len(neuron)
    first = torch.ones(items, dtype=torch.bool)
    first[1:] = neuron[1:] != neuron[:-1]
    start = torch.where(first, torch.arange(items), 0).cummax(0).values
    even = (torch.arange(items) - start) % 2 == 0
    follows = torch.zeros(items, dtype=torch.bool)
    follows[:-1] = (neuron[1:] == neuron[:-1]) & even[:-1]  # a, which has a neighbour b
    kept = even.nonzero()[:, 0]  # one row for each new item: a, or what has no neighbour
    pairs = follows[kept].nonzero()[:, 0]  # which of the new items are maxima of two
    new, b = len(kept), kept[pairs] + 1
    # neurons: first one for each new item, a − b or the item itself, then one for each b
    rows = torch.cat([torch.arange(new), pairs, new + torch.arange(len(pairs))])
    columns = torch.cat([kept, b, b])
    entries = torch.cat([torch.ones(new), -torch.ones(len(pairs)), torch.ones(len(pairs))]).double()
    weight = _product(_sparse(rows, columns, entries, items, new + len(pairs)), values)
    level = Affine(weight, torch.zeros(new + len(pairs), dtype=torch.float64))
    rows = torch.cat([torch.arange(new), pairs])
    columns = torch.cat([torch.arange(new), new + torch.arange(len(pairs))])
    sums = _sparse(rows, columns, torch.ones(len(rows), dtype=torch.float64), new + len(pairs), new)
    return level, sums, neuron[kept]


def _pairs(count: int) -> Tensor:
    """Build the matrix (count, 2 count) that sums two neighbours each."""
    return _sparse(
        torch.arange(count).repeat_interleave(2), torch.arange(2 * count), torch.ones(2 * count).double(), 2 * count
    )


def _diagonal(values: Tensor) -> Tensor:
    places = torch.arange(len(values))
    return _sparse(places, places, values, len(values))


def _sparse(rows: Tensor, columns: Tensor, values: Tensor, inputs: int, outputs: int | None = None) -> Tensor:
    """Build a sparse matrix (outputs, inputs); without `outputs`, it ends with the last row given."""
    outputs = int(rows.max()) + 1 if outputs is None else outputs
    return torch.sparse_coo_tensor(
        torch.stack([rows, columns]), values, (outputs, inputs), check_invariants=True
    ).coalesce()


def _product(one: Tensor, two: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")  # of torch about itself
        return torch.sparse.mm(one, two).coalesce()
