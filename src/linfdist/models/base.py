"""The contract of networks, and bounds of their distance from exact arithmetic."""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from importlib import import_module
from inspect import signature
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..data.samples import arranged, as_labels, as_pixels, as_tensor, check_plain, read
from ..eps import round_up
from ..files import excerpt, file_sha256
from ..nn import Box, Contract, LipschitzModule, Readout, Rounding, Stack
from ..nn.base import FLUSHED, sizes

ABOVE = {"baselines": "linfdist.baselines", "linfdist-exact": "linfdist.exact"}
# By name, because these packages import this one: what needs one of them imports it on the way.
Made = TypeVar("Made")
Columns = tuple[Tensor, Tensor, Tensor | None, Tensor | None]  # of a `Certificate`: prediction, radius, certified, ...
Proves = Callable[[Tensor, Fraction | Tensor | None, Tensor | None, bool], Columns]  # of x, eps, y, radii


class Network(ABC):
    """The interface of float and exact networks, so that no caller has to ask for the kind.

    shape: (C, H, W) of its images. class_names: the classes in words, if known. resize: the side of the squares that
    photographs were resized to before training, if they were. exact: whether it computes in integers, on 8-bit images.

    Its inputs x are what `from_bytes` gives: pixels of [0, 1] in the network's precision, or bytes if it is exact.
    """

    shape: tuple[int, int, int]
    class_names: tuple[str, ...] | None
    resize: int | None
    exact: bool = False

    @property
    def shapes(self) -> tuple[tuple[int, int, int], ...]:
        """The shapes (C, H, W) of images that it takes."""
        return (self.shape,)

    @property
    @abstractmethod
    def classes(self) -> int:
        """How many logits there are."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the network computes."""

    @property
    def domain(self) -> str | None:
        """The sha256 of the domain that proofs and attacks keep to; None if that is all images of [0, 1]."""
        return None

    def stated(self, key: str) -> str | None:
        """Return what its file says of the data set it was trained on ("data") or its radius ("eps"), if anything.

        It is an unverified claim, used only to decide what to try first.
        """
        return None

    @abstractmethod
    def checksum(self, file: Path | None = None) -> str:
        """Return the sha256 by which results name the network; file: where it was loaded from, if it was."""

    @abstractmethod
    def from_bytes(self, images: Tensor) -> Tensor:
        """Turn 8-bit images (B, C, H, W) into inputs."""

    @abstractmethod
    def check_images(self, x: Tensor) -> None:
        """Raise TypeError or ValueError unless the network takes these inputs."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Compute the logits (B, classes)."""

    @abstractmethod
    def predict(self, x: Tensor) -> Tensor:
        """Return the classes (B,) int64; the first of those that tie."""

    @abstractmethod
    def prover(self, method: str) -> Proves | None:
        """Return the network's own prover for a method; None to use the proofs of its layers."""

    @property
    @abstractmethod
    def floats(self) -> "PixelNet":
        """The network in floating point whose gradients attacks follow: itself, unless it is exact."""

    @abstractmethod
    def to_pixels(self, x: Tensor) -> Tensor:
        """Turn inputs into pixels of [0, 1], which `floats` takes."""

    @abstractmethod
    def nearest(self, pixels: Tensor, x: Tensor, eps: Sequence[Fraction]) -> Tensor:
        """Return the inputs nearest to `pixels` that are in the domain and within eps (one, or one per image) of x."""


