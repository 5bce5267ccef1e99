"""The paper's theorems as code: universal approximation, robust generalisation, ReLU forms, Lipschitz constants."""

from .approximate import approximate
from .domain import Domain
from .envelopes import Interpolation, interpolate
from .function import DistFunction
from .generalisation import RobustErrorBound, relu_vc_dimension, robust_error_bound
from .lipschitz import lipschitz_bound, measured_lipschitz
from .opinion import Opinion, opinion_radius, second_opinion
from .relu import ReluNet, to_relu
from .verifiers import relu_to_onnx, write_vnnlib

__all__ = [
    "DistFunction", "Domain", "Interpolation", "Opinion", "ReluNet", "RobustErrorBound", "approximate", "interpolate",
    "lipschitz_bound", "measured_lipschitz", "opinion_radius", "relu_to_onnx", "relu_vc_dimension",
    "robust_error_bound", "second_opinion", "to_relu", "write_vnnlib",
]  # fmt: skip
