"""The contract of layers and readouts: each declares what certificates, attacks, counts and exports need to know.

This module also has the parts that every network needs: stacks of layers, features that are the logits, and the
arithmetic of rounding errors.
"""

import math
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator
from fractions import Fraction
from inspect import Signature, signature
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn

from ..eps import round_up
from ..ops.backends import sizes as sizes

Shape = tuple[int, ...]  # of one sample, without the batch
P = ParamSpec("P")
R = TypeVar("R")


class Box(NamedTuple):
    """All x with lower <= x <= upper, coordinate by coordinate."""

    lower: Tensor
    upper: Tensor


class Rounding(NamedTuple):
    """What floating point does to the outputs of a layer, for all inputs of a given size.

    size bounds every |output|; peak also bounds every intermediate value, so that overflow can be ruled out. error
    bounds how far a computed output is from the exact one of the same input. It must cover underflow too, whether or
    not the processor flushes denormal numbers to zero. In layers that do not multiply, a term of unit times a size of
    at least 1 is enough; a flushed denormal weight costs as much as its other factor is large.
    """

    size: Fraction
    peak: Fraction
    error: Fraction

    @classmethod
    def of(cls, size: Fraction, operations: int, unit: Fraction) -> "Rounding":
        """Describe this number of consecutive rounded operations, none of whose results is larger than `size`."""
        return cls(size, size, operations * unit * size)


class _Remembering(ABCMeta):
    """Makes every module store the shapes that its tensors have when it is made: proofs hold for these shapes only."""

    parts: tuple[type[nn.Module], ...]

    @property
    def __signature__(cls) -> Signature:
        """The arguments of the constructor; without this, those of `__call__` would be shown."""
        whole = signature(cls.__init__)  # type: ignore[misc]
        return whole.replace(parameters=list(whole.parameters.values())[1:])

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        module = super().__call__(*args, **kwargs)
        module._shapes = {name: tuple(tensor.shape) for name, tensor in _tensors(module, cls.parts)}
        return module


def _tensors(module: nn.Module, parts: tuple[type[nn.Module], ...]) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters and buffers of a module and of its parts, by name."""
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):
        if tensor is not None:
            yield name, tensor
    for name, child in module.named_children():
        if type(child) in parts:
            yield from ((f"{name}.{each}", tensor) for each, tensor in _tensors(child, parts))


class Contract(nn.Module, metaclass=_Remembering):
    """The base of layers, readouts and networks: they declare what is true of them.

    Soundness is by declaration. Certificates accept a module if its class is final, that is, if it fills in one of the
    abstract contracts itself: a class that inherits from a finished one may compute something else than its parent
    has declared, and is refused. `parts` are the classes of plain torch modules that it is made of. `repeatable` says
    whether the same input always gives the same bits, except for denormal numbers that are flushed: not so if sums may
    be taken in another order in another batch. `multiplies` says whether its bounds rely on matrix products in its own
    precision, which a process may be set up not to compute.
    """

    parts: tuple[type[nn.Module], ...] = ()
    repeatable: bool = False
    multiplies: bool = False

    absorbs_flushes: bool = False
    """Whether its bounds hold however denormal numbers are treated, in itself and in the layers below: that is, also
    for inputs that lie outside of the box by `FLUSHED` times the smallest normal number."""

    _shapes: dict[str, Shape]  # of its tensors when it was made

    def check_shapes(self, name: str) -> None:
        """Raise ValueError, naming the tensor, if one has another shape than when the module was made.

        A mean or bias with a batch dimension would treat images differently; other shapes would broadcast in ways that
        no declaration covers.
        """
        for own, tensor in _tensors(self, self.parts):
            if (made := self._shapes.get(own)) != tuple(tensor.shape):
                before = "was not there" if made is None else f"had shape {made}"
                raise ValueError(
                    f"{name}.{own} has shape {tuple(tensor.shape)}, but {before} when the layer was made: no proof "
                    "covers that; build a layer of the right shape"
                )

    def check(self, name: str) -> None:
        """Raise ValueError, naming the module, if its tensors have values for which its declarations do not hold.

        Their shapes are already known to be right: `check_shapes` comes first.
        """

    def terms(self, shape: Shape) -> int:
        """Count the pairs of a neuron and one of its inputs, at all positions of a sample of this shape.

        These are the FLOPs of the paper's tables. Most modules have none.
        """
        return 0

    def elements(self, shape: Shape) -> int:
        """Count the numbers of the largest tensor that is computed for one sample of this shape, the sample included.

        It decides how many samples go through a network at once. Modules made of others must declare it.
        """
        return math.prod(shape)


def check_as_made(name: str, module: nn.Module) -> None:
    """Raise ValueError, naming the module, if something on it changes what its class computes."""
    loose = sorted(each for each, value in vars(module).items() if isinstance(value, Tensor))
    if loose:
        raise ValueError(f"{name}.{loose[0]} is a tensor, but neither a parameter nor a buffer: register it first")
    if module._forward_hooks or module._forward_pre_hooks:
        raise ValueError(f"{name} has forward hooks, which can change what it computes: remove them first")
    replaced = sorted(vars(module).keys() & frozenset(dir(type(module))))
    if replaced:
        raise ValueError(
            f"{name} has its own {', '.join(replaced)} in place of its class's, which no proof covers: remove it"
        )


class Handlers(Generic[P, R]):
    """One function per class of layers, readouts or networks, chosen by the exact class of the first argument.

    An ability that only one part of the package needs is not a method of the layer. That part has a registry, such as
    `linfdist.bounds.pull_back`, and the author of a layer registers a function for it:

        >>> @pull_back.register(MyLayer)
        ... def _(layer, forms, box): ...

    A function serves only the exact classes that it is registered for. A class that inherits from one of them may
    compute something else, so it needs a function of its own. Without one, the registry's default is used if it has one
    that is right for all classes; otherwise TypeError is raised.
    """

    def __init__(self, name: str, lacks: str, default: Callable[Concatenate[Any, P], R] | None = None) -> None:
        """name: of the registry, for error messages; lacks: what a class without a function is said to lack there."""
        self.name, self.lacks, self.default = name, lacks, default
        self._functions: dict[type[Contract], Callable[Concatenate[Any, P], R]] = {}

    def register(
        self, *classes: type[Contract]
    ) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[Concatenate[Any, P], R]]:
        """Register the decorated function for these classes. Raises ValueError for a class that has one already."""
        for each in classes:
            if each in self._functions:
                raise ValueError(f"{self.name} has a function for {each.__name__} already")

        def registered(function: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
            self._functions.update(dict.fromkeys(classes, function))
            return function

        return registered

    @property
    def classes(self) -> tuple[type[Contract], ...]:
        """The classes that have a function."""
        return tuple(self._functions)

    def __contains__(self, module: Contract) -> bool:
        """Whether a function is registered for the exact class of this module."""
        return type(module) in self._functions

    def __call__(self, module: Contract, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function of the module's class. Raises TypeError, naming the class, if there is none."""
        function = self._functions.get(type(module), self.default)
        if function is None:
            name, above = type(module).__name__, [each for each in type(module).__mro__ if each in self._functions]
            inherits = f" (it inherits from {above[0].__name__}, but may compute something else)" if above else ""
            raise TypeError(
                f"a {name} {self.lacks}{inherits}; for a class of your own, {self.name}.register takes a function"
            )
        return function(module, *args, **kwargs)


