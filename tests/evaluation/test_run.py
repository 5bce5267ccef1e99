"""Whole evaluations: stopped and resumed, repeated, and refused when something does not fit."""

import dataclasses
import hashlib
import json
import os
import re
import shutil
from fractions import Fraction

import pytest
import torch
from filelock import FileLock

from linfdist import models, nn
from linfdist.baselines import ReLUNet
from linfdist.certificates import Certificate, certify
from linfdist.evaluation import Shard, Violated, evaluate, summarise, violations
from linfdist.evaluation.batch import Certifiers, best_of, strongest
from linfdist.evaluation.settings import Part
from linfdist.files import load_tensors
from linfdist.models import Network
from linfdist.runs.folder import summary_digest
from linfdist.runs.rows import Row

from .files import names, read, same_results

FINISHED = {"rows.jsonl", "summary.json"}


def test_files(whole, run, test_set):
    lines, summary = read(whole)
    rows = [Row.parse(line, "") for line in lines]
    assert names(whole) == FINISHED | {"gallery.safetensors"}
    assert [row.index for row in rows] == list(range(150))
    assert summary.items() >= summarise(rows, "0.1", ["pgd"]).items()
    assert 0 < summary["certified"] <= summary["robust"] == summary["attacks"]["pgd"] <= summary["clean"] < 100
    assert violations(rows, "0.1") == []
    sha256 = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    assert summary.items() >= {
        "n": 150, "eps": "0.1", "data": "digits", "split": "test", "limit": 150, "batch": 40, "method": "box",
        "model_sha256": sha256, "rows_sha256": hashlib.sha256((whole / "rows.jsonl").read_bytes()).hexdigest(),
    }.items()  # fmt: skip
    assert "shard" not in summary


def test_gallery(call, run, test_set, tmp_path, monkeypatch):
    """The eight least and the eight most robust images, each with an image nearby of another class."""
    monkeypatch.setattr("linfdist.evaluation.gallery.ROUNDS", 4)
    call(tmp_path)
    tensors, header = load_tensors(tmp_path / "gallery.safetensors")
    rows = read(tmp_path)[0]
    correct = sorted((row for row in rows if row["prediction"] == row["label"]), key=lambda row: row["radius"])
    chosen = correct[:8] + correct[-8:]
    assert header["index"] == [row["index"] for row in chosen]
    assert header["label"] == [row["label"] for row in chosen]
    assert header["radius"] == [row["radius"] for row in chosen]
    assert header["classes"] == list("0123456789")
    images = test_set.images[header["index"]]
    assert torch.equal(tensors["images"], images)
    assert tensors["images"].dtype == torch.uint8
    assert tensors["attacked"].dtype == torch.float32
    assert models.load(run)(tensors["attacked"]).argmax(1).tolist() == header["prediction"]
    sizes = (tensors["attacked"].double() - (images.float() / 255).double()).abs().flatten(1).amax(1)
    assert sizes.tolist() == header["size"]
    for size, radius, label, prediction in zip(
        header["size"], header["radius"], header["label"], header["prediction"], strict=True
    ):
        assert prediction != label
        assert size > radius


@pytest.mark.parametrize("eps", ["0", "1"])
def test_the_ends_of_eps(call, tmp_path, eps):
    call(tmp_path, eps=eps, limit=40)
    summary = read(tmp_path)[1]
    if eps == "0":
        assert summary["certified"] == summary["robust"] == summary["clean"] > 0
    else:  # all images are in the ball
        assert summary["certified"] == summary["robust"] == 0 < summary["clean"]


def test_a_second_call_changes_nothing(whole, call, monkeypatch):
    before = {path.name: path.stat().st_mtime_ns for path in whole.iterdir() if path.suffix != ".lock"}
    monkeypatch.setattr("linfdist.evaluation.run.evaluate_batch", None)  # nothing is evaluated
    result = call(whole, eps="1/10")
    assert result.before
    assert result.summary["eps"] == "0.1"
    assert before == {path.name: path.stat().st_mtime_ns for path in whole.iterdir() if path.suffix != ".lock"}


class Stopped(BaseException):
    pass


def stop_after(monkeypatch, batches):
    add = Part.add

    def stopping(self, *arguments):
        add(self, *arguments)
        if len(self.done) == batches:
            raise Stopped

    monkeypatch.setattr(Part, "add", stopping)


