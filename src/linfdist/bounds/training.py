"""Differentiable lower bounds of the label's margins over balls, for training.

They prove nothing: the intervals have no slack for rounding, and all is computed in the network's own precision.
`linfdist.certify` computes the same bounds with all that a proof needs.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..models import PixelNet
from ..nn import Box, Stack
from .forms import forms_of, lowest, margin_weights, pull_back, pull_back_through
from .interval import bare_ball, boxes
from .zonotope import lowest_over, zonotope_and_box, zonotope_of


class Bounds:
    """Bounds of linear forms of the logits over a batch of balls, which are pushed through the network once."""

    def __init__(
        self,
        network: PixelNet,
        x: Tensor,
        eps: float,
        propagate: Callable[[Stack, Box], list[Box]] | None = None,
        parallel: bool = False,
    ) -> None:
        """Push the ball of radius eps around each image, within [0, 1], through the body.

        x: (B, C, H, W) in [0, 1]. propagate: returns the boxes of the body's layers; by intervals if it is None.
        parallel: which lines `by_lines` takes, see `Forms`.
        """
        self.network, self.parallel = network, parallel
        pixels = bare_ball(x, eps)
        self.boxes = propagate(network.body, pixels) if propagate else boxes(network.body, pixels, slack=False)

    def by_intervals(self, weight: Tensor, row: Tensor) -> Tensor:
        """Bound forms of logits from below (P,), over the features' box. weight: (P, classes) of images row (P,)."""
        return lowest(pull_back(self.network.readout, forms_of(weight, row), self.boxes[-1]), self.boxes[-1])

    def by_lines(self, weight: Tensor, row: Tensor) -> Tensor:
        """Bound the same forms over the box of pixels: pull them back through all layers (CROWN-IBP)."""
        forms = pull_back(self.network.readout, forms_of(weight, row, self.parallel), self.boxes[-1])
        return lowest(pull_back_through(self.network.body, forms, self.boxes[:-1]), self.boxes[0])

    def margins(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the forms z[y] − z[j] of all images and classes j in turn: weights (B · classes, classes) and rows."""
        classes = self.network.classes
        row = torch.arange(len(y), device=y.device).repeat_interleave(classes)
        other = torch.arange(classes, device=y.device).repeat(len(y))
        return margin_weights(y, row, other, classes, self.boxes[0].lower.dtype), row

    def interval_margins(self, y: Tensor) -> Tensor:
        """Bound z[y] − z[j] from below (B, classes) by intervals up to the features (IBP); 0 at the label."""
        return self.by_intervals(*self.margins(y)).view(len(y), -1)

    def linear_margins(self, y: Tensor) -> Tensor:
        """Bound z[y] − z[j] from below (B, classes) by linear forms of the pixels; 0 at the label."""
        return self.by_lines(*self.margins(y)).view(len(y), -1)

    def zonotope_margins(self, y: Tensor, worth: Tensor, room: int) -> Tensor:
        """Bound z[y] − z[j] from below (B, classes) by hybrid zonotopes, cut down to intervals; 0 at the label.

        Only the `room` pixels of each image that are `worth` (B, C, H, W) most have generators.
        """
        weight, row = self.margins(y)
        zonotope = zonotope_of(self.boxes[0], room, weight.dtype, worth)
        zonotope, box = zonotope_and_box(self.network.body, zonotope, self.boxes[0], slack=False)
        forms = pull_back(self.network.readout, forms_of(weight, row), box)
        return torch.maximum(lowest_over(forms, zonotope), lowest(forms, box)).view(len(y), -1)
