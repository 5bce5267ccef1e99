"""Which training images an epoch visits: all of them, or fewer of those that the loss does not move at the time."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

SAFE = 1.2  # an image leads by so many thresholds or more: the hinge has no gradient, and will have none soon
LOST = -0.5  # it trails by so many or more: the clipped hinge has none either


class Visits:
    """How far each of `count` images led when it was last seen, in thresholds, and whom to visit next.

    safe_share, lost_share: the probability with which a safe or lost image takes part in a pass over the images; all
    others always do. An epoch is as many visits as there are images, so it has several passes if some are left out.
    """

    def __init__(self, count: int, safe_share: float = 1.0, lost_share: float = 1.0) -> None:
        self.count, self.safe_share, self.lost_share = count, safe_share, lost_share
        self.chooses = safe_share < 1 or lost_share < 1
        self.leads = torch.full((count,), 0.5, dtype=torch.float32)  # not seen yet: neither safe nor lost
        self.order = torch.empty(0, dtype=torch.int64)  # of the epoch that goes on

    def begin_epoch(self, length: int, everyone: bool, generator: torch.Generator) -> None:
        """Draw the next `length` images: fresh permutations one after the other, without those that are left out."""
        share = torch.ones(self.count, dtype=torch.float32)
        share[self.leads >= SAFE] = self.safe_share
        share[self.leads <= LOST] = self.lost_share
        passes, found = [], 0
        while found < length:
            drawn = torch.randperm(self.count, generator=generator)
            if self.chooses and not everyone:
                drawn = drawn[torch.rand(self.count, generator=generator, dtype=torch.float32) < share[drawn]]
            passes.append(drawn)
            found += len(drawn)
        self.order = torch.cat(passes)[:length]

    def learn(self, first: int, leads: Tensor) -> None:
        """Keep the leads of the images that came in the order from place `first` on."""
        order = self.order[first : first + len(leads)]
        self.leads.numpy()[order.numpy()] = leads.numpy()  # NumPy promises that of two visits the last one counts

    def state_dict(self) -> dict[str, Tensor]:
        """Return what a resumed training needs; nothing if all images are visited, as the seed tells the order then."""
        return {"leads": self.leads, "order": self.order} if self.chooses else {}

    def load_state_dict(self, tensors: Mapping[str, Tensor], length: int, path: Path) -> None:
        """Resume from what `state_dict` gave; length: of the order; path: where it came from, for error messages."""
        own = self.state_dict()
        if wrong := sorted(own.keys() ^ tensors.keys()):
            raise ValueError(f"{path} does not fit this run: visits are missing or unknown: {', '.join(wrong)}")
        if not own:
            return
        leads, order = tensors["leads"], tensors["order"]
        fits = leads.shape == (self.count,) and leads.dtype == torch.float32 and not leads.isnan().any()
        drawn = order.dtype == torch.int64 and order.shape == (length,)
        if not fits or not drawn or (order < 0).any() or (order >= self.count).any():
            raise ValueError(f"{path} does not fit this run: its visits are not those of {self.count} images")
        self.leads, self.order = leads.clone(), order.clone()
