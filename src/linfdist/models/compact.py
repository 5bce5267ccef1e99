"""Weights in 16 bits: whole multiples of a power of two, which every machine turns into the same float32 numbers."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

LARGEST = 2**15 - 1  # of int16
_EXPONENTS = range(-100, 101)  # far from where float32 ends, so that every multiple is exact
_STEP = re.compile(r"2\^(-?[0-9]{1,3})")


def matrices(module: nn.Module) -> set[str]:
    """Names of what is rounded: learned tensors of two dimensions or more. Biases and buffers stay as they are."""
    return {name for name, parameter in module.named_parameters() if parameter.dim() >= 2}


def compress(tensors: Mapping[str, Tensor], names: set[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, those of these names rounded to int16 (ties to even), and the steps to multiply them by.

    The step of a tensor is the smallest power of two with max |w| <= 32767 steps, but no less than 2^-100.
    """
    rounded, steps = dict(tensors), {}
    for name in sorted(names):
        tensor = tensors[name].detach()
        if tensor.dtype != torch.float32 or not tensor.isfinite().all():
            raise ValueError(f"{name} cannot be rounded to 16 bits: needs finite float32 weights, got {tensor.dtype}")
        exponent = _exponent(float(tensor.abs().max()) if tensor.numel() else 0.0, name)
        rounded[name] = (tensor.double() * 2.0**-exponent).round().to(torch.int16)
        steps[name] = f"2^{exponent}"
    return rounded, steps


def _exponent(largest: float, name: str) -> int:
    for exponent in _EXPONENTS:
        if largest <= LARGEST * 2.0**exponent:
            return exponent
    raise ValueError(f"{name} cannot be rounded to 16 bits: it has a weight of {largest!r}")


def expand(tensors: Mapping[str, Tensor], steps: Any, module: nn.Module, path: Path) -> dict[str, Tensor]:
    """What `compress` has rounded, as float32 again, exactly; ValueError for what it cannot have written."""
    if not isinstance(steps, dict):
        raise ValueError(f"{path}: its steps must be a JSON object, got {str(steps)[:60]!r}")
    expanded, allowed = dict(tensors), matrices(module)
    for name, step in steps.items():
        if name not in allowed or name not in tensors:
            raise ValueError(f"{path}: has a step for {name!r}, which is no matrix of its network")
        match = _STEP.fullmatch(step) if isinstance(step, str) else None
        if match is None or int(match[1]) not in _EXPONENTS:
            raise ValueError(f"{path}: {name} has the step {str(step)[:60]!r}; expected 2^-100 to 2^100")
        if tensors[name].dtype != torch.int16:
            raise ValueError(f"{path}: {name} has a step, but is {tensors[name].dtype}; expected torch.int16")
        expanded[name] = tensors[name].float() * 2.0 ** int(match[1])
    return expanded
