"""`torch.export`: the network as a program, for AOTInductor, ExecuTorch and the like."""

import io
import warnings
from pathlib import Path

import torch
from torch.export import Dim

from ..certificates.checks import check_network
from ..files import remove_leftovers, write_atomically
from ..models import PixelNet


def to_torch_export(network: PixelNet, path: str | Path) -> None:
    """Write the network at p = inf as a program (.pt2) for a batch of any size.

    images (batch, C, H, W) in [0, 1] -> logits (batch, classes), the bits of the network itself. Its distances are the
    operators `torch.ops.linfdist.*`: `import linfdist` before `torch.export.load(path)`.
    """
    check_network(network)
    example = torch.zeros(2, *network.shape, dtype=network.any_tensor.dtype)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        program = torch.export.export(network, (example,), dynamic_shapes={"x": {0: Dim("batch")}})
    content = io.BytesIO()  # torch's writer of files ends the process where the disk is full
    torch.export.save(program, content)
    remove_leftovers(Path(path))  # of an export that was killed while it was written
    write_atomically(Path(path), content.getvalue())
