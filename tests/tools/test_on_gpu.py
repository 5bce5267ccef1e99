"""The report of `make test-gpu`, made without a GPU."""

import json

import pytest
import torch

from tools import on_gpu

TESTS = "tests/gpu/test_devices.py::test_a_forced_backend_decides"
SKIPPED = "tests/gpu/test_training.py::test_two_gpus_are_one"


@pytest.mark.slow
def test_a_report(tmp_path):
    out = tmp_path / "gpu" / "report.json"
    assert on_gpu.main(["--device", "cpu", "--quick", "--out", str(out), TESTS, SKIPPED]) == 0
    report = json.loads(out.read_text())
    assert report["counts"]["passed"] >= 1
    assert report["machine"]["torch"] == torch.__version__
    assert {"gpus", "versions", "drivers"} <= report.keys()
    if not torch.cuda.is_available():
        (note,) = (test for test in report["tests"] if test["outcome"] == "skipped")
        assert "finds no GPU" in note["why"] or "built without CUDA" in note["why"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_what_to_do(tmp_path, capsys):
    assert on_gpu.main(["--out", str(tmp_path / "report.json")]) == 2
    said = capsys.readouterr().out
    assert "TORCH_INDEX" in said
    assert "there is none here" in said
