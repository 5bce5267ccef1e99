"""The soak runs, stops by itself, tells what it did, and would notice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
import torch

import linfdist as ld
from linfdist.files import header_in, load_tensors
from linfdist.sklearn import LinfDistClassifier
from tools import soak_certificates as certificates
from tools import soak_estimator as estimator
from tools import soak_files as changed
from tools.soak_cases import make_case

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks and kills")


def start(*command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", *command], cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "rounds", "kills"),
    [
        pytest.param("train,data fetch,report,export exact", 1, 1, id="quick", marks=pytest.mark.slow),
        pytest.param("data fetch,report,export exact,export onnx,export torch", 4, 4, id="all", marks=pytest.mark.slow),
    ],
)
def test_killed_at_random_then_the_same_bytes(jobs, rounds, kills):
    """Evaluation has tests of its own, and so have trainings that are killed in other ways."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("onnx")
    process = start("tools.soak_crashes", "--rounds", str(rounds), "--seed", "3", "--jobs", jobs, "--kills", str(kills))
    output, errors = process.communicate(timeout=280)
    assert output, errors
    result = json.loads(output)
    done = {name: counted["rounds"] for name, counted in result["jobs"].items()}
    assert done == dict.fromkeys(jobs.split(","), rounds)
    assert sum(counted["kills"] for counted in result["jobs"].values()) > 0
    assert result["failures"] == []


def test_a_wrong_certificate_is_noticed_and_kept(monkeypatch, tmp_path):
    """Radii three times too large."""
    honest = ld.certify

    def boastful(*arguments, **options):
        proof = honest(*arguments, **options)
        return ld.Certificate(proof.prediction, (proof.radius * 3).clamp(max=1), proof.certified)

    monkeypatch.setattr(ld, "certify", boastful)
    for seed in range(60):
        case = make_case(seed)
        found = certificates.run_case(case)
        if found.broken:
            break
    else:
        pytest.fail("nothing was noticed")
    tensors, header = load_tensors(certificates.save_failure(case, found, tmp_path))
    assert header["again"] == f"python -m tools.soak --case {seed}"
    images = tensors[next(name for name in tensors if name.startswith("found/"))]
    assert images.shape[0] == 2  # the image, and the one that contradicts its certificate


def test_a_reader_that_stumbles_is_noticed(tmp_path):
    """Changes reach the text within the text, and every error but a refusal counts."""
    path = tmp_path / "network.safetensors"
    ld.models.save(ld.models.DistNet((1, 2, 2), 2, 3, 2, [0.3], 0.31).eval(), path)
    counts = Counter()
    for seed in range(300):
        assert changed.try_files({"network": (path, ld.load)}, seed, counts) is None
    assert counts["network: refused"] > 200
    assert counts["network: read"] + counts["network: refused"] == 300
    ld.load(path)  # it is as it was

    def careless(file):
        return json.loads(header_in(file.read_bytes(), file)["config"]["shape"][2])

    wrong = [changed.try_files({"network": (path, careless)}, seed, counts) for seed in range(300)]
    assert any(each is not None and "KeyError" in each["error"] for each in wrong)


def test_a_wrong_radius_of_the_estimator_is_noticed(monkeypatch):
    certify = LinfDistClassifier.certify

    def boastful(*arguments):
        proof = certify(*arguments)
        return ld.Certificate(proof.prediction, proof.radius * 3, proof.certified)

    assert not estimator.run_estimator(1).broken
    monkeypatch.setattr(LinfDistClassifier, "certify", boastful)
    assert estimator.run_estimator(1).broken


def test_a_wrong_radius_of_a_graph_is_noticed(monkeypatch):
    pytest.importorskip("onnxruntime")
    stated = certificates._stated

    def boastful(*arguments):
        proof = stated(*arguments)
        return ld.Certificate(proof.prediction, (proof.radius * 3).clamp(max=1), proof.certified)

    monkeypatch.setattr(certificates, "_stated", boastful)
    cases = (make_case(seed) for seed in range(1, 400))
    assert any(certificates.run_case(case).broken for case in cases if case.about["kind"] == "ONNX")


def test_images_are_within_the_ball_to_the_last_bit():
    """What the attacks clip to, by exact arithmetic, where pixels are denormal and radii are of any size."""
    torch.manual_seed(0)
    x = torch.cat([torch.rand(20), torch.rand(20) * 1e-38, torch.zeros(5), torch.ones(5)]).view(-1, 1, 1, 1)
    reach = torch.rand(50, dtype=torch.float64).view(-1, 1, 1, 1) * 10.0 ** -torch.randint(0, 40, (50, 1, 1, 1))
    inside = certificates._floats(x, reach)
    for far in (-9.0, 9.0):
        moved = inside(x.double() + far)
        for a, b, r in zip(moved.flatten().tolist(), x.flatten().tolist(), reach.flatten().tolist(), strict=True):
            assert abs(Fraction(a) - Fraction(b)) <= Fraction(r)
            assert 0 <= a <= 1
        assert (moved != x).float().mean() > 0.3


@pytest.mark.slow
def test_it_stops_by_itself_and_counts(tmp_path):
    command = ("tools.soak", "--minutes", "0.05", "--seed", "2", "--parts", "memory", "certificates")
    process = start(*command, "--out", str(tmp_path))
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    result = json.loads((tmp_path / "soak.json").read_text())
    assert result["failures"] == []
    assert result["command"] == "python -m tools.soak --minutes 0.05 --seed 2"
    assert result["counts"]["certificates"]["certificates attacked"] > 0
    assert result["counts"]["memory"]["calls of certify"] > 100
    assert "certificates: certificates attacked" in output
    assert not result["stopped_early"]


@pytest.mark.slow
def test_ctrl_c_tells_what_was_done(tmp_path):
    process = start("tools.soak", "--minutes", "10", "--parts", "certificates", "--out", str(tmp_path))
    time.sleep(6)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    if "written" not in output:  # not even imported
        pytest.skip("this machine is too slow for that")
    assert process.returncode == 130, errors
    assert "stopped early" in output
    assert json.loads((tmp_path / "soak.json").read_text())["stopped_early"]
