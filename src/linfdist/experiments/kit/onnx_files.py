"""What the benchmark's ONNX files compute, as onnxruntime runs them: the logits of the integer network, bit for bit."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...exact import FrozenNet
from ...files import excerpt, read_bytes
from .truth import UNIT, Whole, outputs

OPERATORS = frozenset({"Abs", "Add", "Concat", "Flatten", "Gemm", "Neg", "ReduceMax", "Relu", "Sub", "Unsqueeze"})


def runs_here() -> bool:
    """Return whether ONNX files can be read and run."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        return False
    return True


def check_file(path: Path, network: FrozenNet, points: Sequence[Whole]) -> None:
    """Raise ValueError unless a file has known operators alone, and gives the network's logits at these points.

    points: images in parts. Every number is exact in float32 there, in any order of sums, so no bit may differ.
    """
    import onnx
    import onnxruntime

    content = read_bytes(path)
    images = (np.stack(points) / UNIT).astype(np.float32).reshape(-1, *network.shape)
    try:
        model = onnx.load_model_from_string(content)
        strange = {each.op_type for each in model.graph.node if each.domain or each.op_type not in OPERATORS}
        strange |= {each.name for each in model.functions}
        if not strange:
            session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
            (found,) = session.run(["logits"], {"images": images})
    except Exception as error:  # parsers of bytes that anybody may have written: they can fail in any way
        raise ValueError(f"{path}: cannot be run by onnxruntime ({excerpt(str(error))})") from None
    if strange:
        raise ValueError(
            f"{path}: has the operators {excerpt(sorted(strange))}, allowed are {', '.join(sorted(OPERATORS))}"
        )
    exactly = np.stack([-outputs(network, point, point)[0] for point in points])
    if found.shape != exactly.shape or (found.astype(np.float64) * UNIT != exactly).any():
        raise ValueError(f"{path}: gives other logits than the integer network")
