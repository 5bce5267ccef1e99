"""Whether the engine's lists could be kept from batch to batch: how often, how long, and what checking costs.

A list may be used again while the weights are the same and every input of the batch stays within the range that the
list was made for. Run: `.venv/bin/python -m tools.kept_lists mnist-0.3 cifar10-8_255-512`. docs/engine.md quotes it.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

import linfdist as ld
from linfdist.nn import DistLinear

BATCH, BATCHES = 512, 12


def survivors(lower: Tensor, upper: Tensor, w: Tensor) -> float:
    """The share of weights, counted by sides, that can be the maximum of their neuron for inputs in these ranges."""
    least = torch.maximum(lower - w, w - upper).amax(1, keepdim=True).clamp_min(0)
    return float(((upper - w) >= least).sum() + ((w - lower) >= least).sum()) / w.numel()


def keep(batches: list[tuple[Tensor, Tensor]], w: Tensor, slack: float) -> tuple[int, float]:
    """How often the lists could be used again, and their mean length; an exceeded bound moves out by `slack`."""
    lower, upper = torch.full_like(batches[0][0], torch.inf), torch.full_like(batches[0][0], -torch.inf)
    hits, lengths = 0, []
    for low, high in batches:
        if bool((low >= lower).all() and (high <= upper).all()):
            hits += 1
        else:
            room = slack * (torch.maximum(high, upper) - torch.minimum(low, lower))
            lower, upper = torch.where(low < lower, low - room, lower), torch.where(high > upper, high + room, upper)
            length = survivors(lower, upper, w)
        lengths.append(length)
    return hits, sum(lengths) / len(lengths)


def inputs_of_layers(name: str) -> dict[str, tuple[Tensor, list[tuple[Tensor, Tensor]]]]:
    """The weights of each linear dist layer, and the ranges of its inputs in every batch."""
    net = ld.load(name)
    if not isinstance(net, torch.nn.Module):
        raise SystemExit(f"{name} is an exact network; give the name of a float network of the zoo")
    images = torch.as_tensor(ld.data.load(name.split("-")[0], split="test").images[: BATCH * BATCHES]).float() / 255
    found: dict[str, tuple[Tensor, list[tuple[Tensor, Tensor]]]] = {}

    def note(layer_name: str, layer: DistLinear) -> Callable[..., None]:
        def hook(_: torch.nn.Module, args: tuple[Tensor, ...]) -> None:
            x = args[0].flatten(1)
            found.setdefault(layer_name, (layer.weight.detach(), []))[1].append((x.amin(0), x.amax(0)))

        return hook

    for layer_name, layer in net.named_modules():
        if isinstance(layer, DistLinear):
            layer.register_forward_pre_hook(note(layer_name, layer))
    with torch.no_grad():
        for batch in images.split(BATCH):
            net(batch)
    return found


def milliseconds(run: Callable[[], object]) -> float:
    def once() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return 1e3 * min(once() for _ in range(60))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+")
    torch.set_num_threads(1)
    print(
        f"{BATCHES} batches of {BATCH}: lists used again, and their length over that of lists made for each batch alone"
    )
    for name in parser.parse_args().networks:
        for layer, (w, batches) in inputs_of_layers(name).items():
            own = sum(survivors(low, high, w) for low, high in batches) / len(batches)
            kept = {slack: keep(batches, w, slack) for slack in (0.0, 1 / 16, 1 / 8, 1 / 4)}
            cells = "  ".join(
                f"slack {slack:.3f}: {hits:2d}, {length / own:.2f}x" for slack, (hits, length) in kept.items()
            )
            print(f"{name} {layer} {tuple(w.shape)}: {own:.1%} survive; {cells}")
    x, w = torch.rand(32, 1024), torch.randn(1024, 1024)
    copy = w.clone()
    print("1024 x 1024 weights, 1 thread, least of 60:")
    print(f"forward of 32 rows, planning included: {milliseconds(lambda: ld.dist(x, w)):.2f} ms")
    print(f"reading all weights: {milliseconds(w.amax):.2f} ms")
    print(f"comparing them with a copy: {milliseconds(lambda: torch.equal(w, copy)):.2f} ms")


if __name__ == "__main__":
    main()