def test_stopped_and_resumed(whole, call, tmp_path, monkeypatch):
    evaluated = []
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            call(tmp_path)
    assert names(tmp_path) == {"rows.jsonl.part"}
    part = tmp_path / "rows.jsonl.part"
    part.write_bytes(part.read_bytes()[:-20])  # and the second batch was cut off
    import linfdist.evaluation.run as module

    one = module.evaluate_batch
    monkeypatch.setattr(module, "evaluate_batch", lambda *a, **k: evaluated.append(a[3]) or one(*a, **k))
    assert not call(tmp_path).before
    assert evaluated == [40, 80, 120]  # the first batch was kept
    same_results(tmp_path, whole)


def test_stopped_while_finished_files_are_replaced(whole, call, tmp_path, monkeypatch):
    """A summary is never beside rows it was not made from."""
    call(tmp_path, eps="0.05", attacks=())
    replace = os.replace
    for name in ("gallery.safetensors", "rows.jsonl", "summary.json"):

        def dying(source, target, name=name):
            if os.path.basename(target) == name:
                raise Stopped
            replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", dying)
            with pytest.raises(Stopped):
                call(tmp_path, fresh=name == "gallery.safetensors")
        assert not (tmp_path / "summary.json").exists()
    monkeypatch.setattr("linfdist.evaluation.run.evaluate_batch", None)  # all batches were kept
    call(tmp_path)
    same_results(tmp_path, whole)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"eps": "0.2"}, "eps: 0.1 there, 0.2 now"),
        ({"attacks": ()}, "attacks: pgd there, none now"),
        ({"method": "margin"}, "method: box there, margin now"),
        ({"limit": 7}, "limit: 150 there, 7 now"),
        ({"limit": None}, "limit: 150 there, none now"),
        ({"batch": 50}, "batch: 40 there, 50 now"),
        ({"split": "train"}, "split: test there, train now"),
        ({"eps": "0.2", "shard": Shard(1, 2)}, "eps: 0.1 there, 0.2 now"),
    ],
)
def test_other_settings(whole, call, tmp_path, monkeypatch, change, told):
    with pytest.raises(ValueError, match=rf"summary\.json is of .*\({re.escape(told)}\): --fresh replaces it"):
        call(whole, **change)
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(Stopped):
            call(tmp_path)
    if "shard" not in change:
        with pytest.raises(ValueError, match=rf"rows\.jsonl\.part is of .*\({re.escape(told)}\): .*--fresh"):
            call(tmp_path, **change)


def test_fresh(whole, call, tmp_path):
    call(tmp_path)
    assert not call(tmp_path, fresh=True).before
    same_results(tmp_path, whole)
    call(tmp_path, eps="0.05", attacks=(), fresh=True)
    assert read(tmp_path)[1]["eps"] == "0.05"
    assert names(tmp_path) == FINISHED  # the gallery was of the attacks before
    (tmp_path / "rows.jsonl.part").write_text("garbage")
    with pytest.raises(ValueError, match=r"rows\.jsonl\.part is damaged .*--fresh"):
        call(tmp_path)
    call(tmp_path, fresh=True)
    same_results(tmp_path, whole)


def test_a_replacement_under_way_goes_on_without_fresh(whole, call, tmp_path, monkeypatch):
    """Else a job that is killed and started again over and over would never end."""
    call(tmp_path, eps="0.05", attacks=())
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            call(tmp_path, fresh=True)
    assert read(tmp_path)[1]["eps"] == "0.05"  # until there is something better
    call(tmp_path)
    same_results(tmp_path, whole)


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000], ids=lambda content: content[:3])
def test_a_damaged_summary_is_refused(call, tmp_path, content):
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(ValueError, match=r"summary\.json is damaged .*--fresh"):
        call(tmp_path)
    call(tmp_path, fresh=True, attacks=())
    assert names(tmp_path) == FINISHED


def test_two_at_once(call, tmp_path):
    with (
        FileLock(tmp_path / ".rows-1-of-2.lock"),
        pytest.raises(ValueError, match=r"another process .*evaluates digits test 1/2 into"),
    ):
        call(tmp_path, shard=Shard(1, 2))
    call(tmp_path, shard=Shard(1, 2))


def boasting(network, x, eps, y=None, **options):
    """A certificate that claims everything."""
    honest = certify(network, x, eps, y, **options)
    return Certificate(honest.prediction, torch.ones_like(honest.radius), honest.prediction == y)


def certifier_of(wrong):
    """What makes certifiers that answer as this `certify` does."""
    return lambda network, method: lambda x, eps, y, radii: wrong(network, x, eps, y, method=method, radii=radii)


