"""What the processes of a training hold in memory: their own (anonymous), and pages of the mapped data that they share.

    python -m tools.footprint --processes 4 --images 50000

writes a data set of noise in the stored form, lets so many processes at a time load it as `linfdist train` does, train
a tiny network on it for some steps and examine some images, and prints what the system says of each process.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SHAPE, CLASSES = (3, 64, 64), 200  # TinyImageNet's
STEPS = 20


def write_noise(folder: Path, images: int) -> int:
    """Store noise as if it were TinyImageNet; return its bytes."""
    import numpy as np

    from linfdist.data import info, store
    from linfdist.data.base import Content

    draw = np.random.default_rng(0)
    pixels = draw.integers(256, size=(images, *SHAPE), dtype=np.uint8)
    labels = np.arange(images) % CLASSES
    names = tuple(map(str, range(CLASSES)))
    content = Content({"train": (pixels, labels), "test": (pixels[:CLASSES], labels[:CLASSES])}, names)
    (folder / "tinyimagenet").mkdir()
    store.write(folder, info("tinyimagenet"), content, "noise")
    return pixels.nbytes


def memory() -> dict[str, int]:
    """Return the resident bytes of this process: its own, of mapped files, and its share of all (Pss)."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    rollup = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    kilobytes = {"own": status["RssAnon"], "mapped": status["RssFile"], "share": rollup["Pss"]}
    return {name: 1024 * int(text.split()[0]) for name, text in kilobytes.items()}


def work(folder: Path) -> None:
    """Be one of the processes: load, train, examine; then print memory before and after, when all have come so far."""
    import torch

    from linfdist import data, recipes
    from linfdist.evaluate.settings import checksum, first_images
    from linfdist.training import Trainer

    torch.set_num_threads(1)
    recipe = recipes.load("tinyimagenet-mlp").override({"width": 16, "batch_size": 64, "holdout": 1000, "epochs": 1})
    torch.randn(64, 64) @ torch.randn(64, 64)  # what torch takes once, whatever the data
    before = memory()
    dataset = data.load("tinyimagenet", "train", folder)
    trainer = Trainer(recipe, dataset, data.info("tinyimagenet"))
    for _ in range(STEPS):
        trainer.step()
    checksum(first_images(dataset, len(dataset) // 2))  # as `evaluate` does
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps({"before": before, "after": memory()}), flush=True)
    sys.stdin.readline()


def measure(folder: Path, processes: int) -> list[dict[str, dict[str, int]]]:
    """Return the memory of each of so many processes that hold the same data at the same time."""
    command = [sys.executable, "-m", "tools.footprint", "--work", str(folder)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    answers = []
    try:
        for wanted in ("ready", "numbers"):
            for process in running:
                assert process.stdin is not None
                assert process.stdout is not None
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError("a process has failed; its message is above")
                if wanted == "numbers":
                    answers.append(json.loads(line))
            for process in running:  # none ends before all have measured
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
    finally:
        for process in running:
            process.communicate()
    return answers


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--images", type=int, default=20000, help="of 12,288 bytes each")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work is not None:
        work(given.work)
        return
    with tempfile.TemporaryDirectory() as folder:
        size = write_noise(Path(folder), given.images)
        answers = measure(Path(folder), given.processes)
    if given.json:
        print(json.dumps({"data": size, "processes": answers}))
        return
    mega = 2**20
    print(f"training set: {size // mega} MiB; processes: {given.processes}; MiB, resident, before and after")
    print("| process | own (RssAnon) | mapped files (RssFile) | share of all (Pss) |\n|--:|--:|--:|--:|")
    for number, answer in enumerate(answers):
        cells = (f"{answer['before'][key] // mega} → {answer['after'][key] // mega}" for key in answer["after"])
        print(f"| {number} | {' | '.join(cells)} |")
    print(f"sum of the shares: {sum(answer['after']['share'] for answer in answers) // mega} MiB")


if __name__ == "__main__":
    main()
