"""AutoAttack (Croce & Hein, ICML 2020) through the package pyautoattack: APGD-CE, targeted APGD-DLR and FAB, Square."""

import logging
import sys
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from ..models import PixelNet
from .base import Attack, Ball
from .surrogate import Surrogate

BATCH = 250


class Auto(Attack):
    """The standard version, all parameters as published, on the network with surrogate gradients at `p`.

    steps: of the gradient attacks, for each target; queries: of Square. Needs the extra `attack`. It computes in
    float32; a success that does not survive the exact clipping of the base class does not count. If it fails, the image
    comes back unchanged.
    """

    name = "auto"

    def __init__(self, seed: int = 0, p: float = 200.0, steps: int = 100, queries: int = 5000) -> None:
        if min(steps, queries) < 1:
            raise ValueError(f"steps = {steps}, queries = {queries}: must be at least 1")
        self.seed, self.p, self.steps, self.queries = seed, p, steps, queries
        self._package = _package()

    def search(self, network: PixelNet, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        images = x.clone()
        radii = ball.eps.flatten()
        for eps in radii.unique().tolist():
            same = radii == eps
            images[same] = self._run(network, x[same], y[same], eps).to(x.dtype)
        return images

    def _run(self, network: PixelNet, x: Tensor, y: Tensor, eps: float) -> Tensor:
        suite = self._package.AutoAttack(Surrogate(network, self.p), eps=eps, seed=self.seed, device=x.device)
        classes = network(x[:1]).shape[1]
        suite.apgd_targeted.n_target_classes = suite.fab.n_target_classes = min(9, classes - 1)
        if classes < 4:  # its loss needs the third and the fourth logit
            suite.attacks_to_run = [attack for attack in suite.attacks_to_run if attack != "apgd-t"]
        suite.apgd.n_iter = suite.apgd_targeted.n_iter = suite.fab.n_iter = self.steps
        suite.square.n_queries = self.queries
        tracer = sys.gettrace()  # one of its checks sets another and forgets to put this one back
        cards = [x.device] if x.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(cards):  # it seeds the global generators
                attacked, _ = suite.run_standard_evaluation(x.float(), y, batch_size=BATCH)
        finally:
            sys.settrace(tracer)
        return attacked


def _package() -> ModuleType:
    try:
        package = import_module("pyautoattack")
    except ImportError:
        raise ImportError(
            "the attack 'auto' needs the package pyautoattack: pip install pyautoattack", name="pyautoattack"
        ) from None
    logging.getLogger("auto-attack").addHandler(logging.NullHandler())  # its hints are for those who ask for logs
    return package
