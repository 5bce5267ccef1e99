"""What every training step uses, as a pure function of the recipe and the step: nothing is hidden on modules."""

import math
from dataclasses import dataclass

from ..recipes import Recipe

PRODUCTS = (8, 10, 12, 14, 16, 20, 24, 28, 32)  # exponents that the kernels have as plain products (csrc/series.h)


@dataclass(frozen=True)
class State:
    """One step's settings."""

    epoch: float  # fraction of an epoch included
    p: float
    lr: float
    eps_train: float  # in pixels
    ce_weight: float  # λ of the scaled cross-entropy


def total_steps(recipe: Recipe, steps_per_epoch: int) -> int:
    """How many steps a run takes."""
    return max(1, round(recipe.epochs * steps_per_epoch))


def state_at(recipe: Recipe, step: int, steps_per_epoch: int) -> State:
    """The settings of step `step` = 0, 1, 2, … (Section 7.1 and Appendix D).

    p:    p_start for e1 epochs, then exponentially to p_end over e2 epochs (p_snap: from one product to the next up to
          32), then infinity for e3
    lr:   constant for e1 epochs, then cosine to 0 ("cosine": over all epochs)
    ε:    grows linearly over e1 epochs to eps_train
    λ:    ce_start, geometrically to ce_end while p grows
    """
    epoch = step / steps_per_epoch
    ramp = _clip((epoch - recipe.e1) / recipe.e2)

    if not recipe.smooth or epoch >= recipe.e1 + recipe.e2:
        p = math.inf
    else:
        p = recipe.p_start * (recipe.p_end / recipe.p_start) ** ramp
        if recipe.p_snap and PRODUCTS[0] <= p <= PRODUCTS[-1]:
            p = float(min(PRODUCTS, key=lambda product: abs(math.log(product / p))))

    constant = recipe.e1 if recipe.lr_schedule == "cosine_after_e1" else 0.0
    fraction = _clip((epoch - constant) / (recipe.epochs - constant))
    lr = recipe.lr * 0.5 * (1 + math.cos(math.pi * fraction))

    warm_up = _clip(epoch / recipe.e1) if recipe.e1 > 0 else 1.0
    eps_train = float(recipe.fraction("eps_train")) * warm_up if recipe.loss == "ibp" else 0.0

    ce_weight = 0.0
    if recipe.ce_start is not None and recipe.ce_end is not None:
        ce_weight = recipe.ce_start * (recipe.ce_end / recipe.ce_start) ** ramp
    return State(epoch, p, lr, eps_train, ce_weight)


def _clip(fraction: float) -> float:
    return min(max(fraction, 0.0), 1.0)
