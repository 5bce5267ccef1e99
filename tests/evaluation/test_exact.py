"""Exact networks are evaluated and reported like any other: attacks find 8-bit images, proofs are about integers."""

import json
import shutil
from dataclasses import replace
from fractions import Fraction

import pytest
import torch

import linfdist as ld
from linfdist import data, exact
from linfdist.attacks import attack
from linfdist.evaluation import Shard, evaluate
from linfdist.models import load
from linfdist.report import write

from ..fixtures import FIXTURES, run


@pytest.fixture(scope="module")
def digits():
    return data.load("digits", split="test")


@pytest.fixture(scope="module", params=["plain", "headed"])
def frozen(request):
    return exact.freeze(load(FIXTURES / request.param), k=2)


def read(folder):
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def test_rows_are_those_of_the_integers(frozen, digits, tmp_path):
    evaluate(frozen, digits, "0.1", tmp_path, limit=12, attacks=("pgd", "strong"))
    rows, images = read(tmp_path), digits.images[:12]
    assert [row["prediction"] for row in rows] == frozen(images).argmax(1).tolist()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["model_sha256"] == frozen.sha256
    assert summary["certified"] <= summary["robust"] <= summary["clean"]
    for row, image in zip(rows, images, strict=True):
        for found in row["attacks"].values():
            levels = 255 * Fraction(found["size"])
            assert abs(levels - round(levels)) < Fraction(1, 10**9)
            assert found["size"] <= 0.1
        if frozen.head is None:
            (own,) = exact.certificates(frozen, image[None])
            assert row["radius"] >= own.levels / 255 - 1e-12
    page = write(tmp_path)
    assert "0.1" in page.read_text()


def test_shards_give_the_same_rows_as_the_whole(digits, tmp_path):
    frozen = exact.freeze(load(FIXTURES / "plain"), k=2)
    evaluate(frozen, digits, "0.1", tmp_path / "whole", limit=20, batch=6, attacks=("pgd",))
    for number in (2, 1):
        evaluate(frozen, digits, "0.1", tmp_path / "parts", limit=20, batch=6, attacks=("pgd",), shard=Shard(number, 2))
    assert read(tmp_path / "whole") == read(tmp_path / "parts")
    again = evaluate(frozen, digits, "0.1", tmp_path / "parts", limit=20, batch=6, attacks=("pgd",))
    assert again.before
    other = exact.freeze(load(FIXTURES / "plain"), k=3)
    with pytest.raises(ValueError, match="other settings"):
        evaluate(other, digits, "0.1", tmp_path / "parts", limit=20, batch=6, attacks=("pgd",))


def test_an_attack_is_what_the_integers_say_it_is(frozen, digits):
    """On the grid, within whole levels of the ball, and broken only if the integer network is."""
    images = digits.images[:60]
    labels = frozen(images).argmax(1)
    for eps in (Fraction(1, 10), Fraction(3, 255), Fraction(1, 1000)):
        found = attack("pgd")(frozen, images, labels, eps)
        assert found.images.dtype == torch.uint8
        moved = (found.images.int() - images.int()).abs().flatten(1).amax(1)
        assert (moved <= int(255 * eps)).all()
        assert torch.equal(frozen(found.images).argmax(1), found.prediction)
        assert torch.equal(found.prediction != labels, found.broken)
        assert torch.equal((found.size * 255).round(), moved)
    assert not found.broken.any()  # within a thousandth there is no other 8-bit image


def test_attacks_stay_in_the_domain(digits, tmp_path):
    images = digits.images[:30]
    frozen = exact.freeze(load(FIXTURES / "plain"), k=2, domain=(images.amin(0), images.amax(0)))
    found = attack("pgd")(frozen, images, frozen(images).argmax(1), "0.2")
    frozen.check_images(found.images)
    with pytest.raises(ValueError, match="outside the domain"):
        evaluate(frozen, replace(digits, images=255 - digits.images), "0.1", tmp_path)


def test_an_exact_file_is_a_model_for_every_command(tmp_path):
    folder = shutil.copytree(FIXTURES / "plain", tmp_path / "run")
    shutil.copy(FIXTURES / "exact.safetensors", folder)
    network = ld.load(folder / "exact.safetensors")
    assert isinstance(network, exact.FrozenNet)
    run("evaluate", folder / "exact.safetensors", "--attack", "pgd", "--limit", 12)
    assert len(read(folder / "exact")) == 12  # a folder of its own: the float network's rows stay
    assert (folder / "rows.jsonl").read_bytes() == (FIXTURES / "plain" / "rows.jsonl").read_bytes()
    run("report", folder / "exact")
    said = run("certify", folder / "exact.safetensors", FIXTURES / "image.png", "--json", "-")
    assert (
        json.loads(said)["prediction"] == network(ld.data.read_image(FIXTURES / "image.png", 1)[None]).argmax().item()
    )
    run("export", folder / "exact.safetensors", "--format", "onnx-exact")
    assert "take onnx-exact" in run("export", folder / "exact.safetensors", "--format", "onnx", code=1)
    assert "exact already" in run("export", folder / "exact.safetensors", "--format", "onnx-exact", "--k", 3, code=1)
