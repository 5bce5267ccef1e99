"""Train and certify one network with CTRAIN's own code, in CTRAIN's environment: `tools/peers.py` starts this.

python tools/peers_ctrain.py TASK.json: reads images from `images.npz` beside the task, writes `answer.json` and
`network.npz` there. It needs CTRAIN, torch and NumPy, and nothing of this project.
"""

import json
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ROUNDS = 100  # what CTRAIN's defaults count: ε grows from round 1 to 71, the learning rate falls after 80 and 90
BATCH = 64  # the default of CTRAIN's loaders
WRAPPERS = {"ibp": "ShiIBPModelWrapper", "sabr": "SABRModelWrapper", "mtl-ibp": "MTLIBPModelWrapper"}
NETWORKS = {"small": "GowalConvSmall", "medium": "GowalConvMed", "cnn7": "CNN7_Shi"}


class Loader:
    """Normalised batches on which CTRAIN trains: a round has `batches` of them, from an endless shuffled stream."""

    normalised = True

    def __init__(self, images: Tensor, labels: Tensor, task: dict[str, Any], batches: int) -> None:
        self.images, self.labels, self.batches, self.pad = images, labels, batches, task["pad"]
        self.mean, self.std = torch.tensor(task["mean"]), torch.tensor(task["std"])
        self.min = (-self.mean / self.std).view(1, -1, 1, 1)
        self.max = ((1 - self.mean) / self.std).view(1, -1, 1, 1)
        self.stream = self._batches()

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return (next(self.stream) for _ in range(self.batches))

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            for chosen in torch.randperm(len(self.images)).split(BATCH)[: len(self.images) // BATCH]:
                yield self.normalise(self._augmented(self.images[chosen])), self.labels[chosen]

    def normalise(self, images: Tensor) -> Tensor:
        """Turn bytes into what the network sees."""
        return (images / 255 - self.mean[:, None, None]) / self.std[:, None, None]

    def _augmented(self, images: Tensor) -> Tensor:
        """Flip and crop each image, as CTRAIN's loader of CIFAR-10 does; with pad = 0, leave it as it is."""
        if not self.pad:
            return images
        count, _, height, width = images.shape
        flipped = torch.where((torch.rand(count) < 0.5)[:, None, None, None], images.flip(3), images)
        padded = nn.functional.pad(flipped.float(), [self.pad] * 4, mode="replicate")
        down, right = torch.randint(2 * self.pad + 1, (2, count, 1, 1))
        rows, columns = down + torch.arange(height)[None, :, None], right + torch.arange(width)[None, None, :]
        return padded[torch.arange(count)[:, None, None], :, rows, columns].permute(0, 3, 1, 2)


def main(path: Path) -> None:
    """Do the task."""
    model_definitions, model_wrappers, eval_certified, seed_ctrain = imported()
    torch.set_num_threads(1)
    task = json.loads(path.read_text(encoding="utf-8"))
    with np.load(path.with_name("images.npz"), allow_pickle=False) as file:
        images, labels, test, truth = (torch.from_numpy(file[name]) for name in ("x", "y", "test_x", "test_y"))

    def trained(batches: int) -> tuple[Any, float, float]:
        seed_ctrain(task["seed"])
        network = getattr(model_definitions, NETWORKS[task["network"]])(**arguments(task, tuple(images.shape[1:])))
        wrapper = getattr(model_wrappers, WRAPPERS[task["method"]])(
            model=network, input_shape=list(images.shape[1:]), eps=task["eps"], num_epochs=ROUNDS,
            device=torch.device("cpu"), **task["settings"],
        )  # fmt: skip
        wrapper.train()
        wall, processor = time.perf_counter(), time.process_time()
        wrapper.train_model(Loader(images, labels, task, batches))
        wrapper.eval()
        return wrapper, time.perf_counter() - wall, time.process_time() - processor

    batches, rehearsed = 1, 0.0
    while rehearsed < task["seconds"] / 24:  # rehearsals are doubled until one takes so long, and are not counted
        _, _, rehearsed = trained(batches)
        per_batch, batches = rehearsed / (ROUNDS * batches), 2 * batches
    batches = max(1, int(task["seconds"] / (ROUNDS * per_batch)))
    wrapper, wall, processor = trained(batches)

    loader = Loader(test, truth, task, 0)
    seen = loader.normalise(test)
    with torch.no_grad():
        logits = torch.cat([wrapper.bounded_model(batch) for batch in seen.split(BATCH)])
    write_network(wrapper.original_model, logits, path.with_name("network.npz"))
    right = (logits.argmax(1) == truth).nonzero().flatten()  # CTRAIN proves the label, so no others can be certified
    given: Any = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(seen[right], truth[right]), BATCH)
    given.mean, given.std, given.min, given.max, given.normalised = (
        loader.mean, loader.std, loader.min, loader.max, True
    )  # fmt: skip
    start, eps = time.process_time(), (task["eps"] / loader.std)[:, None, None]
    _, each = eval_certified(wrapper.bounded_model, given, eps=eps, n_classes=10, method="ADAPTIVE")
    certify = time.process_time() - start
    proved = sorted(int(right[k]) for k, found in each.items() if found["result"] == "unsat")
    import auto_LiRPA  # type: ignore[import-not-found]

    answer = {
        "epochs": ROUNDS * batches * BATCH / len(images),
        "seconds": wall,
        "cpu_seconds": processor,
        "correct": right.tolist(),
        "certified": proved,
        "certify_seconds": certify,
        "parameters": sum(weights.numel() for weights in wrapper.original_model.parameters()),
        "versions": {
            "CTRAIN": version("CTRAIN"), "auto_LiRPA": auto_LiRPA.__version__, "torch": torch.__version__
        },
    }  # fmt: skip
    path.with_name("answer.json").write_text(json.dumps(answer) + "\n", encoding="utf-8")


def arguments(task: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Return what the network's class takes: those of Gowal et al. know the two sizes of images by name."""
    if task["network"] == "cnn7":
        return {"in_shape": shape}
    return {"in_shape": shape, "dataset": "mnist" if shape[0] == 1 else "cifar10"}


def write_network(network: nn.Module, logits: Tensor, path: Path) -> None:
    """Write weights and layers, and the logits of the test images, by which a reader is checked."""
    arrays: dict[str, Any] = {"logits": logits.numpy()}
    layers = []
    for number, layer in enumerate(network.layers):  # type: ignore[arg-type]
        about = {"kind": type(layer).__name__}
        for key in ("kernel_size", "stride", "padding", "eps"):
            if hasattr(layer, key):
                about[key] = getattr(layer, key)
        layers.append(about)
        arrays |= {f"{number}.{name}": value.numpy() for name, value in layer.state_dict().items()}
    np.savez(path, layers=np.array(json.dumps(layers)), **arrays)


def imported() -> tuple[Any, Any, Any, Any]:
    """Import what is used of CTRAIN."""
    declare_missing_operators()
    from CTRAIN import model_definitions, model_wrappers  # type: ignore[import-not-found]
    from CTRAIN.eval import eval_certified  # type: ignore[import-not-found]
    from CTRAIN.util import seed_ctrain  # type: ignore[import-not-found]

    for name in WRAPPERS.values():
        getattr(model_wrappers, name)
    return model_definitions, model_wrappers, eval_certified, seed_ctrain


def declare_missing_operators() -> None:
    """Let torchvision, which CTRAIN imports and nothing here runs, load where its compiled part does not fit torch."""
    for name in ("nms", "qnms"):
        try:
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")
        except RuntimeError:  # it is there
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
