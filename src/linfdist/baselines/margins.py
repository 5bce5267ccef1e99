"""How far the right class leads at least, in every image of a ball: bounds that training differentiates.

They have no slack for rounding in the intervals, and are computed in the network's own precision: nothing is proved by
them. `linfdist.certify` computes the same bounds with all that a proof needs.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..models import PixelNet
from ..nn import Box, LipschitzModule, Readout, Stack
from ..nn.forms import forms_of, leads_of, lowest
from ..nn.zonotopes import lowest_over, zonotope_of


def intervals(body: Stack, pixels: Box) -> list[Box]:
    """Boxes of the inputs of all layers, and of the features, by intervals without slack."""
    found = body.boxes(pixels, bare=True)
    return [*found, list(body)[-1].bare_box(found[-1])]


def check_bounds(method: str, network: PixelNet, readout: str | None, layers: str | None) -> None:
    """Raise TypeError unless the network has the bounds that a method trains on: better now than after the warm-up.

    That is, the functions of the contract with these names: one of its readout, and one of all its layers.
    """
    refusing: list[type] = []
    if readout is not None and getattr(type(network.readout), readout) is getattr(Readout, readout):
        refusing.append(type(network.readout))  # its function is the contract's own, which refuses
    if layers is not None:
        refusal = getattr(LipschitzModule, layers)
        refusing += [type(layer) for layer in network.body if getattr(type(layer), layers) is refusal]
    if refusing:
        raise TypeError(
            f"method {method!r} cannot train a {type(network).__name__}: its part {refusing[0].__name__} has none of "
            f"the bounds that the loss is made of. Train a network that METHODS[{method!r}]().network(...) makes, or "
            "take another method"
        )


class Bounds:
    """A batch of balls, pushed through a network once; then bounds of linear forms of the logits."""

    def __init__(
        self,
        network: PixelNet,
        x: Tensor,
        eps: float,
        boxes: Callable[[Stack, Box], list[Box]] = intervals,
        parallel: bool = False,
    ) -> None:
        """x (B, C, H, W) in [0, 1]: the ball of radius eps around each, within [0, 1]. boxes: how they are pushed
        through the body. parallel: which lines `by_lines` takes, see `Forms`.
        """
        self.network, self.parallel = network, parallel
        self.boxes = boxes(network.body, Box((x - eps).clamp(min=0.0), (x + eps).clamp(max=1.0)))

    def by_intervals(self, weight: Tensor, row: Tensor) -> Tensor:
        """Lower bounds (P,) of forms weight (P, classes) of the logits of images row (P,), from the features' box."""
        return lowest(self.network.readout.pull_back(forms_of(weight, row), self.boxes[-1]), self.boxes[-1])

    def by_lines(self, weight: Tensor, row: Tensor) -> Tensor:
        """The same bounds, but from the pixels: the forms are pulled back through all layers (CROWN-IBP)."""
        forms = self.network.readout.pull_back(forms_of(weight, row, self.parallel), self.boxes[-1])
        return lowest(self.network.body.pull_back_through(forms, self.boxes[:-1]), self.boxes[0])

    def leads(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The forms z[y] − z[j], for all images and classes j in turn: weights (B · classes, classes), and rows."""
        classes = self.network.classes
        row = torch.arange(len(y), device=y.device).repeat_interleave(classes)
        other = torch.arange(classes, device=y.device).repeat(len(y))
        return leads_of(y, row, other, classes, self.boxes[0].lower.dtype), row

    def interval_margins(self, y: Tensor) -> Tensor:
        """Lower bounds (B, classes) of z[y] − z[j], 0 at the label, by intervals up to the features (IBP)."""
        return self.by_intervals(*self.leads(y)).view(len(y), -1)

    def linear_margins(self, y: Tensor) -> Tensor:
        """Lower bounds (B, classes) of z[y] − z[j], 0 at the label, by lines back to the pixels."""
        return self.by_lines(*self.leads(y)).view(len(y), -1)

    def zonotope_margins(self, y: Tensor, worth: Tensor, room: int) -> Tensor:
        """Lower bounds (B, classes) of z[y] − z[j], 0 at the label, by hybrid zonotopes, cut down to intervals.

        There are error terms for the `room` pixels of each image that are `worth` (B, C, H, W) most, and no others.
        """
        weight, row = self.leads(y)
        zonotope = zonotope_of(self.boxes[0], room, weight.dtype, worth)
        zonotope, box = self.network.body.zonotope_and_box(zonotope, self.boxes[0], bare=True)
        forms = self.network.readout.pull_back(forms_of(weight, row), box)
        return torch.maximum(lowest_over(forms, zonotope), lowest(forms, box)).view(len(y), -1)
