"""Adam with ℓp weight decay for the weights of dist layers, and conventional decay for other parameters."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..ops.adam import adam_step


@dataclass
class _Slot:
    """One parameter and its moments."""

    name: str
    parameter: nn.Parameter
    mean: Tensor
    square: Tensor
    dist: bool  # a weight of a dist layer: ℓp decay
    lr_factor: float


class DistAdam:
    """Adam(β₁, β₂, ε) over named parameters. `lp` names those whose decay follows the network's p."""

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        lp: set[str],
        lr_factors: dict[str, float],
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
    ) -> None:
        self.beta1, self.beta2, self.eps, self.weight_decay = beta1, beta2, eps, weight_decay
        self.steps = 0
        self._slots = [
            _Slot(name, p, torch.zeros_like(p), torch.zeros_like(p), name in lp, lr_factors.get(name, 1.0))
            for name, p in parameters
        ]

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for slot in self._slots:
            slot.parameter.grad = None

    @torch.no_grad()
    def step(self, lr: float, p: float) -> None:
        """Do one step with learning rate `lr`; `p` is that of the network's distances."""
        self.steps += 1
        for slot in self._slots:
            if slot.parameter.grad is None:
                continue
            adam_step(
                slot.parameter,
                slot.parameter.grad,
                slot.mean,
                slot.square,
                lr=lr * slot.lr_factor,
                betas=(self.beta1, self.beta2),
                eps=self.eps,
                decay=self.weight_decay if slot.parameter.dim() > 0 else 0.0,
                p=max(p, 2.0) if slot.dist else 2.0,
                step=self.steps,
            )

    def state_dict(self) -> dict[str, Tensor]:
        """Return both moments of every parameter by name; the caller keeps the step count."""
        means = {f"{slot.name}.mean": slot.mean for slot in self._slots}
        return means | {f"{slot.name}.square": slot.square for slot in self._slots}

    def load_state_dict(self, state: dict[str, Tensor], steps: int) -> None:
        """Continue from what `state_dict` gave after `steps` steps; ValueError if names, shapes or types differ."""
        own = self.state_dict()
        if wrong := sorted(own.keys() ^ state.keys()):
            raise ValueError(f"moments are missing or unknown: {', '.join(wrong)}")
        for name, tensor in state.items():
            if (tensor.shape, tensor.dtype) != (own[name].shape, own[name].dtype):
                raise ValueError(
                    f"{name} is {tensor.dtype} {tuple(tensor.shape)}, "
                    f"expected {own[name].dtype} {tuple(own[name].shape)}"
                )
            square = name.endswith(".square")  # a square may have overflowed, and stops its weight
            if not ((tensor >= 0) if square else tensor.isfinite()).all():
                raise ValueError(f"{name} has values that no moment can have")
            own[name].copy_(tensor)
        self.steps = steps
