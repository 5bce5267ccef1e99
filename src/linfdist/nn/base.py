"""The contract of layers: whatever certificates, attacks, counts and exports need to know of one, it says itself."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from torch import Tensor, nn

Shape = tuple[int, ...]  # of one sample, without the batch
P = ParamSpec("P")
R = TypeVar("R")


class Box(NamedTuple):
    """All x with lower <= x <= upper, coordinate by coordinate."""

    lower: Tensor
    upper: Tensor


class Rounding(NamedTuple):
    """What floating point does to the outputs of a layer, for all inputs of a given size.

    size bounds every |output|; peak bounds every value in between as well, so that overflow can be ruled out. error
    bounds how far a computed output is from the exact one of the same input. It must cover underflow too, whether or
    not the processor flushes denormal numbers to zero: a term of unit times a size of at least 1 does, in
    layers that do not multiply; a denormal weight that is flushed costs as much as what it is multiplied by.
    """

    size: Fraction
    peak: Fraction
    error: Fraction

    @classmethod
    def of(cls, size: Fraction, operations: int, unit: Fraction) -> "Rounding":
        """Describe so many rounded operations in a row, none of whose results is larger than `size`."""
        return cls(size, size, operations * unit * size)


class Contract(nn.Module, ABC):
    """What layers, readouts and networks have in common: they declare what is true of them.

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
    for inputs that lie outside of the box by `nn.rounding.FLUSHED` times the smallest normal number."""

    def check(self, name: str) -> None:
        """Raise ValueError, naming the module, if its tensors have values for which its declarations do not hold."""

    def terms(self, shape: Shape) -> int:
        """Count the pairs of a neuron and an input of it, at all positions of a sample of this shape.

        These are the FLOPs of the paper's tables. Most modules have none.
        """
        return 0

    def elements(self, shape: Shape) -> int:
        """Count the numbers of the largest tensor that is computed for one sample of this shape, the sample included.

        So many samples go through a network at once that memory suffices. Modules made of others must say it.
        """
        return math.prod(shape)


class Handlers(Generic[P, R]):
    """One function per class of layers, readouts or networks, chosen by the exact class of the first argument.

    What only one part of the package asks of a layer is no member of its class: that part has a registry, such as
    `linfdist.bounds.pull_back`, and whoever defines a layer registers a function for it:

        >>> @pull_back.register(MyLayer)
        ... def _(layer, forms, box): ...

    A function speaks for the very classes that it is registered for. A class that inherits from one of them may compute
    something else, so it needs a function of its own. Without one there is the default, if the registry has one that is
    right for all classes, and else a TypeError.
    """

    def __init__(self, name: str, lacks: str, default: Callable[Concatenate[Any, P], R] | None = None) -> None:
        """name: where the registry is found; lacks: what a class without a function lacks, after "a MyLayer ..."."""
        self.name, self.lacks, self.default = name, lacks, default
        self._functions: dict[type[Contract], Callable[Concatenate[Any, P], R]] = {}

    def register(
        self, *classes: type[Contract]
    ) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[Concatenate[Any, P], R]]:
        """Register the decorated function for these classes. ValueError for a class that has one already."""
        for each in classes:
            if each in self._functions:
                raise ValueError(f"{self.name} has a function for {each.__name__} already")

        def registered(function: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
            self._functions.update(dict.fromkeys(classes, function))
            return function

        return registered

    def __contains__(self, module: Contract) -> bool:
        """Whether a function is registered for the exact class of this module."""
        return type(module) in self._functions

    def __call__(self, module: Contract, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function of the module's class. TypeError, naming the class, if there is none."""
        function = self._functions.get(type(module), self.default)
        if function is None:
            name, above = type(module).__name__, [each for each in type(module).__mro__ if each in self._functions]
            inherits = f" (it inherits from {above[0].__name__}, but may compute something else)" if above else ""
            raise TypeError(
                f"a {name} {self.lacks}{inherits}; for a class of your own, {self.name}.register takes a function"
            )
        return function(module, *args, **kwargs)


class LipschitzModule(Contract):
    """A layer below the readout.

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
        """The shape of an output, given that of an input, both without the batch."""

    @abstractmethod
    def rounding(self, size: Fraction, unit: Fraction) -> Rounding:
        """Describe the rounding for inputs with |x| <= size; unit is the unit roundoff of the layer's dtype.

        ValueError if a value of the layer is not finite.
        """
