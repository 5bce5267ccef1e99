"""Certificates again and again of one network, which nobody can change in between."""

from collections.abc import Sequence
from typing import Any, NoReturn, cast

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..machine import CPU
from ..models import PixelNet, as_network
from .certificate import Certificate, Samples, as_tensors, stated, where_certified
from .checks import check_plain
from .device import copy_of, on_device
from .prover import Eps, Prover, check_method


class Certifier:
    """A network as it was when this was made, ready to certify a single image at a time.

    model: a network in floating point, as `certify` takes it, in eval mode. What is certified is a copy of it: whatever
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
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"a Certifier is for networks in floating point, not for a {type(model).__name__}: load names and "
                "paths with linfdist.load, and give exact networks to certify"
            )
        if shape is None and not isinstance(model, PixelNet):
            raise TypeError(f"shape: a {type(model).__name__} does not know its images, so give their shape (C, H, W)")
        own = cast(nn.Module, on_device(_separate_copy(model), device))
        self.__network = as_network(own, shape or ())
        self.__prover = Prover(self.__network, method, own=True)
        self.__device = None if device is None else self.__network.any_tensor.device

    def __call__(self, x: Samples, eps: Eps | NDArray[Any] | None, y: Any = None, radii: bool = True) -> Certificate:
        """Prove, image by image, that no change of the pixels by up to eps changes the prediction: see `certify`."""
        home = x.device if isinstance(x, Tensor) else CPU
        if self.__device is not None and isinstance(x, Tensor):
            check_plain(x, "x")
            x = x.to(self.__device)
        samples, ball, labels = as_tensors(self.__network, x, eps, y)
        proof = stated(Certificate(*self.__prover(samples, ball, labels, radii)), ball)
        return proof if self.__device is None else proof.to(home)

    def predict(self, x: Samples, eps: Eps | NDArray[Any]) -> Tensor:
        """The class of each image where it is certified at eps, and -1 elsewhere: (B,) int64."""
        return where_certified(self(x, eps, radii=False))

    def __copy__(self) -> "Certifier":
        """Itself, as nothing changes it."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Certifier":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Certifier cannot be pickled: whoever changed the bytes would change what it proves. Save the model "
            "(linfdist.models.save), and make a new Certifier from it where it is needed"
        )


@torch.no_grad()
def _separate_copy(model: nn.Module) -> nn.Module:
    """A copy that shares no module and no memory with the model; TypeError where there is none."""
    own = copy_of(model)
    modules, memory = {id(module) for module in model.modules()}, {_place(tensor) for tensor in _tensors(model)}
    if any(id(module) in modules for module in own.modules()) or any(_place(each) in memory for each in _tensors(own)):
        raise TypeError(
            f"a {type(model).__name__} makes copies that share modules or memory with it, and could change: use certify"
        )
    return own


def _tensors(model: nn.Module) -> list[Tensor]:
    return [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.numel()]


def _place(tensor: Tensor) -> tuple[torch.device, int]:
    return tensor.device, tensor.untyped_storage().data_ptr()
