"""Training of conventional networks, in memory: the loop that all methods share."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.augmentation import Augment, augment
from ..data.samples import as_pixels
from ..models import PixelNet
from ..training import Diverged
from .methods import TRAINING_METHODS, TrainingMethod
from .plan import Plan


@dataclass(frozen=True)
class Epoch:
    """The state of a training at the end of an epoch. loss and accuracy (percent): means over the epoch."""

    epoch: float
    loss: float
    accuracy: float
    eps: float


def train(
    network: PixelNet,
    images: Tensor,
    labels: Tensor,
    method: str | TrainingMethod,
    plan: Plan,
    callback: Callable[[Epoch], object] | None = None,
) -> PixelNet:
    """Train a network on images (N, C, H, W), uint8 or float32 in [0, 1], with labels (N,); return it in eval mode.

    method: a name of `TRAINING_METHODS`, or a `TrainingMethod`. callback: called after each epoch; an exception that it
    raises ends the training. The plan's seed and the step determine the order, the augmentation and whatever a method
    draws; torch's own generator is left as it was. Raises Raises `Diverged` if the loss is no longer finite.
    """
    if isinstance(method, str):
        if method not in TRAINING_METHODS:
            raise ValueError(f"method = {method!r}: must be one of {', '.join(TRAINING_METHODS)}")
        method = TRAINING_METHODS[method]()
    if len(images) != len(labels) or plan.batch_size > len(images):
        raise ValueError(
            f"there are {len(images)} images and {len(labels)} labels: need one label for each image, and at least "
            f"batch_size = {plan.batch_size} of them"
        )
    network.check_images(as_pixels(images[:1]))
    steps_per_epoch = len(images) // plan.batch_size
    total = max(1, round(plan.epochs * steps_per_epoch))
    device, change = network.any_tensor.device, Augment(pad=plan.pad, pad_mode=plan.pad_mode, flip=plan.flip)
    parameters = [*network.parameters(), *method.start(network, plan.at(0, steps_per_epoch))]
    optimiser = torch.optim.Adam(parameters, lr=plan.lr, **method.adam)
    order, sums = torch.empty(0, dtype=torch.int64), [0.0, 0.0, 0.0]
    network.train()
    for step in range(total):
        stage = plan.at(step, steps_per_epoch)
        if step % steps_per_epoch == 0:
            order = torch.randperm(len(images), generator=stage.generator("order"))
        place = step % steps_per_epoch * plan.batch_size
        index = order[place : place + plan.batch_size]
        few = augment(images[index], change, stage.generator("augmentation"))
        x, y = as_pixels(few.to(device)), labels[index].to(device)
        loss, z = method(network, x, y, stage)
        if not math.isfinite(value := float(loss.detach())):
            raise Diverged(
                f"the loss became {value} at step {step} (epoch {stage.epoch:.2f}): lower lr = {plan.lr:g}", step
            )
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, plan.clip)
        for group in optimiser.param_groups:
            group["lr"] = stage.lr
        optimiser.step()
        method.after_step(network)
        sums = [sums[0] + value * len(y), sums[1] + int((z.detach().argmax(1) == y).sum()), sums[2] + len(y)]
        if (step + 1) % steps_per_epoch == 0 or step + 1 == total:
            if callback is not None:
                callback(Epoch((step + 1) / steps_per_epoch, sums[0] / sums[2], 100 * sums[1] / sums[2], stage.eps))
            sums = [0.0, 0.0, 0.0]
    return network.eval()