class PixelNet(Contract, Network):
    """A network whose first layers crop and normalise, so that it takes pixels of [0, 1] and radii are in pixels.

    A network is its `readout` of its `body`, and nothing else: certificates, attacks, counts and exports work through
    these two. `config` is plain JSON: the class and its arguments, from which `models.from_config` builds the same
    network again; it is empty for a network that cannot be saved. `class_names` are the classes in words, if known.
    `resize` is the side of the squares that photographs were resized to before training, if they were: files of other
    sizes are resized alike, and a certificate is about the resized pixels. Both are kept in the network's file.
    """

    repeatable = True  # what its parts compute, and nothing else
    body: Stack
    config: dict[str, Any]

    def __init__(self, shape: tuple[int, int, int], crop: int | None) -> None:
        super().__init__()
        self.shape = shape
        self.size = shape[1:] if crop is None else (crop, crop)  # of the image after the crop
        self.class_names, self.resize = None, None
        self._file_sha256: str | None = None  # of the file that it was loaded from
        self._pruned = False

    @property
    @abstractmethod
    def readout(self) -> Readout:
        """What makes logits (B, classes) of the features (B, F)."""

    @property
    def shapes(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(dict.fromkeys((self.shape, (self.shape[0], *self.size))))  # as it is, and after the crop

    @property
    def classes(self) -> int:
        return self.readout.classes

    @property
    def pruned(self) -> bool:
        """Whether it, or a member of it, was pruned (see `models.prune`) and not trained since."""
        return any(each._pruned for each in self.modules() if isinstance(each, PixelNet))

    def forget_pruning(self) -> None:
        """Count as a network that was never pruned from here on, as training does: all its weights change."""
        for each in self.modules():
            if isinstance(each, PixelNet):
                each._pruned = False

    @property
    def device(self) -> torch.device:
        return self.any_tensor.device

    def checksum(self, file: Path | None = None) -> str:
        """Return the sha256 of the file as it was loaded; without one, that of the configuration and the weights."""
        if file is not None:
            return self._file_sha256 or file_sha256(file)
        config = self.config or [list(each) for each in self._attributes()]  # it may have none
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
        for name, tensor in sorted(self.state_dict().items()):
            values = tensor.detach().cpu().contiguous()
            digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
            digest.update(values.view(-1).view(torch.uint8).numpy().data if values.numel() else b"")
        return digest.hexdigest()

    def _attributes(self) -> Iterator[tuple[str, str]]:
        """Yield all attributes of the modules except tensors and modules, as text."""
        for name, module in self.named_modules():
            yield name, f"{type(module).__module__}.{type(module).__qualname__}"
            for key, value in sorted(vars(module).items()):
                if not key.startswith("_") and key != "training":
                    yield f"{name}.{key}", repr(value)

    def predict(self, x: Tensor) -> Tensor:
        return self(x).argmax(1)

    def prover(self, method: str) -> Proves | None:
        return None

    @property
    def floats(self) -> "PixelNet":
        return self

    def to_pixels(self, x: Tensor) -> Tensor:
        return x

    def nearest(self, pixels: Tensor, x: Tensor, eps: Sequence[Fraction]) -> Tensor:
        return pixels

    def forward(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        """Compute the logits (B, classes) of images (B, C, H, W)."""
        return self.readout(self.features(x, p), p)

    def terms(self, shape: tuple[int, ...] | None = None) -> int:
        """Count the pairs of a neuron and one of its inputs, for one image: the FLOPs of Tables 1, 2 and 9."""
        shapes = self.body.shapes(shape or self.shape)
        return self.body.terms(shapes[0]) + self.readout.terms(shapes[-1])

    def elements(self, shape: tuple[int, ...] | None = None) -> int:
        """Count the numbers of the largest tensor that is computed for one image."""
        shapes = self.body.shapes(shape or self.shape)
        return max(self.body.elements(shapes[0]), self.readout.elements(shapes[-1]))

    @property
    def lipschitz(self) -> float:
        """The ℓ∞ Lipschitz constant of `features` in pixels, at p = inf in eval mode: the product of the layers' ones.

        That is 1/std, rounded up, for the paper's networks; clipping makes it larger.
        """
        return self.body.lipschitz

    def features(self, x: Tensor, p: float | Tensor = math.inf) -> Tensor:
        """Compute the readout's inputs (B, F) from images (B, C, H, W), or from rows (B, C) of features."""
        x = x[:, :, None, None] if x.dim() == 2 and self.shape[1:] == (1, 1) else x
        self.check_images(x)
        return self.body(x, p)

    def features_box(self, box: Box) -> Box:
        """Bound the computed `features` at p = inf over a box of images: two tensors (B, F); eval mode only."""
        self.check_images(box.lower)
        self.check_images(box.upper)
        return self.body.forward_box(box)

    @property
    def any_tensor(self) -> Tensor:
        """One of its parameters or buffers, which all have the same precision and device; TypeError if it has none."""
        for tensor in chain(self.parameters(), self.buffers()):
            return tensor
        raise TypeError(f"a {type(self).__name__} without any parameter or buffer has no precision to compute in")

    @property
    def all_images(self) -> Box:
        """The box of all images of [0, 1]: (1, C, H, W) each."""
        black = self.any_tensor.new_zeros(1, *self.shape)
        return Box(black, torch.ones_like(black))

    @contextmanager
    def in_eval_mode(self) -> Iterator[None]:
        """Switch to eval mode, and restore the mode afterwards."""
        training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(training)

    def from_bytes(self, images: Tensor) -> Tensor:
        """Turn 8-bit images into pixels of [0, 1], in the network's precision and on its device."""
        weight = self.any_tensor
        return as_pixels(images.to(weight.device), weight.dtype)

    def check_images(self, x: Tensor) -> None:
        """Raise unless x are floating-point images of this network's shape, or of the shape after its crop."""
        if not x.is_floating_point():
            raise TypeError(f"need floating-point pixels in [0, 1], got {x.dtype}: for bytes, x.float() / 255")
        if x.dim() != 4 or tuple(x.shape[1:]) not in self.shapes:
            shapes = " or ".join(f"(B, {c}, {h}, {w})" for c, h, w in self.shapes)
            raise ValueError(f"need images {shapes}, got {tuple(x.shape)}")


def config_of(network: type[PixelNet], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a network: its class and all arguments of its constructor, sequences as lists.

    names: what the constructor calls `locals()`, its arguments among them, which it must not have changed.
    """
    values = {name: names[name] for name in signature(network).parameters}
    plain = {name: list(each) if isinstance(each, Sequence) else each for name, each in values.items()}
    return {"class": network.__name__, **plain}


def construct(config: object, what: str, classes: Callable[[], Mapping[str, type[Made]]]) -> Made:
    """Make what a configuration describes: the class that it names, called with its other entries.

    what: the word for it in errors. classes: those that there are, by name; it is called after a package that registers
    its own is imported. Raises ValueError that names a class that is not among them, and keys that are unknown or
    missing.
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"a {what} is described by its class and its arguments, got {excerpt(config)}")
    arguments = dict(config)
    name = arguments.pop("class", None)
    if isinstance(name, str) and name.startswith("baselines."):
        import_module(ABOVE["baselines"])
    known = classes()
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"no {what} of class {excerpt(name)}: the classes are {', '.join(known)}")
    whole = signature(known[name]).parameters
    parameters = {key: each for key, each in whole.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
    unknown = [key for key in arguments if key not in parameters]
    missing = [key for key, each in parameters.items() if each.default is each.empty and key not in arguments]
    switches = [key for key, each in parameters.items() if type(each.default) is bool and key in arguments]
    unclear = [key for key in switches if type(arguments[key]) is not bool]  # "false" is true to Python
    if unknown or missing or unclear:
        wrong = [f"unknown {key!r}" for key in unknown] + [f"{key!r} is missing" for key in missing]
        wrong += [f"{key!r} must be true or false, got {excerpt(arguments[key])}" for key in unclear]
        raise ValueError(f"configuration of a {name}: {', '.join(wrong)}; the keys are {', '.join(parameters)}")
    return known[name](**arguments)


def taken(model: object, data: Any, name: str = "x") -> tuple[Network, Tensor, Any, tuple[int, ...]]:
    """Return the network, samples (N, C, H, W), their labels or None, and the shape in which they were given.

    model: see `as_network`. data: see `linfdist.data.samples.read`; what is given in a tensor stays on its device.
    Samples are arranged as the network's shape says. Layers that do not know theirs take it from the samples.
    """
    if not isinstance(model, Network):
        model, data = import_module(f"{__package__}.composed").opened(model, data)  # which imports this file
        assert isinstance(model, Network)
    given, labels = read(data, name)
    samples = given if isinstance(data, Tensor) else as_tensor(given, name)
    check_plain(samples, name)
    return model, arranged(samples, model.shapes), labels, tuple(samples.shape)


def as_asked(model: object, data: Any, y: Any = None) -> tuple[Network, Tensor, Tensor | None, tuple[int, ...]]:
    """Return the network, its inputs, their labels or None, and the shape in which samples were given: see `taken`.

    A tensor must have the network's precision and device. All else is converted: bytes become pixels, and floats are
    rounded to the precision. y: labels in place of those that a data set has; whole numbers, or names of classes.
    """
    network, x, own, shape = taken(model, data)
    if not isinstance(data, Tensor):
        x = network.from_bytes(x)
    labels = own if y is None else y
    return network, x, None if labels is None else as_labels(labels, network.class_names).to(x.device), shape


# --- rounding errors ------------------------------------------------------------------------------


def rounding_error(network: PixelNet) -> float:
    """Return a bound E of |computed − exact| for all images of [0, 1].

    It is about the logits if the readout has a Lipschitz constant, and else about the features.

    Every operation of a dist net - the two of `Normalize`, the subtraction of a dist layer, the shift, the bias - is
    rounded once, by at most u · |result| with u = 2^-24 (float32); |·| and max are exact. A layer passes the error of
    its input on, times its Lipschitz constant in ℓ∞: 1 for all except the normalisation. With bounds M of all
    intermediate values, E = u · Σ M over the operations, rounded up generously (a factor 1 + 2^-10 covers the second
    order and the summation; as all M >= 1, it also covers denormals, flushed to zero or not). Infinity if some value
    could overflow.
    """
    precision = torch.finfo(network.any_tensor.dtype)
    found = network_rounding(network, Fraction(1), Fraction(precision.eps) / 2)  # |pixels| <= 1
    if 2 * found.peak > Fraction(precision.max):
        return math.inf  # an intermediate value might overflow
    return round_up(found.error * Fraction(1025, 1024))


def network_rounding(network: PixelNet, size: Fraction, unit: Fraction) -> Rounding:
    """Describe the rounding of a network for pixels of that size: up to the logits, or to the features, as above."""
    found, own = network.body.rounding(size, unit), network.readout.lipschitz
    if own is None:
        return found
    last = network.readout.rounding(found.size, unit)
    return Rounding(last.size, max(found.peak, last.peak), found.error * Fraction(own) + last.error)


def flush_error(network: PixelNet, error: float) -> float:
    """Bound how much flushing denormal numbers to zero can change a computed logit (or feature, see above).

    Threads may differ in that, so that the same image may give other bits elsewhere. In a network whose weights are 0
    or of ordinary size, a value that was flushed is lost in the next subtraction of a weight that is not 0, because it
    is less than a quarter of that weight's last digit, and is passed on as it is where the weight is 0: it never grows.
    So the change stays below 2^40 times the smallest normal number, of which one operation can cost one at most. Where
    a weight is so small that this argument fails, all we know is that both results are within `error` of the exact one.

    A layer that absorbs flushes (see `Contract`) encloses all that is computed up to its outputs, so that the argument
    is needed for the layers between two such layers only; nothing is left of it after a readout of that kind.
    """
    precision = torch.finfo(network.any_tensor.dtype)
    floor = precision.tiny * FLUSHED / precision.eps
    within = [module for module in network.modules() if isinstance(module, PixelNet)]  # itself, and its members
    if not all(_ordinary(run, floor) for each in within for run in _runs(each)):
        return 2 * error
    return 0.0 if network.readout.absorbs_flushes else FLUSHED * precision.tiny


def _runs(network: PixelNet) -> list[list[LipschitzModule | Readout]]:
    """Split layers and readout at those that absorb flushes; these are in none of the pieces."""
    runs: list[list[LipschitzModule | Readout]] = [[]]
    for part in (*network.body, network.readout):
        if part.absorbs_flushes:
            runs.append([])
        else:
            runs[-1].append(part)
    return runs


def _ordinary(run: Sequence[LipschitzModule | Readout], floor: float) -> bool:
    """Return whether a value that was flushed stays as small through these layers.

    A layer that shrinks values makes them denormal, and does not make up for one that stretches what is lost then.
    """
    steepest = math.prod(max(1.0, part.lipschitz or 1.0) for part in run)
    tensors = [tensor for part in run for tensor in (*part.parameters(), *part.buffers())]
    return steepest <= 2.0**30 and all(_none_between(tensor, floor) for tensor in tensors)


def _none_between(tensor: Tensor, floor: float) -> bool:
    """Return whether every t is 0 or has |t| (for a std also 1/|t|) at or above the floor."""
    least, largest = sizes(tensor)
    return not least < floor and not largest > 1 / floor
