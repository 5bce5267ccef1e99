"""Certificates of a network's predictions on a batch of images."""

import contextlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data.samples import arranged, as_numbers, check_plain, plain_array, read
from ..eps import Eps, down, in_words, parse_eps
from ..errors import printable
from ..models import Network, as_network
from ..models.base import Proves, as_asked
from ..ops.machine import CPU, choose_device
from .checks import copy_of, on_device, tensors_of
from .methods import check_method
from .proofs import prover_of

COLUMNS = ("prediction", "radius", "certified", "margin_radius")  # the tensors of a certificate
Samples = Any  # what `linfdist.data.samples.read` takes
Radius = Eps | Tensor | NDArray[Any]  # of all pixels, or one for each


@dataclass(frozen=True, repr=False, eq=False)
class Certificate:
    """Certificates of a batch of images, for the network as executed in floating point.

    It has a length, one entry per image, and `proof[2]`, `proof[:5]` and `proof[mask]` are certificates of those.

    prediction: (B,) int64.
    radius: (B,) float64, on the 0–1 intensity scale and rounded down: the prediction is the same for every image of
        [0, 1] in the closed ball of that radius; 0 where nothing is proved.
    certified: (B,) bool: the prediction is the same for every image of [0, 1] in the closed eps-ball, and is y if y was
        given. None if eps was None.
    domain: the sha256 of the domain of an exact network that was frozen for some images only: then all of this is about
        images of that domain; None for all others.
    margin_radius: (B,) float64: the part of `radius` that the margin alone proves; None if there is no such proof.
    eps: the radius that `certified` speaks of, exactly; None if there was none, or one for each pixel.
    class_names: the names of all classes, if the network knows them; `names` are those of the predictions.
    """

    prediction: Tensor
    radius: Tensor
    certified: Tensor | None
    margin_radius: Tensor | None = None
    domain: str | None = None
    eps: Fraction | None = None
    class_names: tuple[str, ...] | None = None

    thing: ClassVar[str] = "image"  # what there is one entry of

    def __len__(self) -> int:
        return len(self.prediction)

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> "Certificate":
        """Return the certificate of some of the images; an int gives a certificate of one."""
        chosen = _chosen(index, len(self), self.thing)
        columns = {name: column for name in COLUMNS if (column := getattr(self, name)) is not None}
        return replace(self, **{name: column[chosen] for name, column in columns.items()})

    def to(self, device: torch.device) -> "Certificate":
        """Return the same certificate with its tensors on another device."""
        columns = {name: column for name in COLUMNS if (column := getattr(self, name)) is not None}
        return replace(self, **{name: column.to(device) for name, column in columns.items()})

    @property
    def names(self) -> list[str] | None:
        """The name of each predicted class; None if the network does not know them."""
        return None if self.class_names is None else [self.class_names[each] for each in self.prediction.tolist()]

    def summary(self) -> str:
        """Say in one line how many images are certified and how large the radii are; these are rounded down."""
        n = len(self)
        text = f"{n:,} {self.thing}{'s' * (n != 1)}"
        if n == 1 and self.names:
            text += f" of class {printable(self.names[0])}"
        if n and self.certified is not None:
            text += f", {int(self.certified.sum()):,} certified{self._at()}"
        if n:
            ordered = self.radius.sort().values
            least, middle, largest = (down(float(ordered[k]), 4) for k in (0, (n - 1) // 2, n - 1))
            text += f", radius {least}" if n == 1 else f", radius {least} to {largest}, median {middle}"
        return text + ", within the domain of the network" * (self.domain is not None)

    def _at(self) -> str:
        return f" at {in_words(self.eps)}" if self.eps is not None else ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists of numbers, None for missing values. An infinite radius is a float, not JSON."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        lists = {name: None if column is None else column.tolist() for name, column in columns.items()}
        return {**lists, "class": self.names, "domain": self.domain, "eps": None if self.eps is None else str(self.eps)}


def _chosen(index: Any, n: int, thing: str) -> Tensor:
    """Return the positions that an index selects, as a tensor."""
    if isinstance(index, slice):
        return torch.tensor(range(n)[index], dtype=torch.int64)
    if not isinstance(index, bool):
        with contextlib.suppress(TypeError):  # whatever is a whole number
            position = operator.index(index)
            if not -n <= position < n:
                raise IndexError(f"{thing} {position} of a certificate of {n} {thing}s")
            return torch.tensor([position % n])
    if isinstance(index, Tensor | np.ndarray | list | tuple | range):
        plain = plain_array(index, "an index") if isinstance(index, np.ndarray) else index  # a mask may hide entries
        chosen = torch.as_tensor(plain) if len(plain) else torch.empty(0, dtype=torch.int64)
        if chosen.dim() == 1 and not (chosen.is_floating_point() or chosen.is_complex()):
            return chosen
    raise TypeError(f"an index must be a whole number, a slice, or several numbers or truth values, got {index!r}")


def certify(
    model: object,
    x: Samples,
    eps: Radius | None,
    y: Any = None,
    method: str = "box",
    radii: bool = True,
    device: str | torch.device | None = None,
) -> Certificate:
    """Prove, image by image, that no change of the pixels by up to eps changes the prediction.

    model: a network of `linfdist.models`; layers from pixels to logits, in a `linfdist.nn.Stack` or a
        `torch.nn.Sequential`; or anything else that declares the contract of networks or layers, in eval mode; or an
        exact network, which takes 8-bit images.
    x: images (B, C, H, W) in [0, 1], in the model's precision; for an exact network uint8; rows (B, C) for networks of
        features. Or one image (C, H, W); gray images may be without a channel, and channels may come last. In a
        tensor, or in a NumPy array, a torch `Dataset` or `DataLoader`, or a data set of `linfdist.data`: there bytes
        become pixels, floats are rounded to the model's precision, and the certificate is about the result.
    eps: text such as "8/255" or "0.3", meaning exactly that; a fraction; a float, meaning its exact binary value; or
        None for radii alone. Except with "margin" and "milp", also a tensor or array that broadcasts to x: one radius
        per pixel. Then `certified` is about that box, and `radius` about balls as always.
    y: (B,) the right classes, if only those shall count as certified: whole numbers, or names of classes. By default
        the labels that a data set has.
    method: a name of `linfdist.certificates.METHODS`, where each says what it is for. "margin" is one forward pass
        (Fact 3.6; with an MLP on top, Section 6). "box" takes intervals through all layers (Appendix B), and is never
        weaker. The others try the box first, so they prove at least as much, and take longer.
    radii: if False, the largest radius is not searched for: one pass only, and `radius` is what that pass proves.
    device: where to compute, such as "cuda" or "cpu", see `machine.choose_device`; by default where the model is. It
        stays where it is, and the results come to where x is. They are about the network as executed on that device.

    Returns:
        A `Certificate`: prediction, proved radius, and whether the image is certified at eps, one entry per image.

    Example:
        >>> model = ld.load("mnist-0.3")
        >>> images = ld.data.load("mnist", split="test").images[:8] / 255
        >>> ld.certify(model, images, eps="0.3").certified
        tensor([True, True, True, True, True, True, True, True])

    Images go through the network a few hundred at a time, so scratch memory does not grow with B. Raises ValueError or
    TypeError, with the reason, if no proof would hold.
    """
    check_method(method)
    home = x.device if isinstance(x, Tensor) else CPU
    if device is not None:
        there = choose_device(device)
        model, x = on_device(model, there), _moved(x, there)
    asked = as_asked(model, x, y)
    return _prove(asked, prover_of(asked[0], method), eps, radii).to(home)


def _moved(x: Samples, device: torch.device) -> Samples:
    """Move a tensor to a device; all else is converted there later."""
    if isinstance(x, Tensor):
        check_plain(x, "x")
    return x.to(device) if isinstance(x, Tensor) else x


def _prove(
    asked: tuple[Network, Tensor, Tensor | None, tuple[int, ...]], prove: Proves, eps: Radius | None, radii: bool
) -> Certificate:
    """Prove the inputs that `as_asked` returned, and return the certificates."""
    network, x, y, shape = asked
    ball = _eps_of_pixels(eps, x, shape, network) if isinstance(eps, np.ndarray | Tensor) else eps
    ball = ball if ball is None or isinstance(ball, Tensor) else parse_eps(ball)
    exact = ball if isinstance(ball, Fraction) else None
    return Certificate(*prove(x, ball, y, radii), domain=network.domain, eps=exact, class_names=network.class_names)


def _eps_of_pixels(eps: NDArray[Any] | Tensor, x: Tensor, shape: tuple[int, ...], network: Network) -> Tensor:
    """Arrange eps, which has one radius per number of samples of this shape, as the samples are arranged in x."""
    numbers = as_numbers(eps, "eps")
    if shape == tuple(x.shape) or (numbers.dim() == 4 and len(shape) != 4):
        return numbers
    try:
        whole = numbers.broadcast_to(shape)
    except RuntimeError:
        raise ValueError(f"eps of shape {tuple(numbers.shape)} does not broadcast to x {shape}") from None
    return arranged(whole, network.shapes)


def predict(
    model: object, x: Samples, eps: Radius, method: str = "box", device: str | torch.device | None = None
) -> Tensor:
    """Return the class of each image where it is certified at eps, and -1 elsewhere: (B,) int64. See `certify`."""
    return where_certified(certify(model, _unlabelled(x), eps, method=method, radii=False, device=device))


def _unlabelled(x: Samples) -> Samples:
    """Leave out the labels of a data set, which no prediction may use."""
    return x if isinstance(x, Tensor | np.ndarray) else (read(x)[0], None)


def where_certified(proof: Certificate) -> Tensor:
    """Return the prediction where it is certified, and -1 elsewhere."""
    if proof.certified is None:
        raise TypeError("predict needs an eps: it answers where the prediction is certified at eps")
    return proof.prediction.where(proof.certified, -1)


class Certifier:
    """A network as it was when this was made, ready to certify a single image at a time.

    model: a network as `certify` takes it, in eval mode. What is certified is a copy of it: whatever
    becomes of the model later, its tensors or its mode, changes nothing here. So all that depends on the network alone
    is checked and computed once, when this is made. In `certify` that is most of the time that one image takes.
    method, device: see `certify`.
    shape: (C, H, W) of the images, if the model is a `Stack` or another layer, which does not know it.

    Example:
        >>> certifier = ld.Certifier(ld.load("mnist-0.3"))
        >>> certifier(images[:1], eps="0.3", radii=False).certified  # the largest radius takes several times as long

    The certificates are those of `certify`, number by number. Threads may share a certifier; other processes make one
    from the model, as it cannot be pickled.
    """

    def __init__(
        self,
        model: object,
        method: str = "box",
        shape: Sequence[int] | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        check_method(method)
        if shape is None and isinstance(model, nn.Module) and not isinstance(model, Network):
            raise TypeError(f"shape: a {type(model).__name__} does not know its images, so give their shape (C, H, W)")
        network = as_network(model, shape or ())
        self.__network = _own_copy(network, device)
        self.__prover = prover_of(self.__network, method, own=True)
        self.__device = None if device is None else self.__network.device

    def __call__(self, x: Samples, eps: Radius | None, y: Any = None, radii: bool = True) -> Certificate:
        """Prove, image by image, that no change of the pixels by up to eps changes the prediction: see `certify`."""
        home = x.device if isinstance(x, Tensor) else CPU
        if self.__device is not None:
            x = _moved(x, self.__device)
        return _prove(as_asked(self.__network, x, y), self.__prover, eps, radii).to(home)

    def predict(self, x: Samples, eps: Radius) -> Tensor:
        """Return the class of each image where it is certified at eps, and -1 elsewhere: (B,) int64."""
        return where_certified(self(_unlabelled(x), eps, radii=False))

    def __copy__(self) -> "Certifier":
        """Return itself, since it is immutable."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Certifier":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Certifier cannot be pickled: whoever changed the bytes would change what it proves. Save the model "
            "(linfdist.save), and make a new Certifier from it where it is needed"
        )


@torch.no_grad()
def _own_copy(network: Network, device: str | torch.device | None) -> Network:
    """Return a copy that shares no module and no memory with the network; TypeError where there is none."""
    own = on_device(network, device)
    own = copy_of(network) if own is network else own
    memory = {_place(tensor) for tensor in tensors_of(network)} - {None}
    shared = any(_place(each) in memory for each in tensors_of(own))
    if isinstance(network, nn.Module) and isinstance(own, nn.Module):
        modules = {id(module) for module in network.modules()}
        shared = shared or any(id(module) in modules for module in own.modules())
    if shared or own is network:
        raise TypeError(
            f"a {type(network).__name__} makes copies that share modules or memory with it, and could "
            "change: use certify"
        )
    return own


def _place(tensor: Tensor) -> tuple[torch.device, int] | None:
    return (tensor.device, tensor.untyped_storage().data_ptr()) if tensor.numel() else None
