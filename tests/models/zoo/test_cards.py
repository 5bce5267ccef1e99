"""Cards claim what a measurement gives: of a network made here, and of every one that comes with the package."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from linfdist import data
from linfdist.certificates import certify
from linfdist.evaluation import Violated
from linfdist.models import load
from linfdist.models import zoo as package_zoo
from linfdist.models.zoo import card, file
from linfdist.models.zoo.cards import Card
from linfdist.recipes import Recipe, command
from linfdist.runs.folder import Run
from linfdist.runs.rows import Attempt, Row
from tools import measure as module
from tools.measure import choose, measure
from tools.zoo_add import add, runs_before

from ...ops.processes import ROOT

SHARED = ROOT.parent / "shared" / "data" / "tiny-imagenet" / "tiny-imagenet-200-trainval.tar.xz"


def measure_again(name: str, folder: Path | None, out: Path, data_dir: Path | None = None) -> None:
    """Plain nets have the same bits on every machine; sums in a head, and gradients of attacks, may differ a little."""
    claimed = card(name, folder)
    found = measure(file(name, folder), data.load(claimed.data, "test", data_dir), claimed.eps, out)
    plain = claimed.recipe["model"] == "dist_net"
    assert found.n == claimed.n
    assert found.clean == pytest.approx(claimed.clean, abs=0 if plain else 0.05)
    assert found.certified == pytest.approx(claimed.certified, abs=0 if plain else 0.05)
    assert found.mean_radius == pytest.approx(claimed.mean_radius, rel=1e-9 if plain else 1e-3)
    assert found.pgd20.percent == pytest.approx(claimed.pgd20.percent, abs=0.3)
    assert found.strongest.percent == pytest.approx(claimed.strongest.percent, abs=0.3)


def test_the_card_of_a_new_network(zoo, digits, tmp_path):
    measure_again("digits-0.1", zoo, tmp_path, digits)


def test_a_card_counts_what_the_network_does(zoo, digits):
    """Not through rows: the certificate itself, over all test images."""
    claimed, images = card("digits-0.1", zoo), data.load("digits", "test", digits)
    proof = certify(load(zoo / "digits-0.1.safetensors"), images.images / 255, claimed.eps, images.labels)
    right = proof.prediction == images.labels
    assert 100 * int(right.sum()) / len(images) == claimed.clean
    assert 100 * int(proof.certified.sum()) / len(images) == claimed.certified
    assert float(proof.radius.where(right, 0).mean()) == pytest.approx(claimed.mean_radius)
    assert claimed.certified < claimed.strongest.percent < claimed.clean  # else this network tests nothing
    assert claimed.strongest.percent <= claimed.pgd20.percent


def test_a_card_tells_how_the_network_was_trained(zoo, run):
    claimed, trained = card("digits-0.1", zoo), Run(run)
    assert Recipe.model_validate(claimed.recipe) == trained.recipe
    assert claimed.seeds == [trained.recipe.seed]
    assert claimed.hours == round(trained.seconds / 3600, 2)


def test_a_card_tells_which_runs_came_before(run, monkeypatch):
    monkeypatch.chdir(run.parent)
    recipe = Run(run).recipe.override({"start": "run", "mean_with": ["mnist-0.3", "run"]})
    (first,) = runs_before(recipe)
    assert first == f"{command(Run(run).recipe)} --out run"
    assert "--set width=32" in first
    assert runs_before(Run(run).recipe) == []
    with pytest.raises(ValueError, match="neither the folder of a run nor a network of the zoo"):
        runs_before(recipe.override({"teachers": ["run/model.safetensors"]}))


def test_runs_that_come_before_each_other_are_refused(run, monkeypatch):
    """As after a run that was trained again, by what it had taught."""
    monkeypatch.chdir(run.parent)
    itself = Run(run).recipe.override({"teachers": ["run"]})
    monkeypatch.setattr("tools.zoo_add.Run", lambda place: SimpleNamespace(recipe=itself))
    with pytest.raises(ValueError, match="run comes before itself"):
        runs_before(itself)


def test_what_is_attacked():
    rows = [Row(0, 1, 1, 0.4, True), Row(1, 1, 0, 0.4, False), Row(2, 1, 1, 0.2, False), Row(3, 1, 1, 0.3, True)]
    chosen, which = choose(rows)
    assert [row.index for row in chosen] == [2, 3, 0]
    assert which == "all 1 that are right but not certified, and the 2 of smallest radius of the certified ones"


def test_a_broken_certificate_stops_everything(run, digits, tmp_path, monkeypatch):
    """With an attack that breaks everything, certified images break too: no card may come of it."""

    def attempt(subject, attack, images, labels, eps):
        return images, [Attempt(True, 9 - int(label), 0.01) for label in labels]

    monkeypatch.setattr(module, "attempt", attempt)
    with pytest.raises(Violated, match="certified at eps"):
        add(run, "digits-0.1", tmp_path, None, digits)
    assert not list(tmp_path.iterdir())


def test_a_name_is_not_taken_twice_and_must_be_one(zoo, run, digits):
    before = (zoo / "digits-0.1.json").read_text()
    with pytest.raises(FileExistsError, match=r"digits-0\.1 is in the zoo"):
        add(run, "digits-0.1", zoo, None, digits)
    with pytest.raises(ValueError, match="must be lower-case letters"):
        add(run, "../digits", zoo, None, digits)
    again = add(run, "digits-0.1", zoo, None, digits, hours=7.5, replace=True)
    assert again.hours == 7.5
    assert again.model_copy(update={"hours": json.loads(before)["hours"]}) == Card.model_validate_json(before)
    (zoo / "digits-0.1.json").write_text(before)


def test_an_unfinished_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="not the folder of a finished run"):
        add(tmp_path, "digits-0.1", tmp_path / "zoo")


def test_curves_claim_no_more_than_is_proved(zoo, digits):
    curves = json.loads((zoo / "results" / "curves" / "digits-0.1.json").read_text())
    images = data.load("digits", "test", digits)
    proof = certify(load(zoo / "digits-0.1.safetensors"), images.images / 255, "0.1", images.labels)
    proved = torch.where(proof.certified, proof.radius.clamp(min=0.1), proof.radius)
    proved[proof.prediction != images.labels] = 0
    radii = curves["radii"]
    assert len(radii) == 200
    assert radii == sorted(radii, reverse=True)
    for k, radius in enumerate(radii):
        assert int((proved >= radius).sum()) * 200 >= (k + 1) * len(images)
    assert radii[99] == pytest.approx(float(proved.median()), abs=0.01)
    assert [epoch["epoch"] for epoch in curves["training"]] == list(range(1, 9))
    assert {"p", "train_accuracy", "clean", "certified"} <= curves["training"][-1].keys()


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", package_zoo.names())
def test_every_card_of_the_package(name, tmp_path):
    if SHARED.is_file():  # TinyImageNet's server may be out of reach
        place = data.data_root() / "tinyimagenet"
        place.mkdir(parents=True, exist_ok=True)
        if not (place / SHARED.name).exists():
            (place / SHARED.name).symlink_to(SHARED)
    measure_again(name, None, tmp_path)
