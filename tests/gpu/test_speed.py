"""What a GPU is for; and the benchmark that says so, small, on every device."""

import json

import pytest
import torch

from linfdist import recipes
from linfdist.experiments.bench import device as bench
from linfdist.ops import machine


def small(width, batch):
    return recipes.load("cifar10").override({"width": width, "depth": 3, "batch_size": batch})


def test_the_benchmark(device, tmp_path):
    report = bench.measure(device, turns=1, recipe=small(8, 4))
    assert [step.p for step in report.steps] == list(bench.PUBLISHED)
    assert all(step.seconds > 0 for step in report.steps)
    report.write(tmp_path / "speed.json")
    written = json.loads((tmp_path / "speed.json").read_text())
    assert written["steps"][-1]["p"] is None
    assert written["device"] == machine.device_label(device)


@pytest.mark.gpu
def test_the_kernels_are_faster_than_plain_torch(gpu, monkeypatch):
    """By much: else `auto` should not choose a GPU."""
    if not machine.backend_for(gpu)[0]:
        pytest.fail(f"no fast backend can use {gpu}: {'; '.join(machine.backend_for(gpu)[1])}")
    fast = bench.measure(gpu, turns=5, recipe=small(1024, 512))
    monkeypatch.setenv("LINFDIST_BACKEND", "reference")
    slow = bench.measure(gpu, turns=3, recipe=small(1024, 512))
    for one, other in zip(fast.steps, slow.steps, strict=True):
        print(f"p = {one.p:g}: {1e3 * one.seconds:.1f} ms, plain torch {1e3 * other.seconds:.1f} ms")
        assert one.seconds < other.seconds / 3
    torch.cuda.synchronize()
