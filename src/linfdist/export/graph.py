"""ONNX graphs, node by node."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..files import remove_leftovers, replacing

OPSET, IR_VERSION = 18, 10  # old enough for runtimes of 2023
LARGEST_FILE = 2**31 - 2**20  # bytes; protobuf cannot hold 2 GiB


class Value(NamedTuple):
    """An input or output; `shape` is that of one image."""

    name: str
    dtype: torch.dtype
    shape: Sequence[int]
    meaning: str


class Graph:
    """Nodes and constants; every method returns the name of a value."""

    def __init__(self, chunk: int) -> None:
        """chunk: the most elements per image of an intermediate value, unless one neuron has more."""
        try:
            import onnx
        except ImportError as error:
            raise ImportError(f"ONNX files need the package onnx ({error}): pip install onnx onnxruntime") from None
        self.onnx, self.chunk = onnx, chunk
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.size = 0  # bytes of all constants

    def constant(self, value: Tensor) -> str:
        name = f"c{len(self.constants)}"
        array = value.detach().cpu().contiguous().numpy()
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        self.size += array.nbytes
        return name

    def integers(self, *values: int) -> str:
        return self.constant(torch.tensor(values))

    def node(self, operator: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def cast(self, value: str, dtype: torch.dtype) -> str:
        return self.node("Cast", value, to=self._type(dtype))

    def slice(
        self, value: str, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]
    ) -> str:
        return self.node("Slice", value, *(self.integers(*each) for each in (starts, ends, axes, steps)))

    def distances(self, x: str, w: Tensor, positions: int, dtype: torch.dtype) -> str:
        """Add max_i |x[b, i, ...] - w[o, i, ...]| for x (B, I, ...), w (O, I, 1...): (B, O, ...), in values of `dtype`.

        It computes some neurons at a time, so that no intermediate value has more than `chunk` elements per image,
        unless one neuron alone has more.
        """
        lines = self.node("Unsqueeze", x, self.integers(1))  # (B, 1, I, ...)
        step = max(1, self.chunk // max(1, w.shape[1] * positions))
        parts = []
        for part in w.split(step):
            weights = self.constant(part)
            if part.dtype != dtype:
                weights = self.cast(weights, dtype)  # the file keeps the smaller type
            difference = self.node("Abs", self.node("Sub", lines, weights))  # (B, o, I, ...)
            parts.append(self.node("ReduceMax", difference, self.integers(2), keepdims=0))
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=1)

    def save(self, path: Path, x: Value, outputs: Sequence[Value], metadata: Mapping[str, str]) -> None:
        """Write the model; a batch may have any size."""
        if self.size > LARGEST_FILE:
            raise ValueError(f"the network has {self.size:,} bytes of weights: an ONNX file holds less than 2 GiB")
        helper = self.onnx.helper

        def info(value: Value) -> Any:
            return helper.make_tensor_value_info(
                value.name, self._type(value.dtype), ["batch", *value.shape], value.meaning
            )

        graph = helper.make_graph(self.nodes, "linfdist", [info(x)], [info(each) for each in outputs], self.constants)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="linfdist"
        )
        helper.set_model_props(model, dict(metadata))
        remove_leftovers(path)  # of an export that was killed while it was written
        with replacing(path) as temporary:
            self.onnx.save(model, str(temporary))
            self.onnx.checker.check_model(str(temporary), full_check=True)

    def _type(self, dtype: torch.dtype) -> int:
        names = {
            torch.float32: "FLOAT", torch.float64: "DOUBLE", torch.int32: "INT32", torch.int64: "INT64",
            torch.uint8: "UINT8", torch.bool: "BOOL",
        }  # fmt: skip
        return int(getattr(self.onnx.TensorProto, names[dtype]))
