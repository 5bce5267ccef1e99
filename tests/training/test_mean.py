"""Recipes whose result is the mean with other networks."""

import os
import signal

import pytest

from linfdist import models
from linfdist.training import Interrupted, train

from .runs import metrics, same_bits, stop_after, tensors, tiny


def seen(network, images, labels):
    """What is looked at during training is what will be written."""
    return {"members": float(len(getattr(network, "members", []))), "clean": 0.0, "certified": 0.0}


def test_the_mean_with_another_network_resumes_with_the_same_bits(digits, finished, tmp_path):
    recipe = tiny(mean_with=str(finished), seed=1)
    whole = train(recipe, tmp_path / "whole", data_dir=digits, quiet=True, evaluate=seen)
    assert [row["members"] for row in metrics(whole)] == [2.0] * 3
    stop = stop_after(2, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "parts", data_dir=digits, quiet=True, evaluate=stop)
    parts = train(recipe, tmp_path / "parts", data_dir=digits, quiet=True, resume=True)
    assert same_bits(tensors(whole), tensors(parts))
    assert len(models.load(whole).members) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean_with": "mnist-0.3"}, "must agree in their shape of images"),
        ({"mean_with": "runs/nowhere"}, "nowhere"),
    ],
)
def test_what_cannot_be_averaged_is_refused_before_the_first_step(digits, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        train(tiny(**changes), tmp_path / "run", data_dir=digits, quiet=True)
    assert not (tmp_path / "run").exists()
