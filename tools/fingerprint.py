"""Digest what every network of the zoo computes and proves, to show that a change leaves all bits as they were.

    python -m tools.fingerprint > before.json     # on the old code
    python -m tools.fingerprint --compare before.json

It takes test images, and random ones inside of [0, 1], at its corners and next to these; boxes around all of them.

The digests depend on the machine: compare only files from the same one.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import torch

import linfdist as ld
from linfdist.models import PixelNet, zoo
from linfdist.models.base import flush_error, rounding_error
from linfdist.nn import Box

IMAGES = 1000
BATCH = 100
PROVED = {"cifar10-8_255-mlp": 200, "fashion-0.1-mlp": 200, "mnist-0.3-mlp": 200}


def digest(*tensors: torch.Tensor) -> str:
    """Return the start of the sha256 of the tensors' bytes."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return total.hexdigest()[:16]


def fingerprint(name: str, folder: Path | None) -> dict[str, str]:
    """Digest what a network computes, bounds and proves: see above."""
    network, entry = ld.load(name if folder is None else folder / f"{name}.safetensors"), zoo.card(name)
    images = ld.data.load(entry.data, split="test").images[:IMAGES]
    return {**on_images(network.floats, images, entry.eps, PROVED.get(name, IMAGES)), **at_random(network.floats)}


@torch.no_grad()
def on_images(network: PixelNet, images: torch.Tensor, eps: str, proved: int) -> dict[str, str]:
    """Digest the logits, and the radii and verdicts of the methods "margin" and "box", on the first test images."""
    pixels = network.from_bytes(images)
    logits = torch.cat([network(part) for part in pixels.split(BATCH)])
    proofs = []
    for method in ("margin", "box"):
        for part in pixels[:proved].split(BATCH):
            proof = ld.certify(network, part, eps=eps, method=method)
            assert proof.certified is not None  # as eps is given
            proofs += [proof.radius, proof.certified]
    return {"logits": digest(logits), "proofs": digest(*proofs)}


def at_random(network: PixelNet) -> dict[str, str]:
    """Digest logits, gradients, an attack, and bounds of boxes and of rounding, for random images and corners."""
    draw = torch.Generator().manual_seed(0)
    shape = (BATCH // 4, *network.shape)
    inside, corner = torch.rand(shape, generator=draw), torch.randint(2, shape, generator=draw).float()
    beside = (corner - 2.0**-23 * torch.randint(2, shape, generator=draw)).abs()
    near = torch.where(torch.rand(shape, generator=draw) < 0.9, corner, inside)
    images = torch.cat([inside, corner, beside, near]).requires_grad_()
    logits = network(images)
    (slope,) = torch.autograd.grad(logits.sum(), images)
    x, y = images.detach(), logits.argmax(1)
    attacked = ld.attacks.PGD(steps=5)(network, x, y, "0.1")
    digests = [digest(logits), digest(slope, *(each for each in vars(attacked).values() if torch.is_tensor(each)))]
    with torch.no_grad():
        bounds: list[torch.Tensor] = []
        for radius in (0.0, 1e-6, 0.03, 0.3, 1.0):
            away = radius * torch.rand(x.shape, generator=draw)
            bounds += network.features_box(Box((x - away).clamp(0, 1), (x + away).clamp(0, 1)))
        proof = ld.certify(network, x[::4], "0.01")
        error = rounding_error(network)
        bounds += [proof.radius, torch.tensor([error, flush_error(network, error)])]
    return dict(zip(("random", "attacked", "boxes"), [*digests, digest(*bounds)], strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=sorted(zoo.names()), help="networks of the zoo; all by default")
    parser.add_argument("--folder", type=Path, help="another folder of files with these names")
    parser.add_argument("--compare", type=Path, help="a file that this tool has written: exit 1 if anything differs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name in arguments.names:
        found[name] = fingerprint(name, arguments.folder)
        print(name, found[name], file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))
    before = json.loads(arguments.compare.read_text()) if arguments.compare else found
    different = [name for name in found if found[name] != before.get(name)]
    if different:
        print(f"different from {arguments.compare}: {', '.join(different)}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
