"""Linear bounds: differences of logits, pulled back through the layers to linear forms of the pixels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..models import PixelNet
from ..nn import Box
from ..nn.base import widened
from .forms import (
    BLOCK,
    LARGEST,
    Forms,
    both_ends,
    both_signs,
    forms_of,
    lowest,
    margin_weights,
    pull_back,
    pull_back_through,
)
from .interval import known, nonlinear
from .windows import windows_of


class LinearBounds:
    """Lower bounds of z[best] − z[other] over boxes of pixels, of the network as executed.

    through: True if the boxes of nonlinear layers are also found by pulling back forms (CROWN, Fast-Lin); False if they
    are found by intervals alone, so that only the last step is linear (CROWN-IBP). parallel: True for Fast-Lin, see
    `Forms`.

    Raises TypeError that names the layer if the network has one without linear bounds.
    """

    def __init__(self, network: PixelNet, through: bool, parallel: bool = False) -> None:
        self.network, self.through, self.parallel = network, through, parallel
        blank = network.any_tensor.new_zeros(1, *network.shape)
        first = torch.zeros(1, dtype=torch.int64, device=blank.device)
        boxes = self._boxes(Box(blank, blank), through=False)
        self._margins(boxes, first, first, first)  # raises TypeError if a layer has no linear bounds

    def margins(self, pixels: Box, best: Tensor) -> Tensor:
        """Bound z[best] − z[j] from below over the boxes: (b, classes) float64.

        The bound is infinity at the best class itself, and −infinity where nothing can be proved.
        pixels: (b, C, H, W), in the network's precision; best: (b,).
        """
        boxes = self._boxes(pixels, self.through)
        apart = torch.full((len(best), self.network.classes), -torch.inf, dtype=torch.float64, device=best.device)
        row, other = apart.scatter(1, best[:, None], torch.inf).isneginf().nonzero().unbind(1)
        few = self._forms_at_once(self.network.elements())
        for some, others in zip(row.split(few), other.split(few), strict=True):
            span, near = _near(boxes, some)
            apart[some, others] = self._margins(near, best[span], some - span.start, others)
        return known(apart, best)

    def _margins(self, boxes: list[Box], best: Tensor, row: Tensor, other: Tensor) -> Tensor:
        """Bound z[best] − z[other] from below: (P,). boxes: of the inputs of all layers, and of the features."""
        weight = margin_weights(best, row, other, self.network.classes, torch.float64)
        forms = pull_back(self.network.readout, forms_of(weight, row, self.parallel), boxes[-1])
        return self._over_pixels(forms, boxes[:-1])

    def _over_pixels(self, forms: Forms, boxes: list[Box]) -> Tensor:
        return lowest(pull_back_through(self.network.body, forms, boxes), boxes[0])

    def _boxes(self, pixels: Box, through: bool) -> list[Box]:
        """Bound the inputs of every layer, as computed, and the features."""
        found, seen = [pixels], False
        for layer in self.network.body:
            if nonlinear(layer):
                if through and seen:
                    found[-1] = self._tightened(found)
                seen = True
            found.append(ordinary(layer.forward_box(found[-1])))
        return found

    def _tightened(self, boxes: list[Box]) -> Box:
        """Tighten the last box by linear bounds of those coordinates whose signs are not known."""
        lower, upper = (side.to(torch.float64, copy=True) for side in boxes[-1])
        shape = tuple(lower.shape[1:])
        lower, upper = lower.flatten(1), upper.flatten(1)
        row, place = ((lower < 0) & (upper > 0)).nonzero().unbind(1)
        if not len(row):
            return boxes[-1]
        shapes = [tuple(box.lower.shape[1:]) for box in boxes]
        windows = windows_of(list(self.network.body)[: len(boxes) - 1], shapes)
        few = self._forms_at_once(2 * (self.network.elements() if windows is None else windows.elements))
        for some, places in zip(row.split(few), place.split(few), strict=True):
            span, near = _near(boxes[:-1], some)
            here = some - span.start
            if windows is None:
                ends = both_ends(self._over_pixels(both_signs(places, here, shape, self.parallel), near))
            else:
                ends = windows.ends(near, here, places, self.parallel)
            lower[some, places] = torch.fmax(lower[some, places], ends.lower)
            upper[some, places] = torch.fmin(upper[some, places], ends.upper)
        box, dtype = Box(lower.unflatten(1, shape), upper.unflatten(1, shape)), boxes[-1].lower.dtype
        cut = widened(box.lower, box.upper, torch.zeros_like(box.lower), dtype)
        return Box(torch.maximum(cut.lower, boxes[-1].lower), torch.minimum(cut.upper, boxes[-1].upper))

    @staticmethod
    def _forms_at_once(elements: int) -> int:
        """Return how many forms to pull back together, if the largest tensor on the way has `elements` for each."""
        return max(1, BLOCK // elements)


def _near(boxes: Sequence[Box], row: Tensor) -> tuple[slice, list[Box]]:
    """Return the span of samples that the sorted rows refer to, and the boxes of these samples alone."""
    span = slice(int(row[0]), int(row[-1]) + 1) if len(row) else slice(0, 0)
    return span, [Box(*(side[span] for side in box)) for box in boxes]


def ordinary(box: Box) -> Box:
    """Replace bounds of a box that are too large for linear forms, `LARGEST` or more, by NaN."""
    return Box(*(side.where(side.abs() < LARGEST, torch.nan) for side in box))
