"""Compare the proved checker with the numpy twin on many images: `python -m tools.proved NETWORK --data mnist`.

Every image gets its genuine certificate, and every tenth one that is wrong in one entry, too. The verdicts must be the
same. It prints how many there were, and what an image costs; exit code 1 if one differs. docs/proofs.md quotes a run.
"""

import argparse
import random
import resource
import time
from functools import cache
from pathlib import Path
from typing import Any

import linfdist as ld
from linfdist import exact
from linfdist.exact import proved, twin

CHUNK = 250  # images at a time
WRONG_EVERY = 10


def wrong(certificate: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return the certificate with one entry changed a little."""
    key = rng.choice(["class", "margin", "levels", "radius", "method", "ball", "grid", "image_sha256", "model_sha256"])
    value = certificate[key]
    if isinstance(value, int):
        return {**certificate, key: value + rng.choice([-1, 1])}
    others = {"method": ["margin", "box"], "ball": ["open", "closed"], "radius": ["0", "1", value + "0", value + "/2"]}
    return {**certificate, key: rng.choice([each for each in others.get(key, [value[::-1]]) if each != value])}


def twin_accepts(certificate: dict[str, Any], image: Any, network: Path) -> bool:
    try:
        twin.verify(certificate, image, network)
    except ValueError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", type=Path)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--method", choices=["margin", "box"], default="margin")
    parser.add_argument("--first", type=int, default=0, help="number of the first test image")
    parser.add_argument("--images", type=int, default=10_000)
    options = parser.parse_args()

    frozen, images = exact.load(options.network), ld.data.load(options.data, split="test").images
    twin.read = cache(twin.read)  # which verify would do for every certificate
    rng, seconds, differ = random.Random(options.first), 0.0, 0
    counts = {"genuine, accepted": 0, "genuine, refused": 0, "wrong, accepted": 0, "wrong, refused": 0}
    started = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    end = min(options.first + options.images, len(images))
    for start in range(options.first, end, CHUNK):
        some = images[start : min(start + CHUNK, end)]
        pairs = [
            (each.json(), image.numpy())
            for each, image in zip(exact.certificates(frozen, some, options.method), some, strict=True)
        ]
        changed = [(wrong(certificate, rng), image) for certificate, image in pairs[::WRONG_EVERY]]
        begun = time.perf_counter()
        certificates, pixels = zip(*pairs, *changed, strict=True)
        verdicts = proved.judge(certificates, pixels, options.network)
        seconds += time.perf_counter() - begun
        for number, ((certificate, image), verdict) in enumerate(zip(pairs + changed, verdicts, strict=True)):
            accepted = verdict == "proved"
            if accepted != twin_accepts(certificate, image, options.network):
                differ += 1
                print(f"differ: {verdict} {certificate}", flush=True)
            kind = "genuine" if number < len(pairs) else "wrong"
            counts[f"{kind}, {'accepted' if accepted else 'refused'}"] += 1
        print(f"{start + len(some)} images, {differ} verdicts differ", flush=True)
    total = sum(counts.values())
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - started
    print(f"{options.method}: {counts}; {differ} of {total} verdicts differ from the twin's")
    print(f"{used / total:.3f} seconds of processor time per certificate, {seconds / total:.3f} on the clock")
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
