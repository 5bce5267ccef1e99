"""The head of a frozen network: float64, with bounds that hold in whatever order its sums are executed."""

from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST = 1e100  # of all weights: sums cannot overflow, and what underflows stays below 1e-200 per term
ROUNDING = 2.0**-50  # times (terms + 16) and the sum of magnitudes: see `lost`
UNDERFLOW = 1e-200
TANH = 2.0**-48  # 16 epsilons: 4 for the tanh as executed, 4 for the one in the bounds, and as much again
CAUTION = 2  # times the slack that the twin demands, which sums in another order


def lost(size: Tensor, terms: int) -> Tensor:
    """Bound the error of a sum of `terms` products and a bias in float64; `size`: the sum of its terms' magnitudes.

    The bound holds in any order, with or without FMA, denormals flushed or not.

    Its execution loses (terms + 2) 2^-53 of `size`, and computing bounds of it twice that: (3 terms + 10) 2^-53 in all.
    The result is 8 (terms + 16) 2^-53 of `size`. A product that underflows loses 2^-1022 times the other factor.
    """
    return (terms + 16) * (ROUNDING * size + UNDERFLOW)


@dataclass(frozen=True, eq=False)
class FrozenHead:
    """z = w2 tanh(w1 n + b1) + b2 of features n, whole numbers in grid units, which float64 holds exactly.

    w1 (H, F), b1 (H,), w2 (classes, H), b2 (classes,), all float64. Raises ValueError for values that are not finite or
    above 1e100.
    """

    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor

    def __post_init__(self) -> None:
        for name, tensor in self.tensors().items():
            if tensor.dtype != torch.float64:
                raise ValueError(f"{name} of the head is {tensor.dtype}, expected torch.float64")
            size = float(tensor.abs().max()) if tensor.numel() else float("nan")
            if not size <= LARGEST:
                raise ValueError(
                    f"{name} of the head reaches {size}: nothing but finite values up to {LARGEST} is safe"
                )
        shapes = [tuple(tensor.shape) for tensor in self.tensors().values()]
        hidden, features, classes = self.b1.numel(), self.w1.shape[-1:], self.b2.numel()
        if shapes != [(hidden, *features), (hidden,), (classes, hidden), (classes,)]:
            raise ValueError(f"the tensors of the head do not fit together: {shapes}")

    def tensors(self) -> dict[str, Tensor]:
        """Return its four tensors by their names in the file."""
        return {"w1": self.w1, "b1": self.b1, "w2": self.w2, "b2": self.b2}

    def __call__(self, n: Tensor) -> Tensor:
        """Map integers (B, F) to logits (B, classes) float64, whose last bits depend on the order of summation."""
        return (n.double() @ self.w1.T + self.b1).tanh() @ self.w2.T + self.b2

    def hidden_slack(self, furthest: Tensor) -> Tensor:
        """Bound the distance of w1 n + b1 as executed from the exact one, for |n| <= furthest: (..., F) -> (..., H)."""
        return lost(furthest @ self.w1.abs().T + self.b1.abs(), self.w1.shape[1])

    def output_slack(self) -> Tensor:
        """Bound the distance of w2 t + b2 as executed from the exact one, for any t that a tanh gives: (classes,)."""
        return lost(self.w2.abs().sum(1) + self.b2.abs(), self.w2.shape[1])

    def error(self, n: Tensor) -> Tensor:
        """Bound the distance of the logits of (B, F), executed in any order, from the exact ones: (B, classes)."""
        return (self.hidden_slack(n.abs().double()) + TANH) @ self.w2.abs().T + self.output_slack()

    def proves(self, low: Tensor, high: Tensor, best: Tensor) -> Tensor:
        """Return where class best[k] has the largest logit, without a tie, for all low <= n <= high: (B,) bool.

        low, high: (B, F), of the features n. The proof holds for every order of execution. It uses intervals, with the
        last layer merged with the difference of two classes.
        """
        slack = CAUTION * self.hidden_slack(torch.maximum(low.abs(), high.abs()))
        middle, reach = (low + high) / 2 @ self.w1.T + self.b1, (high - low) / 2 @ self.w1.abs().T + slack
        least, most = (middle - reach).tanh() - CAUTION * TANH, (middle + reach).tanh() + CAUTION * TANH
        middle, reach = (least + most) / 2, (most - least) / 2  # (B, H)
        difference = torch.full((len(low), len(self.b2)), torch.inf, dtype=torch.float64)
        slack = CAUTION * self.output_slack()
        for k in best.unique().tolist():
            rows, others = (best == k).nonzero(), torch.arange(len(self.b2)) != k
            w, b = self.w2[k] - self.w2[others], self.b2[k] - self.b2[others] - slack[k] - slack[others]
            difference[rows, others.nonzero().T] = middle[rows[:, 0]] @ w.T - reach[rows[:, 0]] @ w.abs().T + b
        return (difference > 0).all(1)
