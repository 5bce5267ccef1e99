"""Names, cards and files: what is loaded is what was measured, or nothing is."""

import json
import os
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import linfdist as ld
from linfdist import recipes
from linfdist.cli import app
from linfdist.models import zoo as package_zoo
from linfdist.models.zoo import card, file, names
from linfdist.models.zoo.cards import read
from linfdist.recipes import Recipe

from ...ops.processes import python


@pytest.fixture
def copy(zoo, tmp_path):
    return shutil.copytree(zoo, tmp_path / "zoo")


def test_by_name_and_by_path(zoo, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert names(zoo) == ["digits-0.1"]
    by_name, by_path = ld.load("digits-0.1", zoo), ld.load(zoo / "digits-0.1.safetensors")
    assert not by_name.training
    assert all(torch.equal(one, two) for one, two in zip(by_name.parameters(), by_path.parameters(), strict=True))
    # Package registries refuse files of 100 MB.
    assert sum(tensor.numel() for tensor in by_name.parameters()) == card("digits-0.1", zoo).parameters


def test_a_name_of_the_zoo_means_its_network_whatever_is_here(zoo, run, monkeypatch, tmp_path):
    os.symlink(run, tmp_path / "digits-0.1")
    monkeypatch.chdir(tmp_path)
    rounded, here = ld.load(zoo / "digits-0.1.safetensors"), ld.load(run)
    assert not torch.equal(rounded.last.weight, here.last.weight)
    assert torch.equal(ld.load("digits-0.1", zoo).last.weight, rounded.last.weight)
    for path in ("./digits-0.1", Path("digits-0.1")):
        assert torch.equal(ld.load(path, zoo).last.weight, here.last.weight)


def test_the_command_line_says_which_of_the_two_it_took(run, monkeypatch, tmp_path):
    os.symlink(run, tmp_path / "mnist-0.3")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["export", "mnist-0.3", "--format", "torch", "--k", "3"])
    assert "mnist-0.3 is taken from the zoo; write ./mnist-0.3 for what is here" in result.stderr


def test_an_unknown_name_lists_the_names_and_says_that_a_path_will_do(zoo):
    with pytest.raises(FileNotFoundError, match=r"no network 'minst': give .*model\.safetensors.*zoo has digits-0\.1"):
        ld.load("minst", zoo)
    with pytest.raises(FileNotFoundError, match="no network 'minst'"):
        ld.load("minst")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        ld.load("runs/minst")
    with pytest.raises(ValueError, match=r"no network '../x' in the zoo; the zoo has digits-0\.1"):
        card("../x", zoo)


def test_an_empty_zoo_says_so(tmp_path):
    assert names(tmp_path / "none") == []
    with pytest.raises(FileNotFoundError, match="the zoo is empty"):
        ld.load("mnist-0.3", tmp_path / "none")


@pytest.mark.parametrize("where", [100, -1])
def test_one_changed_byte_is_refused(copy, where):
    path = copy / "digits-0.1.safetensors"
    content = bytearray(path.read_bytes())
    content[where] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not what was measured"):
        ld.load("digits-0.1", copy)


@pytest.mark.parametrize("change", [{"name": "other"}, {"sha256": None}])
def test_a_card_that_does_not_vouch_for_the_file_is_refused(copy, change):
    path = copy / "digits-0.1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=r"digits-0\.1\.json is not the card of 'digits-0\.1'"):
        ld.load("digits-0.1", copy)


def test_loading_does_without_pydantic():
    """Its import takes longer than the network."""
    run = python("-c", "import sys, linfdist; linfdist.load('mnist-0.3'); assert 'pydantic' not in sys.modules")
    assert run.returncode == 0, run.stderr


def test_a_missing_file_and_a_card_under_another_name_are_refused(copy):
    (copy / "digits-0.1.json").rename(copy / "other.json")
    with pytest.raises(ValueError, match=r"other\.json is the card of 'digits-0\.1'"):
        card("other", copy)
    (copy / "other.json").rename(copy / "digits-0.1.json")
    (copy / "digits-0.1.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="is missing"):
        file("digits-0.1", copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"certified": 100.0, "clean": 99.0}, "certified <= attacked <= clean"),
        ({"clean": 101.0}, "clean: must be at most 100, got 101.0"),
        ({"eps": "three"}, "is not a number"),
        ({"sha256": "0" * 63}, "sha256: must be text of the form"),
        ({"seeds": []}, "seeds: must be longer, got "),
        ({"praise": "best of all"}, "praise: no such entry"),
        ({"mean_radius": "0.1"}, "mean_radius: must be a number, got '0.1'"),
    ],
)
def test_a_card_that_cannot_be_true_is_refused(copy, change, message):
    path = copy / "digits-0.1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=rf"digits-0\.1\.json is no card: .*{message}"):
        read(path)


@pytest.mark.parametrize("name", package_zoo.names())
def test_every_network_of_the_package_is_the_one_of_its_card(name):
    network, each = ld.load(name), package_zoo.card(name)
    assert sum(tensor.numel() for tensor in network.parameters()) == each.parameters
    first = network.members[0] if each.recipe.get("mean_with") else network
    assert first.config["width"] == each.recipe["width"]
    assert network(torch.zeros(1, *network.shape)).isfinite().all()


@pytest.mark.parametrize("name", package_zoo.names())
def test_every_network_of_the_package_can_be_trained_again(name):
    """What its recipe names is another network of the zoo, or comes out of a command of its card before."""
    each, made = package_zoo.card(name), []
    for line in each.before:
        program, verb, recipe, *rest = shlex.split(line)
        settings = [after for flag, after in pairwise(rest) if flag == "--set"]
        assert (program, verb) == ("linfdist", "train")
        assert recipes.override(recipes.load(recipe), settings).data == each.data
        made.append(rest[rest.index("--out") + 1])
    needed = Recipe.model_validate(each.recipe).networks
    assert sorted(made) == sorted(place for place in needed if place not in package_zoo.names())


def test_all_networks_together_are_small():
    assert sum(file(name).stat().st_size for name in package_zoo.names()) <= 15e6
