"""Networks for the attacks of the Adversarial Robustness Toolbox (ART)."""

import copy
from importlib import import_module
from typing import Any

from torch import nn

from ..errors import described
from ..models import Network
from .surrogate import Surrogate


def art_classifier(network: Network, p: float = 200.0) -> Any:
    """Return the network as a `PyTorchClassifier` of ART, which ART's attacks take. Needs the extra `art`.

    It takes pixels of [0, 1], (N, C, H, W), and has the logits of p = inf, bit for bit, with surrogate gradients at
    `p`; p = inf gives the network's own gradients, which are sparse. It is a frozen copy in eval mode, whatever ART
    does to it. Of an exact network it is the nearest one in floats: ask the exact network about what an attack finds.

    ART computes in float32, and what it returns may lie outside the ball by a rounding: `attacks.size` measures a
    perturbation exactly.
    """
    if not isinstance(network, Network):
        raise TypeError(f"network must be a network, got {described(network)}: ld.load('mnist-0.3')")
    try:
        classifiers = import_module("art.estimators.classification")
    except ImportError as error:
        raise ImportError(
            f"art_classifier needs the Adversarial Robustness Toolbox ({error}): "
            "pip install adversarial-robustness-toolbox multiprocess",
            name="art",
        ) from None
    floats = copy.deepcopy(network.floats).requires_grad_(False)
    return classifiers.PyTorchClassifier(
        model=_Frozen(floats, p),
        loss=nn.CrossEntropyLoss(),
        input_shape=floats.shape,
        nb_classes=floats.classes,
        clip_values=(0.0, 1.0),
        device_type="cpu" if floats.device.type == "cpu" else "gpu",
    )


class _Frozen(Surrogate):
    """It stays in eval mode: another mode is another function, and would move running means."""

    def train(self, mode: bool = True) -> "_Frozen":
        super().train(False)
        return self
