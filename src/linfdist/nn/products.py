"""Matrix products must be computed in the precision of their factors: the bounds of layers rely on it."""

import os
from typing import Any

import torch

EXACT_PRODUCTS = ("none", "ieee")  # torch's words for float32 products in float32
EXACT_MODES = {  # what asks oneDNN and cuBLAS for other products than torch does, and what leaves them as they are
    "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
    "DNNL_DEFAULT_FPMATH_MODE": "STRICT",
    "NVIDIA_TF32_OVERRIDE": "0",
    "CUBLAS_EMULATE_SINGLE_PRECISION": "0",
    "CUBLAS_EMULATE_DOUBLE_PRECISION": "0",
}


def check_products() -> None:
    """Raise ValueError if torch may compute matrix products in less than the precision of their factors."""
    for variable, harmless in EXACT_MODES.items():
        mode = os.environ.get(variable) or harmless
        if mode.upper() != harmless:
            raise ValueError(
                f"{variable}={mode}: products may be computed in less than the network's precision, which its "
                "bounds do not cover: unset it"
            )
    backends: Any = torch.backends
    for part in (backends, backends.mkldnn.matmul, backends.cuda.matmul):
        precision = part.fp32_precision
        if precision not in EXACT_PRODUCTS:
            raise ValueError(
                f"torch may compute float32 products in {precision}, which the bounds of the network do not "
                'cover: call torch.set_float32_matmul_precision("highest") first'
            )
