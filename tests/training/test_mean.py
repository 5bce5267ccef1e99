"""Recipes whose result is a mean: over views of the image, and with other networks."""

import os
import signal

import pytest
import torch

import linfdist as ld
from linfdist import models
from linfdist.training import Interrupted, train

from .runs import metrics, same_bits, stop_after, tensors, tiny


def seen(network, images, labels):
    """What is looked at during training is what will be written."""
    return {"members": float(len(getattr(network, "members", []))), "clean": 0.0, "certified": 0.0}


def test_the_result_is_the_mean_over_views_of_the_network_that_was_trained(digits, finished, tmp_path):
    out = train(tiny(views="same,mirror"), tmp_path / "run", data_dir=digits, quiet=True, evaluate=seen)
    result, plain = models.load(out), models.load(finished)
    images = torch.rand(7, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(result(images), (plain(images) + plain(images.flip(3))) / 2)
    assert [row["members"] for row in metrics(out)] == [1.0] * 3
    proof = ld.certify(result, images, eps="0.01")
    assert (proof.radius[proof.certified] >= 0.01).all()


def test_the_mean_with_another_network_resumes_with_the_same_bits(digits, finished, tmp_path):
    recipe = tiny(mean_with=str(finished), seed=1)
    whole = train(recipe, tmp_path / "whole", data_dir=digits, quiet=True)
    stop = stop_after(2, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "parts", data_dir=digits, quiet=True, evaluate=stop)
    parts = train(recipe, tmp_path / "parts", data_dir=digits, quiet=True, resume=True)
    assert same_bits(tensors(whole), tensors(parts))
    assert len(models.load(whole).members) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"views": "same,miror"}, "no view is called 'miror'"),
        ({"views": "shift:9,0"}, "out of sight"),
        ({"mean_with": "mnist-0.3"}, "must agree in their shape of images"),
        ({"mean_with": "runs/nowhere"}, "nowhere"),
    ],
)
def test_what_cannot_be_averaged_is_refused_before_the_first_step(digits, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        train(tiny(**changes), tmp_path / "run", data_dir=digits, quiet=True)
    assert not (tmp_path / "run").exists()


def test_names_on_the_command_line():
    assert tiny(views="same, mirror,shift:-1,0").views == ["same", "mirror", "shift:-1,0"]
    assert tiny(views='["same", "shift:1,-2"]').views == ["same", "shift:1,-2"]
    with pytest.raises(ValueError, match="views = 'same': has no effect"):
        tiny(views="same")
