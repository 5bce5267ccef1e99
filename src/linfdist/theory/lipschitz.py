"""Remark 3.5 and Appendix C: how far networks of other distances, and of training's finite p, are from 1-Lipschitz."""

import math

import torch
from torch import Tensor

from ..models import PixelNet


def lipschitz_bound(model: PixelNet, p: float) -> float:
    """Bound the ℓ∞ Lipschitz constant of the logits, in pixels, of a network with ℓp distances; not rounded outwards.

    The gradient of ‖x − w‖_p has ℓq norm 1, with 1/p + 1/q = 1, so its ℓ1 norm is at most d^(1/p) for d inputs: that is
    the constant of a neuron in ℓ∞, and it is attained where all |x[i] − w[i]| are the same. The layers' constants
    multiply. At p = ∞ each is 1; at p = 1, as in an AdderNet, it is d.
    """
    if not p >= 1:
        raise ValueError(f"p = {p!r}: must be a number in [1, inf]")
    own = model.readout.lipschitz
    if own is None:
        raise TypeError(f"a {type(model.readout).__name__} has no Lipschitz constant: take a network of distances")
    bound, shape = own, tuple(model.shape)
    for layer in model.body:
        outputs = layer.output_shape(shape)
        inputs = layer.terms(shape) // math.prod(outputs)  # of a neuron
        bound *= layer.lipschitz * (inputs ** (1 / p) if layer.holds_distances else 1.0)
        shape = outputs
    return bound * (math.prod(shape) ** (1 / p) if model.readout.holds_distances else 1.0)


@torch.enable_grad()
def measured_lipschitz(model: PixelNet, images: Tensor, p: float) -> float:
    """Find the largest ℓ1 norm of a logit's gradient at these images (B, C, H, W), in pixels, with ℓp distances.

    Near one of them the network changes that much faster than its pixels, so its Lipschitz constant is at least that.
    """
    if not len(images):
        raise ValueError("images is empty: pass at least one image to measure at")
    x = images.detach().clone().requires_grad_(True)
    logits = model(x, p)
    steepest = 0.0
    for k in range(logits.shape[1]):
        (slope,) = torch.autograd.grad(logits[:, k].sum(), x, retain_graph=True)
        steepest = max(steepest, float(slope.flatten(1).abs().double().sum(1).max()))
    return steepest
