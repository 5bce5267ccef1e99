"""Random weights whose sums tell how large the numbers are that they weigh."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

LARGEST = 1e6  # of the weights: the median, which is all that is asked for, does not depend on it


def cauchy(shape: Sequence[int], generator: torch.Generator | None, like: Tensor) -> Tensor:
    """Independent weights from a Cauchy distribution: the median of |Σ weights · numbers| is Σ |numbers|.

    They are tangents of random angles, which is four times as fast as `Tensor.cauchy_`.
    """
    angles = torch.rand(*shape, generator=generator).sub_(0.5).mul_(math.pi)
    return angles.tan_().clamp_(-LARGEST, LARGEST).to(like)
