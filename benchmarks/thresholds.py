"""Which threshold fits which eps: certified accuracy of held-out images after short trainings, as a table of Markdown.

`python -m benchmarks.thresholds mnist-quick --eps 0.1,0.3 --times 1.5,2,3,4,6 --set width=128 --set epochs=8`
"""

import argparse

import torch

import linfdist as ld
from linfdist import data, recipes
from linfdist.data.base import spread_out

HELD_OUT = 5000


def certified(recipe: recipes.Recipe, train: data.Dataset) -> tuple[float, float]:
    """Train, and return clean and certified accuracy of the held-out images, in percent."""
    network = ld.train(recipe, train)
    held = spread_out(recipe.holdout, len(train))
    images, labels = train.images[held], train.labels[held]
    method = "box" if recipe.e4 else "margin"
    clean = proved = 0
    for start in range(0, len(images), 500):
        part = slice(start, start + 500)
        proof = ld.certify(
            network, network.from_bytes(images[part]), recipe.eps, labels[part], method=method, radii=False
        )
        clean += int((proof.prediction == labels[part]).sum())
        assert proof.certified is not None  # since there is an eps
        proved += int(proof.certified.sum())
    return 100 * clean / len(images), 100 * proved / len(images)


def main() -> None:
    """Print a row for every eps: certified (clean) in percent, a column for every multiple of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--eps", required=True, help="radii, with commas between them")
    parser.add_argument("--times", default="1.5,2,3,4,6", help="thresholds as multiples of eps")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as `linfdist train` takes it")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    base = recipes.override(recipes.load(chosen.recipe), [f"holdout={HELD_OUT}", *chosen.set])
    train = data.load(base.data, "train")
    times = chosen.times.split(",")
    print("| ε | " + " | ".join(f"{each} ε" for each in times) + " |")
    print("|---|" + "--:|" * len(times))
    for eps in chosen.eps.split(","):
        cells = []
        for each in times:
            clean, proved = certified(base.override({"eps": eps, "threshold": f"{each} eps"}), train)
            cells.append(f"{proved:.1f} ({clean:.1f})")
        print(f"| {eps} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
