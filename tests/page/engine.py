"""The page's own engine, called from outside: any exact network on any images, in the browser."""

import base64
from pathlib import Path
from typing import Any

from torch import Tensor

from linfdist import exact
from linfdist.exact import FrozenNet

CALL = """([network, images, size, proofs]) => {
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const net = linfdist.read(bytes(network)), pixels = bytes(images);
  const each = Array.from({ length: pixels.length / size }, (_, i) => pixels.slice(i * size, (i + 1) * size));
  return { logits: each.map((image) => Array.from(net.run(image).logits)),
           proofs: each.slice(0, proofs).map((image) => linfdist.certify(net, image)) };
}"""


def run(page: Any, network: FrozenNet, images: Tensor, folder: Path, proofs: int = 0) -> dict[str, Any]:
    """Logits of all images, certificates (null where there is none) of the first ones."""
    exact.save(network, folder / "network.safetensors")
    content = (folder / "network.safetensors").read_bytes()
    given = [base64.b64encode(part).decode() for part in (content, images.contiguous().numpy().tobytes())]
    return page.evaluate(CALL, [*given, images[0].numel(), proofs])
