"""Digest what every network of the zoo computes and proves, to show that a change leaves all bits as they were.

    python -m tools.fingerprint > before.json     # on the old code
    python -m tools.fingerprint --compare before.json

The digests depend on the machine: compare only files from the same one.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import torch

import linfdist as ld
from linfdist.models import zoo

IMAGES = 1000
BATCH = 100
PROVED = {"cifar10-8_255-mlp": 200, "fashion-0.1-mlp": 200, "mnist-0.3-mlp": 200, "tinyimagenet-1_255": 200}


def digest(*tensors: torch.Tensor) -> str:
    """Return the start of the sha256 of the tensors' bytes."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return total.hexdigest()[:16]


@torch.no_grad()
def fingerprint(name: str) -> dict[str, str]:
    """Digest the logits, and the radii and verdicts of the methods "margin" and "box", on the first test images."""
    network, entry = ld.load(name), zoo.card(name)
    images = ld.data.load(entry.data, split="test").images[:IMAGES]
    pixels = network.from_bytes(images)
    logits = torch.cat([network(part) for part in pixels.split(BATCH)])
    proofs = []
    for method in ("margin", "box"):
        for part in pixels[: PROVED.get(name, IMAGES)].split(BATCH):
            proof = ld.certify(network, part, eps=entry.eps, method=method)
            assert proof.certified is not None  # as eps is given
            proofs += [proof.radius, proof.certified]
    return {"logits": digest(logits), "proofs": digest(*proofs)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=sorted(zoo.names()), help="networks of the zoo; all by default")
    parser.add_argument("--compare", type=Path, help="a file that this tool has written: exit 1 if anything differs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name in arguments.names:
        found[name] = fingerprint(name)
        print(name, found[name], file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))
    before = json.loads(arguments.compare.read_text()) if arguments.compare else found
    different = [name for name in found if found[name] != before.get(name)]
    if different:
        print(f"different from {arguments.compare}: {', '.join(different)}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
