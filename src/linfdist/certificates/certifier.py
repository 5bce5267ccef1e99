"""Certificates again and again of one network, which nobody can change in between."""

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from ..machine import CPU
from ..models import Network, as_network
from .certificate import Certificate, Radius, Samples, as_asked, proved, where_certified
from .checks import check_plain
from .device import copy_of, on_device, tensors_of
from .methods import check_method
from .prover import prover_of


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
        if self.__device is not None and isinstance(x, Tensor):
            check_plain(x, "x")
            x = x.to(self.__device)
        network, samples, ball, labels = as_asked(self.__network, x, eps, y)
        proof = proved(network, self.__prover, samples, ball, labels, radii)
        return proof if self.__device is None else proof.to(home)

    def predict(self, x: Samples, eps: Radius) -> Tensor:
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