class LipschitzModule(Contract):
    """A layer before the readout.

    p is an argument, so nothing has to be set on a module, and a layer called without it is the certified one, that of
    p = inf. Layers without distances take p too, and ignore it.
    """

    holds_distances: bool = False  # whether p matters: the weights get ℓp decay, attacks use gradients of finite p

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """L with ‖f(x) − f(x′)‖∞ <= L ‖x − x′‖∞ at p = inf in eval mode, in exact arithmetic; never rounded down."""

    @abstractmethod
    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        """Compute f(x); at p = inf it is `lipschitz`-Lipschitz."""

    @abstractmethod
    def forward_box(self, box: Box) -> Box:
        """Bound `forward(x)` at p = inf, as computed with its rounding, over all x of the box.

        Operations that keep the order of their results need no slack: a correctly rounded operation is monotone
        wherever the exact one is, so the same operations on the ends of the box enclose their results inside. This
        holds on one device and backend, and for one dtype. Where the order of summation is not fixed, the layer widens
        its bounds by what rounding can do (`widened`).
        """

    @abstractmethod
    def output_shape(self, shape: Shape) -> Shape:
        """Return the shape of an output, given that of an input, both without the batch."""

    @abstractmethod
    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Describe the rounding for inputs with |x| <= size; unit is the unit roundoff of the layer's dtype.

        Raises ValueError if a value of the layer is not finite.
        """


class Stack(LipschitzModule):
    """The composition of layers: `torch.nn.Sequential` that hands p down and maps boxes too.

    A stack within a stack counts as the layers that it holds.
    """

    repeatable = True
    parts = (nn.ModuleList,)

    def __init__(self, *layers: LipschitzModule) -> None:
        super().__init__()
        flat = [each for layer in layers for each in (layer if type(layer) is Stack else (layer,))]
        self.layers = nn.ModuleList(flat)

    def __iter__(self) -> Iterator[LipschitzModule]:
        return cast(Iterator[LipschitzModule], iter(self.layers))

    @property
    def lipschitz(self) -> float:
        """The product of the layers' constants, rounded up."""
        return round_up(math.prod((Fraction(layer.lipschitz) for layer in self), start=Fraction(1)))

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        for layer in self:
            x = layer(x, p)
        return x

    def forward_box(self, box: Box) -> Box:
        for layer in self:
            box = layer.forward_box(box)
        return box

    def output_shape(self, shape: Shape) -> Shape:
        return self.shapes(shape)[-1]

    def shapes(self, shape: Shape) -> list[Shape]:
        """Return the shapes of the input and of each layer's output, without the batch."""
        found = [shape]
        for layer in self:
            found.append(layer.output_shape(found[-1]))
        return found

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Sum the errors: a layer multiplies the error of its input by its Lipschitz constant, and adds its own."""
        peak, error = size, Fraction(0)
        for layer in self:
            own = layer.rounding(size, unit)
            size, peak, error = own.size, max(peak, own.peak), error * Fraction(layer.lipschitz) + own.error
        return Rounding(size, peak, error)

    def terms(self, shape: Shape) -> int:
        return sum(layer.terms(each) for layer, each in zip(self, self.shapes(shape), strict=False))

    def elements(self, shape: Shape) -> int:
        layers = (layer.elements(each) for layer, each in zip(self, self.shapes(shape), strict=False))
        return max(*layers, math.prod(self.output_shape(shape)), math.prod(shape))


class Readout(Contract):
    """The last part of a network: features (B, F) -> logits (B, classes)."""

    holds_distances: bool = False  # see `LipschitzModule`

    @property
    @abstractmethod
    def classes(self) -> int:
        """How many logits there are."""

    @property
    @abstractmethod
    def lipschitz(self) -> float | None:
        """The ℓ∞ Lipschitz constant of the logits in the features, never rounded down; None if there is no useful one.

        A readout with a constant also has a `rounding`, and is certified by its margin in closed form. A readout
        without one is certified by bounds of its margins alone.
        """

    @abstractmethod
    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        """Compute the logits (B, classes) of features (B, F)."""

    def forward_box(self, box: Box) -> Box:
        """Bound the computed logits (b, classes) at p = inf over boxes of features; as for a layer.

        If the logits are correlated, bounds of their differences are tighter: see `linfdist.bounds.margins`.
        """
        raise TypeError(f"a {type(self).__name__} has no bounds of its logits, so nothing can be certified with it")

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Describe the rounding of the logits, as for a layer; only for readouts with a Lipschitz constant."""
        raise TypeError(f"a {type(self).__name__} has no Lipschitz constant, so its rounding is not asked for")


