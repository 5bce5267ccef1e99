"""The constants of images that come without any: mean and standard deviation of their pixels."""

import torch
from torch import Tensor

from .base import Dataset, Info


def measure(train: Dataset, title: str, test: int = 0) -> Info:
    """Return the constants of a training set; `test` is the number of test images.

    The mean is that of each channel; the standard deviation is one number, of a pixel about the mean of its channel.
    """
    mean, variance = _moments(train.images)
    channels, height, width = train.images.shape[1:]
    return Info(
        name=train.name,
        title=title,
        shape=(channels, height, width),
        num_classes=len(train.classes),
        train=len(train),
        test=test,
        mean=tuple(mean.tolist()),
        std=variance.mean().sqrt().item(),
    )


def _moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and variance of each channel, on the 0–1 intensity scale."""
    if images.dtype != torch.uint8:
        channels = images.transpose(0, 1).flatten(1)
        mean = torch.stack([channel.double().mean() for channel in channels])
        return mean, torch.stack([channel.double().var(correction=0) for channel in channels])
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)])
    values = torch.arange(256, dtype=torch.float64) / 255
    mean = (counts * values).sum(1) / counts.sum(1)
    return mean, (counts * (values - mean[:, None]) ** 2).sum(1) / counts.sum(1)
