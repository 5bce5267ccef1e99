"""Training on a device: the same batches, the same training, and checkpoints that change places."""

import sys

import pytest
import torch

import linfdist as ld
from linfdist import recipes
from linfdist.evaluation import watch
from linfdist.files import load_tensors
from linfdist.training import train
from linfdist.training.batches import Batches
from linfdist.training.distributed import Workers

from ..training import runs


def pictures():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(256, (64, 1, 8, 8), dtype=torch.uint8, generator=generator), torch.arange(64) % 3


@pytest.mark.parametrize(
    "changes",
    [
        {"pad": 2},
        {"pad": 1, "pad_mode": "edge", "pad_share": 0.5},
        {"pad": 0, "flip": False},
        {"pad": 1, "turn": 20, "stretch": 0.2, "slide": 1.5, "warp_share": 0.5},
    ],
)
def test_batches_are_the_same_on_every_device(device, changes):
    """Crops, flips and pixels, bit for bit, prepared beforehand or not; a GPU rounds in warps as it likes."""
    recipe = recipes.load("digits-quick").override({"batch_size": 8, "flip": True, **changes})
    here = Batches(*pictures(), recipe, Workers())
    there = Batches(*pictures(), recipe, Workers(device=device))
    for step in range(18):  # more than two epochs
        x, y = there.at(step)
        assert x.device == y.device == device
        off = 1e-5 if "turn" in changes and device.type == "cuda" else 0.0
        torch.testing.assert_close(x.cpu(), here.at(step)[0], atol=off, rtol=0)
        assert torch.equal(y.cpu(), here.at(step)[1])
        there.prepare(step + 1)


@pytest.mark.parametrize("name", ["digits-quick", "mnist-mlp", "cifar10-conv-mlp"])
def test_the_training_is_that_of_the_cpu(device, name):
    """A plain network, one with a head, and a convolutional one, at finite p and at infinity."""
    shape = {"width": 4, "head": 8} if name == "cifar10-conv-mlp" else {"width": 16, "depth": 3}
    settings = {"epochs": 3, "batch_size": 16, "pad": 1, "flip": True, **shape}

    def losses(where):
        seen = []
        network = ld.train(name, *pictures(), settings=settings, callback=seen.append, device=where)
        assert network.any_tensor.device.type == "cpu"
        return [progress.loss for progress in seen], network

    (found, there), (right, here) = losses(device), losses("cpu")
    assert found == pytest.approx(right, rel=1e-3)
    if device.type != "cuda":  # the same backend on both
        assert runs.same_bits(there.state_dict(), here.state_dict())


@pytest.mark.parametrize("first", [True, False], ids=["from the CPU", "to the CPU"])
def test_a_run_changes_places(device, first, digits, tmp_path):
    """What was begun on one device goes on on another, and its files are those of the CPU."""
    places = ("cpu", device) if first else (device, "cpu")
    recipe, out = runs.tiny(), tmp_path / "run"

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            recipe,
            out,
            data_dir=digits,
            quiet=True,
            evaluate=runs.stop_after(2, stop),
            device=places[0],
            checkpoint_seconds=0,
        )
    tensors, header = load_tensors(out / "checkpoint.safetensors")
    assert 0 < header["step"] < 30
    assert all(tensor.device.type == "cpu" for tensor in tensors.values())
    train(recipe, out, data_dir=digits, quiet=True, evaluate=watch(recipe), resume=True, device=places[1])
    rows = runs.metrics(out)
    assert [row["step"] for row in rows] == [10, 20, 30]
    assert {"clean", "certified"} <= rows[-1].keys()
    if device.type != "cuda":
        whole = train(recipe, tmp_path / "whole", data_dir=digits, quiet=True, evaluate=watch(recipe), device="cpu")
        assert runs.same_bits(runs.tensors(out), runs.tensors(whole))


@pytest.mark.gpu
def test_two_gpus_are_one(gpu, digits, tmp_path):
    """`torchrun` with NCCL: shifts are synchronised, gradients averaged."""
    if torch.cuda.device_count() < 2:
        pytest.skip(f"there is {torch.cuda.device_count()} GPU, and this needs two")
    command = (
        "-m",
        "linfdist",
        "train",
        "digits-quick",
        *runs.AS_TEXT,
        "--quiet",
        "--data-dir",
        str(digits),
        "--device",
        "cuda",
    )
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    for name, launcher in (("two", torchrun), ("one", ())):
        process = runs.start(*launcher, *command, "--out", str(tmp_path / name), "--device", "cuda")
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0, output + errors
        print(errors, file=sys.stderr)
    both, alone = runs.metrics(tmp_path / "two"), runs.metrics(tmp_path / "one")
    for one, other in zip(both, alone, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-2)
