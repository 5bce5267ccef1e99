"""The contract of networks: pixels in, a body of Lipschitz layers, a readout, a configuration to build them again."""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from inspect import signature
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.samples import as_pixels
from ..files import file_sha256
from ..nn import Box, CenterCrop, Clip, Contract, Flatten, LipschitzModule, MeanPool, Normalize, Readout, Stack
from ..nn.pixels import check_clip, check_pool

Columns = tuple[Tensor, Tensor, Tensor | None, Tensor | None]  # of a `Certificate`: prediction, radius, certified, ...
Proves = Callable[[Tensor, Fraction | Tensor | None, Tensor | None, bool], Columns]  # of x, eps, y, radii


class Network(ABC):
    """What float and exact networks share, so that nobody above this package asks which kind a network is.

    shape: (C, H, W) of its images. class_names: the classes in words, if known. resize: the side of the squares that
    photographs were resized to before training, if they were. exact: whether it computes in integers, on 8-bit images.

    Its inputs x are what `from_bytes` gives: pixels of [0, 1] in the network's precision, or bytes if it is exact.
    """

    shape: tuple[int, int, int]
    class_names: tuple[str, ...] | None
    resize: int | None
    exact: bool = False

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
        """Return what proves by a method, if the network brings proofs of its own; None for the proofs of layers."""

    @property
    @abstractmethod
    def floats(self) -> "PixelNet":
        """The network in floating point whose gradients attacks follow: itself, unless it is exact."""

    @abstractmethod
    def to_pixels(self, x: Tensor) -> Tensor:
        """Turn inputs into pixels of [0, 1], which `floats` takes."""

    @abstractmethod
    def nearest(self, pixels: Tensor, x: Tensor, eps: Sequence[Fraction]) -> Tensor:
        """Return the inputs of the domain nearest to `pixels` that are within eps, one or one each, of the inputs x."""


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

    @property
    @abstractmethod
    def readout(self) -> Readout:
        """What makes logits (B, classes) of the features (B, F)."""

    @property
    def classes(self) -> int:
        return self.readout.classes

    @property
    def device(self) -> torch.device:
        return self.any_tensor.device

    def checksum(self, file: Path | None = None) -> str:
        """Return the sha256 of the file; without one, that of the configuration and the weights."""
        if file is not None:
            return file_sha256(file)
        config = self.config or [list(each) for each in self._attributes()]  # it may have none
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
        for name, tensor in sorted(self.state_dict().items()):
            values = tensor.detach().cpu().contiguous()
            digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
            digest.update(values.view(-1).view(torch.uint8).numpy().data if values.numel() else b"")
        return digest.hexdigest()

    def _attributes(self) -> Iterator[tuple[str, str]]:
        """Everything that is kept on the modules besides tensors and modules, as text."""
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
        """Count the pairs of a neuron and an input of it, for one image: the FLOPs of Tables 1, 2 and 9."""
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
        """What the last part of the network sees (B, F), of images (B, C, H, W), or of rows (B, C) of features."""
        x = x[:, :, None, None] if x.dim() == 2 and self.shape[1:] == (1, 1) else x
        self.check_images(x)
        return self.body(x, p)

    def features_box(self, box: Box) -> Box:
        """Bounds of the computed `features` at p = inf over a box of images, two tensors (B, F); eval mode only."""
        self.check_images(box.lower)
        self.check_images(box.upper)
        return self.body.forward_box(box)

    @property
    def any_tensor(self) -> Tensor:
        """One of its parameters or buffers, which all have the same precision and device; TypeError if it has none."""
        for tensor in chain(self.parameters(), self.buffers()):
            return tensor
        raise TypeError(f"a {type(self).__name__} without any parameter or buffer has no precision to compute in")

    @contextmanager
    def in_eval_mode(self) -> Iterator[None]:
        """Be in eval mode for a while, and in the mode of before afterwards."""
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
        accepted = (self.shape, (self.shape[0], *self.size))
        if x.dim() != 4 or tuple(x.shape[1:]) not in accepted:
            shapes = " or ".join(f"(B, {c}, {h}, {w})" for c, h, w in dict.fromkeys(accepted))
            raise ValueError(f"need images {shapes}, got {tuple(x.shape)}")


def config_of(network: type[PixelNet], names: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a network: its class and all arguments of its constructor, sequences as plain lists.

    names: what the constructor calls `locals()`, its arguments among them, which it must not have changed.
    """
    values = {name: names[name] for name in signature(network).parameters}
    plain = {name: list(each) if isinstance(each, Sequence) else each for name, each in values.items()}
    return {"class": network.__name__, **plain}


def check_sizes(shape: Sequence[int], mean: Sequence[float], crop: int | None, **sizes: int) -> tuple[int, int, int]:
    """The shape (C, H, W) as a tuple; ValueError for what cannot be built."""
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(f"shape must be (channels, height, width), each at least 1, got {shape!r}")
    if len(mean) != shape[0]:
        raise ValueError(f"mean must have one number for each of the {shape[0]} channels, got {mean!r}")
    if crop is not None and not 1 <= crop <= min(shape[1:]):
        raise ValueError(f"crop must be between 1 and the image's size {shape[1]}x{shape[2]}, got {crop!r}")
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size!r}")
    return shape[0], shape[1], shape[2]


def first_layers(
    mean: Sequence[float], std: float, crop: int | None, clip: Sequence[float] | None = None
) -> list[LipschitzModule]:
    """Pixels (B, C, H, W) -> normalised images (B, C, crop, crop), after the crop and the clipping, if any."""
    bounds = check_clip(clip)
    layers: list[LipschitzModule] = [] if crop is None else [CenterCrop(crop)]
    return layers + ([] if bounds is None else [Clip(*bounds)]) + [Normalize(mean, std)]


def to_vectors(shape: tuple[int, ...], pool: Sequence[int]) -> tuple[LipschitzModule, int]:
    """Normalised images of this shape (C, H, W) -> the inputs of the first dist layer, and how many there are.

    pool: the sizes of the blocks whose means these are; if it is empty, the pixels. ValueError if a block does not fit.
    """
    layer = MeanPool(pool) if check_pool(pool) else Flatten()
    return layer, layer.output_shape(shape)[0]
