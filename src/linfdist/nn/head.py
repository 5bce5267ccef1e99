"""The small conventional network on top of a feature extractor that is robust."""

from torch import Tensor, nn

from .scaled_linear import ScaledLinear


class Head(nn.Module):
    """h of Section 6: FC(hidden) + Tanh, FC(classes).

    x (B, in_features) -> logits (B, classes). It is no `LipschitzModule`: its bounds hold around one input each, and
    live with the IBP loss and the certificates.
    """

    def __init__(self, in_features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = ScaledLinear(in_features, hidden)
        self.output = ScaledLinear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.hidden(x).tanh())  # (B, hidden) -> (B, classes)
