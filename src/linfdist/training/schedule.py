"""The settings of every training step, as pure functions of the recipe and the step: nothing is hidden on modules."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..recipes import Recipe
from ..recipes.losses import DECLARED, Geometric, WarmUp

PRODUCTS = (8, 10, 12, 14, 16, 20, 24, 28, 32)  # exponents that the kernels have as plain products (csrc/series.h)


@dataclass(frozen=True)
class State:
    """The settings of one step."""

    epoch: float  # with its fraction
    p: float
    lr: float
    boxes: bool  # whether the loss is taken of the worst case over boxes
    loss: Mapping[str, float]  # the scheduled values that the loss declares; radii are in pixels


def total_steps(recipe: Recipe, steps_per_epoch: int) -> int:
    """Return how many steps a run takes."""
    return max(1, round(recipe.epochs * steps_per_epoch))


def state_at(recipe: Recipe, step: int, steps_per_epoch: int) -> State:
    """Return the settings of step number `step` = 0, 1, 2, … (Section 7.1 and Appendix D).

    p:     p_start for e1 epochs, then growing to p_end over e2 epochs, see `p_between` (with p_snap: from one product
           to the next up to 32), then infinity for e3 and e4 epochs
    lr:    constant for e1 epochs, then falling to 0 like a cosine ("cosine": over e1, e2 and e3); in e4 once more, from
           box_lr
    boxes: in e4, the last epochs
    loss:  as `recipes.losses` declares for the recipe's loss: values that warm up over e1, or move geometrically over
           e2, while p grows
    """
    epoch = step / steps_per_epoch
    warm_up = _clip(epoch / recipe.e1) if recipe.e1 > 0 else 1.0
    ramp = _clip((epoch - recipe.e1) / recipe.e2)

    if not recipe.smooth or epoch >= recipe.e1 + recipe.e2:
        p = math.inf
    else:
        p = p_between(recipe.p_start, recipe.p_end, recipe.p_bend, ramp)
        if recipe.p_snap and PRODUCTS[0] <= p <= PRODUCTS[-1]:
            p = float(min(PRODUCTS, key=lambda product: abs(math.log(product / p))))

    on_points = recipe.epochs - recipe.e4
    boxes = recipe.e4 > 0 and epoch >= on_points
    if boxes:
        lr = recipe.number("box_lr") * _cosine((epoch - on_points) / recipe.e4)
    else:
        constant = recipe.e1 if recipe.lr_schedule == "cosine_after_e1" else 0.0
        lr = recipe.lr * _cosine((epoch - constant) / (on_points - constant))

    values = {name: _value(recipe, kind, warm_up, ramp) for name, kind in DECLARED[recipe.loss].schedule.items()}
    return State(epoch, p, lr, boxes, values)


def p_between(start: float, end: float, bend: float, ramp: float) -> float:
    """Return p after the share `ramp` of its growth from start to end; exactly `start` at first.

    p^-bend falls linearly with ramp; bend = 0, the limit, is exponential growth. An lp distance in n coordinates is
    n^(1/p)-Lipschitz, so at bend = 1 the logarithm of that constant falls linearly.
    """
    if ramp >= 1:
        return end
    if bend == 0:
        return start * (end / start) ** ramp
    return start * math.exp(-math.log1p(ramp * math.expm1(-bend * math.log(end / start))) / bend)


def _value(recipe: Recipe, kind: WarmUp | Geometric, warm_up: float, ramp: float) -> float:
    if isinstance(kind, WarmUp):
        return recipe.number(kind.key) * warm_up
    start, end = recipe.number(kind.start), recipe.number(kind.end)
    return start * (end / start) ** ramp


def _cosine(fraction: float) -> float:
    """Fall from 1 at 0 to 0 at 1."""
    return 0.5 * (1 + math.cos(math.pi * _clip(fraction)))


def _clip(fraction: float) -> float:
    return min(max(fraction, 0.0), 1.0)
