"""Train an ℓ∞-dist net on handwritten digits in memory, and prove how far their pixels may change.

The data are scikit-learn's 8×8 digits. Every layer of the network computes distances, so no output can change by more
than the pixels do (up to the normalisation): if one class leads the others by enough, no small change of the image can
alter the prediction. `linfdist.certify` turns this into a proof for each image, rounding errors included.

    python examples/digits.py
"""

import time

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

import linfdist as ld
from linfdist.training import Progress

TEST_IMAGES = 450
EPSILONS = ("0.02", "0.05", "0.1", "0.15", "0.2")


def show(progress: Progress) -> None:
    """Print a line every ten epochs."""
    if round(progress.epoch) % 10 == 0:
        accuracy = f"train accuracy {progress.train_accuracy:.1f} %"
        print(f"epoch {progress.epoch:3.0f}   p {progress.p:6.4g}   loss {progress.loss:.3f}   {accuracy}", flush=True)


def main() -> None:
    """Train, then certify the images that were not trained on."""
    torch.set_num_threads(1)  # layers this small gain nothing from a second thread
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16  # (N, 8, 8), pixels in [0, 1]
    labels = torch.tensor(digits.target)

    start = time.perf_counter()
    network = ld.train("digits-quick", images[:-TEST_IMAGES], labels[:-TEST_IMAGES], callback=show)
    print(f"trained on {len(images) - TEST_IMAGES} images in {time.perf_counter() - start:.0f} s")

    x, y = images[-TEST_IMAGES:, None], labels[-TEST_IMAGES:]
    table = Table(title=f"{len(x)} test images", title_justify="left")
    table.add_column("pixels may change by")
    table.add_column("proved right", justify="right")
    for eps in ("0", *EPSILONS):
        certified = ld.certify(network, x, eps, y).certified
        assert certified is not None  # because eps was given
        table.add_row("nothing" if eps == "0" else f"ε = {eps}", f"{100 * certified.double().mean():.1f} %")
    Console().print(table)


if __name__ == "__main__":
    main()