def test_a_wrong_certificate_is_found(call, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("linfdist.evaluation.batch.Certifier", certifier_of(boasting))
        with pytest.raises(Violated, match=r"image \d+: certified at eps = 0\.1, but pgd makes it class") as caught:
            call(tmp_path)
    indices = [violation.row.index for violation in caught.value.violations]
    pictures = {f"violation-{index}.{end}" for index in indices for end in ("png", "json")}
    assert names(tmp_path) == {"rows.jsonl.part"} | pictures  # nothing is finished
    network_sees = json.loads((tmp_path / f"violation-{indices[0]}.json").read_text())
    assert network_sees["row"]["certified"] is True
    assert torch.tensor(network_sees["attacked"]["pgd"]).shape == (1, 8, 8)
    # what contradicted itself was not kept, so an honest certificate goes on
    call(tmp_path)
    assert all(row["radius"] < 1 for row in read(tmp_path)[0])


def test_a_wrong_radius_is_found_by_the_gallery(call, tmp_path, monkeypatch):
    """Attacks at eps say nothing about radii beyond it; the search for the smallest perturbation does."""

    def longer(network, x, eps, y=None, **options):
        honest = certify(network, x, eps, y, **options)
        radius = torch.where(honest.certified, honest.radius + 0.5, honest.radius)
        return dataclasses.replace(honest, radius=radius)

    monkeypatch.setattr("linfdist.evaluation.batch.Certifier", certifier_of(longer))
    monkeypatch.setattr("linfdist.evaluation.gallery.ROUNDS", 4)
    with pytest.raises(Violated, match=r"radius 0\.\d+, but class \d with a perturbation of 0\.\d+"):
        call(tmp_path)
    assert any(name.startswith("violation-") for name in names(tmp_path))
    assert not (tmp_path / "summary.json").exists()


def edited(folder, sealed=False, **changes):
    """A summary that somebody has changed by hand; sealed: with its digest."""
    path = folder / "summary.json"
    summary = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(summary | ({"summary_sha256": summary_digest(summary)} if sealed else {})))


def test_a_changed_summary_is_not_taken_for_finished(whole, call, tmp_path):
    shutil.copytree(whole, tmp_path / "new")
    edited(tmp_path / "new", eps="0.9")
    with pytest.raises(ValueError, match=r"summary\.json was changed after it was written"):
        call(tmp_path / "new", eps="0.9")
    shutil.copytree(whole, tmp_path / "old")
    edited(tmp_path / "old", sealed=True, eps="0.9")
    with pytest.raises(ValueError, match=r"not of an evaluation at eps = 0\.9: it is certified, but its radius is 0\."):
        call(tmp_path / "old", eps="0.9")


