"""Distillation: the cross-entropy aims at the probabilities that trained networks give."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import linfdist as ld
from linfdist import data, models
from linfdist.data.samples import as_pixels
from linfdist.training import Interrupted, Trainer, train
from linfdist.training.teachers import SCALES, best_scale

from .runs import metrics, same_bits, stop_after, tensors, tiny


@pytest.fixture(scope="module")
def pair(digits, tmp_path_factory):
    """Two finished runs that differ."""
    out = tmp_path_factory.mktemp("teachers")
    return [str(train(tiny(seed=seed), out / str(seed), data_dir=digits, quiet=True)) for seed in (1, 2)]


def trainer(digits, **changes):
    return Trainer(tiny(**changes), data.load("digits", "train", digits), data.info("digits"))


def test_the_cross_entropy_aims_at_the_mean_of_the_teachers(digits, pair):
    taught, plain = trainer(digits, teachers=pair), trainer(digits)
    x, y, state = as_pixels(taught.trained_on[0])[:40], taught.trained_on[1][:40], taught.state
    z = torch.randn(40, 10)
    mean = sum(models.load_floats(each).eval()(x) for each in pair) / 2
    soft = F.softmax(taught.teachers.scale * mean, 1)
    aimed = -(soft * F.log_softmax(z, 1)).sum(1).mean()
    expected = plain.objective.loss.of(z, x, y, state) + state.loss["ce_weight"] * (aimed - F.cross_entropy(z, y))
    torch.testing.assert_close(taught.objective.loss.of(z, x, y, state), expected)
    on_boxes = replace(state, boxes=True)  # whose bounds mean nothing to a teacher of points
    taught.objective.loss.box_threshold = plain.objective.loss.box_threshold = 0.1
    assert taught.objective.loss.of(z, x, y, on_boxes) == plain.objective.loss.of(z, x, y, on_boxes)


def test_the_scale_is_the_best_one():
    z, y = torch.randn(500, 4), torch.randint(4, (500,))
    z[range(500), y] += 0.8
    found = best_scale(z / 7, y)
    losses = [F.cross_entropy(factor * found * z / 7, y) for factor in (0.98, 1, 1.02)]
    assert losses[1] < min(losses[0], losses[2])
    assert 100 < best_scale(F.one_hot(y, 4) * 1.0, y) <= SCALES[1]  # all of them right: the more, the better
    assert best_scale(F.one_hot((y + 1) % 4, 4) * 1.0, y) == pytest.approx(SCALES[0], rel=1e-6)  # none of them


def test_teachers_are_not_trained_and_no_part_of_what_is_written(digits, finished, pair, tmp_path):
    before = [tensors_of(each) for each in pair]
    taught = train(tiny(teachers=pair), tmp_path / "taught", data_dir=digits, quiet=True)
    assert tensors(taught).keys() == tensors(finished).keys()
    assert not same_bits(tensors(taught), tensors(finished))
    assert all(same_bits(tensors_of(each), old) for each, old in zip(pair, before, strict=True))
    assert trainer(digits, teachers=pair).state_dict().keys() == trainer(digits).state_dict().keys()


def tensors_of(run):
    return dict(models.load_floats(run).state_dict())


def test_a_stopped_run_resumes_with_the_same_bits(digits, pair, tmp_path):
    recipe = tiny(teachers=pair)
    whole = train(recipe, tmp_path / "whole", data_dir=digits, quiet=True)
    stop = stop_after(2, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "parts", data_dir=digits, quiet=True, evaluate=stop)
    parts = train(recipe, tmp_path / "parts", data_dir=digits, quiet=True, resume=True)
    assert same_bits(tensors(whole), tensors(parts))
    assert metrics(whole)[-1]["loss"] == metrics(parts)[-1]["loss"]


def test_a_run_resumes_with_the_same_teachers_alone(digits, pair, tmp_path):
    shutil.copytree(pair[0], tmp_path / "teacher")
    recipe = tiny(teachers=[str(tmp_path / "teacher")])
    stop = stop_after(1, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", data_dir=digits, quiet=True, evaluate=stop)
    shutil.copy(Path(pair[1]) / "model.safetensors", tmp_path / "teacher")
    with pytest.raises(ValueError, match=r"has learned from other networks than .*teacher'\] are now"):
        train(recipe, tmp_path / "run", data_dir=digits, quiet=True, resume=True)
    shutil.rmtree(tmp_path / "teacher")
    with pytest.raises(ValueError, match=r"teachers = .*teacher'\]: .*teacher"):
        train(recipe, tmp_path / "run", data_dir=digits, quiet=True, resume=True)
    shutil.copytree(pair[0], tmp_path / "teacher")  # nothing is lost meanwhile
    train(recipe, tmp_path / "run", data_dir=digits, quiet=True, resume=True)


def test_crops_are_seen_by_teachers_of_that_size(digits, tmp_path):
    images, labels = load_digits(digits)
    small = ld.train("digits-quick", images[:, :, 1:7, 1:7], labels, settings={"width": 12, "epochs": 1})
    ld.save(small, tmp_path / "six.safetensors")
    taught = trainer(digits, crop=6, teachers=[str(tmp_path / "six.safetensors")])
    assert taught.step() > 0


def test_who_knows_nothing_of_the_classes_is_refused(digits, pair):
    images, labels = load_digits(digits)
    with pytest.raises(ValueError, match=r"teachers = .*: they say nothing of these labels"):
        ld.train("digits-quick", images, (labels + 5) % 10, settings={"width": 12, "epochs": 1, "teachers": pair})


def load_digits(digits):
    found = data.load("digits", "train", digits)
    return found.images, found.labels


def test_networks_that_may_know_held_out_images_are_named(digits, pair, tmp_path, capsys):
    train(tiny(teachers=pair, holdout=50, epochs=1), tmp_path / "run", data_dir=digits, quiet=True)
    assert f"{pair[1]} may know the held-out images: it is not known" in capsys.readouterr().out
    clean = train(tiny(holdout=50, seed=5), tmp_path / "clean", data_dir=digits, quiet=True)
    capsys.readouterr()
    train(tiny(teachers=[str(clean)], holdout=50, epochs=1), tmp_path / "good", data_dir=digits, quiet=True)
    assert "may know" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("teachers", "message"),
    [
        ("mnist-0.3", r"teachers = \['mnist-0.3'\]: they take images \(1, 28, 28\), and those of .* are \(1, 8, 8\)"),
        ("mnist-0.3,cifar10-8_255", "must agree in their shape of images"),
        ("runs/nowhere", "nowhere"),
    ],
)
def test_what_cannot_teach_is_refused_before_the_first_step(digits, tmp_path, teachers, message):
    with pytest.raises(ValueError, match=message):
        train(tiny(teachers=teachers), tmp_path / "run", data_dir=digits, quiet=True)
    assert not (tmp_path / "run").exists()


def test_other_losses_have_no_cross_entropy_to_teach():
    with pytest.raises(ValueError, match=r"teachers = .* has no effect here, because loss = 'hinge' does not use it"):
        tiny(loss="hinge", ce_start=None, ce_end=None, teachers=["mnist-0.3"])