class Logits(Readout):
    """The readout of a plain stack of layers: the features themselves are the logits."""

    repeatable = True
    lipschitz = 1.0

    def __init__(self, classes: int) -> None:
        super().__init__()
        self._classes = classes

    @property
    def classes(self) -> int:
        return self._classes

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        return x

    def forward_box(self, box: Box) -> Box:
        return box

    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        return Rounding.of(size, 0, unit)


# --- rounding errors ------------------------------------------------------------------------------


FLUSHED = 2.0**40  # times the smallest normal number: far more than a network can lose by flushing denormal numbers
UP, DOWN = 1 + 2.0**-50, 1 - 2.0**-50  # factors that outweigh a few roundings of float64


def largest(tensor: Tensor) -> Fraction:
    """Find max |t|, exactly and without a copy of the tensor; ValueError if it is not finite."""
    size = sizes(tensor)[1]
    if not math.isfinite(size):
        raise ValueError("the network has weights that are not finite, so nothing can be certified with it")
    return Fraction(size)


def new_weight(*shape: int) -> nn.Parameter:
    """Return a weight from N(0, 1), with the bits of `torch.randn`, but without its slow imports on meta."""
    weight = torch.empty(shape)
    return nn.Parameter(weight if weight.is_meta else weight.normal_())


def gamma(count: int, unit: float) -> float:
    """γ_n = n u / (1 − n u), rounded up: the relative error of n roundings in a row; infinity if there are too many."""
    return math.inf if count * unit > 0.5 else count * unit / (1 - count * unit) * UP


def widened(lower: Tensor, upper: Tensor, slack: Tensor, dtype: torch.dtype) -> Box:
    """Move float64 bounds outwards by a slack >= 0, and round them outwards to `dtype`.

    The slack grows by 2^40 times the smallest normal number of `dtype`, far more than flushing denormal numbers to zero
    can cost. Callers that compute the bounds in float64 must add that rounding to the slack.
    """
    apart = slack * UP + FLUSHED * torch.finfo(dtype).tiny
    low, high = (lower - apart) - lower.abs() * 2.0**-50, (upper + apart) + upper.abs() * 2.0**-50
    infinity = torch.tensor(math.inf, dtype=dtype, device=lower.device)
    return Box(torch.nextafter(low.to(dtype), -infinity), torch.nextafter(high.to(dtype), infinity))


def mean_rounding(size: Fraction, count: int, unit: Fraction) -> Rounding:
    """Describe the rounding of a mean of `count` numbers, none larger than `size`, summed in any order.

    count - 1 additions lose at most (count - 1) u of the sum of the absolute values, and the division by count, or the
    multiplication by a rounded 1/count, loses 2 u more. With count below 2^22, (count + 2) u covers the second order.
    """
    return Rounding(size, size * count, (count + 2) * unit * max(size, Fraction(1)))


def mean_slack(size: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """Bound how far a mean of `count` numbers, computed in `dtype` in any order, can be from the exact mean.

    size: the mean of the absolute values, or more, in float64. What float64 loses in computing the same mean once more
    is included; what flushing denormal numbers costs is not. Infinity where the sum might overflow.
    """
    precision = torch.finfo(dtype)
    slack = (gamma(count + 2, precision.eps / 2) + 2.0**-50 * (count + 2)) * size
    return slack.where(size * count < precision.max / 2, math.inf)
