"""Networks for other runtimes: ONNX files (extra `onnx`) and `torch.export` programs."""

from .onnx import exact_to_onnx, to_onnx
from .torch_export import to_torch_export

__all__ = ["exact_to_onnx", "to_onnx", "to_torch_export"]
