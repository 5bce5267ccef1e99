"""What the methods share: one look at a few images, then questions about balls around them."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Proof(ABC):
    """What one method can say about the network's predictions on a batch x (B, C, H, W), after a forward pass.

    prediction: (B,) int64. radius: (B,) float64, proved by that pass alone: the prediction is constant on the closed
    ball. closed_form: whether that is all this method can prove, so that there is nothing to search for.
    together: how many images cost hardly more than one, see `largest_proved`.
    """

    closed_form = False
    together = 1

    def __init__(self, prediction: Tensor, radius: Tensor | None = None) -> None:
        self.prediction = prediction
        self.radius = torch.zeros_like(prediction, dtype=torch.float64) if radius is None else radius

    @abstractmethod
    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        """(b,) bool: the predictions of images x[rows] are proved constant on their closed eps-balls within [0, 1].

        rows (b,) int64; eps float64 >= 0, broadcastable to x[rows]: one for all, one for each image or for each pixel.
        """


def largest_of(eps: Tensor) -> Tensor:
    """The radius of a ball that holds the box of each image: (b,), or (1,) for all."""
    return eps.flatten(1).amax(1)