@pytest.mark.parametrize("key", ["summary_sha256", "rows_sha256"])
def test_a_summary_without_a_digest_is_refused(whole, call, tmp_path, key):
    shutil.copytree(whole, tmp_path / "new")
    summary = json.loads((tmp_path / "new" / "summary.json").read_text())
    del summary[key]
    (tmp_path / "new" / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(ValueError, match=r"summary\.json was changed after it was written"):
        call(tmp_path / "new")


def test_a_network_without_a_file(run, test_set, tmp_path):
    """Its sha256 is that of its configuration and weights."""
    network = models.load(run)
    one = evaluate(network, test_set, "0.1", tmp_path / "one", limit=20).summary
    assert one["model_sha256"] == models.load(run).checksum()
    assert evaluate(network, test_set, "0.1", tmp_path / "one", limit=20).before
    next(network.parameters()).data.view(-1)[0] += 1
    with pytest.raises(ValueError, match=r"model_sha256: .* there, .* now"):
        evaluate(network, test_set, "0.1", tmp_path / "one", limit=20)


def test_layers_of_ones_own(test_set, tmp_path):
    """Anything that can be certified can be evaluated: here layers in a row, whose outputs are logits."""
    torch.manual_seed(0)
    layers = nn.Stack(nn.Normalize([0.3], 0.3), nn.Flatten(), nn.DistLinear(64, 10)).eval()
    summary = evaluate(layers, test_set, "0.001", tmp_path, attacks=("pgd",), limit=50).summary
    proof = certify(layers, test_set.images[:50] / 255, "0.001", test_set.labels[:50])
    assert summary["certified"] == 2 * int(proof.certified.sum())
    assert evaluate(layers, test_set, "0.001", tmp_path, attacks=("pgd",), limit=50).before
    with pytest.raises(TypeError, match="Linear"):
        evaluate(torch.nn.Linear(3, 4), test_set, "0.1", tmp_path / "other")


class Constant(Network):
    """A kind of network of its own: whatever the image, it is a zero, and it has a proof of that, up to 1/4."""

    shape, class_names, resize = (1, 8, 8), None, None
    classes, device = 10, torch.device("cpu")

    def checksum(self, file=None):
        return "0" * 64

    def from_bytes(self, images):
        return images

    def check_images(self, x):
        assert x.dtype == torch.uint8

    def __call__(self, x):
        return torch.eye(10)[torch.zeros(len(x), dtype=torch.int64)]

    def predict(self, x):
        return self(x).argmax(1)

    def prover(self, method):
        def prove(x, eps, y, radii):
            radius = torch.full((len(x),), 0.25, dtype=torch.float64)
            return self.predict(x), radius, (y == 0) & (eps <= Fraction(1, 4)), radius / 2

        return prove

    @property
    def floats(self):
        torch.manual_seed(0)
        return models.DistNet((1, 8, 8), 10, 8, 2, [0.3], 0.3).eval()

    def to_pixels(self, x):
        return x / 255

    def nearest(self, pixels, x, eps):
        return (pixels * 255).to(torch.uint8)


def test_networks_of_another_kind_can_be_evaluated(test_set, tmp_path):
    """Whatever keeps the contract: it may bring its own proofs, and names the gradients that attacks follow."""
    zeros = int((test_set.labels[:30] == 0).sum())
    evaluate(Constant(), test_set, "0.1", tmp_path, attacks=("pgd",), limit=30)
    rows, summary = read(tmp_path)
    assert summary["clean"] == summary["robust"] == summary["certified"] == pytest.approx(100 * zeros / 30)
    assert summary["model_sha256"] == "0" * 64
    for row in rows:
        assert (row["prediction"], row["radius"], row["margin_radius"]) == (0, 0.25, 0.125)
        assert row["certified"] == (row["label"] == 0)
        assert [each["broken"] for each in row["attacks"].values()] == [False] * (row["label"] == 0)


def test_bad_arguments(call, tmp_path):
    for change, told in [
        ({"eps": "1.5"}, "more than 1"),
        ({"method": "milp"}, "method = 'milp': must be one of margin, box"),
        ({"attacks": ("pdg",)}, "pdg"),
        ({"limit": 0}, "limit = 0: must be at least 1"),
        ({"batch": 0}, "batch = 0: must be at least 1"),
    ]:
        with pytest.raises(ValueError, match=told):
            call(tmp_path, **change)
    assert names(tmp_path) == set()


def test_the_best_of_several_proofs(test_set, tmp_path, monkeypatch):
    """Each holds on its own; one that speaks of another class does not count. Without radii nothing is searched for."""
    first = Certificate(torch.tensor([0, 1, 2]), torch.tensor([0.1, 0.0, 0.2]), torch.tensor([True, False, False]))
    second = Certificate(torch.tensor([0, 1, 3]), torch.tensor([0.0, 0.3, 0.9]), torch.tensor([False, True, True]))
    both = best_of([first, second])
    assert both.certified.tolist() == [True, True, False]
    assert both.radius.tolist() == pytest.approx([0.1, 0.3, 0.2])
    assert strongest(["box", "crown-ibp", "crown", "fast-lin"]) == ["crown", "fast-lin"]
    assert strongest(["box", "milp", "box"]) == ["milp"]
    torch.manual_seed(0)
    network = ReLUNet((1, 8, 8), 10, [0.3], 0.3, hidden=[16]).eval()
    asked, tried = {"eps": "0.005", "limit": 60, "attacks": ("pgd",), "batch": 20}, []

    class Asked(Certifiers):
        def __call__(self, images, labels, eps, method, radii):
            tried.append((method, len(images) == 20))
            return super().__call__(images, labels, eps, method, radii)

    monkeypatch.setattr("linfdist.evaluation.run.Certifiers", Asked)
    summary = evaluate(network, test_set, out=tmp_path, method="box,crown-ibp", radii=False, **asked).summary
    assert tried[:3] == [("box,crown-ibp", True), ("box", True), ("box,crown-ibp", False)]  # everything at first
    assert not (tmp_path / "gallery.safetensors").exists()
    proof = certify(network, test_set.images[:60] / 255, "0.005", test_set.labels[:60], method="crown-ibp")
    assert summary["certified"] == pytest.approx(100 * int(proof.certified.sum()) / 60)
    assert (summary["method"], summary["radii"]) == ("box,crown-ibp", False)
    with pytest.raises(ValueError, match="radii: False there, True now"):
        evaluate(network, test_set, out=tmp_path, method="box,crown-ibp", **asked)
