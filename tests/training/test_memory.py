"""`linfdist.train`: the training of `linfdist train`, on arrays, tensors and data sets."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import linfdist as ld
from linfdist import data, recipes
from linfdist.training import Diverged, Progress, Trainer

from .runs import EPOCH, SETTINGS, same_bits, tensors, tiny, train

SHORT = {"width": 8, "batch_size": 16, "epochs": 1}


@pytest.fixture(scope="module")
def digits_set(digits):
    return data.load("digits", data_dir=digits)


@pytest.fixture(scope="module")
def colour():
    """60 small images in three classes, each brighter than the one before; bytes (N, C, H, W)."""
    labels = torch.arange(60) % 3
    noise = torch.randint(60, (60, 3, 6, 5), generator=torch.Generator().manual_seed(0))
    return (noise + 90 * labels[:, None, None, None]).to(torch.uint8), labels


def state(network):
    return network.state_dict()


def test_it_learns(digits_set):
    before = torch.get_rng_state()
    network = ld.train("digits-quick", digits_set, settings={"width": 64, "epochs": 12})
    assert torch.equal(torch.get_rng_state(), before)
    assert not network.training
    x = digits_set.images.float() / 255
    assert (network(x).argmax(1) == digits_set.labels).float().mean() > 0.7
    assert ld.certify(network, x[:5], eps="0.01").radius.shape == (5,)


def test_same_bits_as_a_run_with_a_folder(finished, digits_set, digits, tmp_path):
    network = ld.train("digits-quick", digits_set.images, digits_set.labels, settings=SETTINGS)
    assert same_bits(state(network), tensors(finished))
    as_floats = ld.train(tiny(), digits_set.images.float() / 255, digits_set.labels.numpy())
    assert same_bits(state(as_floats), tensors(finished))

    recipe = tiny(pad=1, holdout=100, decay="lp", weight_decay=0.01)
    run = train(recipe, tmp_path / "run", data_dir=digits, quiet=True)
    assert same_bits(state(ld.train(recipe, digits_set)), tensors(run))


def test_a_recipe_may_be_a_file(finished, digits_set):
    network = ld.train(finished / "recipe.json", digits_set)
    assert same_bits(state(network), tensors(finished))


def test_the_callback_sees_every_epoch(digits_set):
    seen = []
    ld.train(tiny(), digits_set, callback=seen.append)
    assert all(isinstance(each, Progress) for each in seen)
    assert [(each.step, each.total, each.epoch) for each in seen] == [(EPOCH * k, 3 * EPOCH, k) for k in (1, 2, 3)]
    assert 8 < seen[0].p < seen[1].p < seen[2].p == math.inf
    assert seen[0].lr > seen[1].lr > seen[2].lr > 0
    assert all(each.loss > 0 and 0 <= each.train_accuracy <= 100 for each in seen)
    with pytest.raises(dataclasses.FrozenInstanceError):
        seen[0].step = 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_a_callback_raises_ends_the_training(digits_set, error):
    calls = []

    def stop(progress):
        calls.append(progress)
        raise error

    with pytest.raises(error):
        ld.train(tiny(), digits_set, callback=stop)
    assert len(calls) == 1


def test_all_layouts_are_the_same_training(colour):
    images, labels = colour
    expected = state(ld.train("digits-quick", images, labels, settings=SHORT))
    array = images.numpy()
    read_only = array.copy()
    read_only.flags.writeable = False
    pairs = torch.utils.data.TensorDataset(images, labels)
    for given in (
        (array, labels.numpy()),
        (read_only, labels.tolist()),
        (array.transpose(0, 2, 3, 1), labels.numpy().astype(np.uint8)),
        (pairs,),
        ([(image.transpose(1, 2, 0), int(label)) for image, label in zip(array, labels, strict=True)],),
        (data.Dataset("mine", images, labels, ("a", "b", "c")),),
    ):
        assert same_bits(state(ld.train("digits-quick", *given, settings=SHORT)), expected)


def test_gray_images_without_a_channel(colour):
    images, labels = colour
    one, other = (ld.train("digits-quick", gray, labels, settings=SHORT) for gray in (images[:, :1], images[:, 0]))
    assert one.shape == (1, 6, 5)
    assert same_bits(state(one), state(other))


def test_normalisation_is_measured_unless_the_data_are_the_recipes(colour, digits_set):
    images, labels = colour
    network = ld.train("digits-quick", images, labels, settings=SHORT)
    pixels = images.double() / 255
    assert network.config["classes"] == 3
    assert network.config["mean"] == pytest.approx(pixels.mean((0, 2, 3)).tolist())
    expected = pixels.var((0, 2, 3), correction=0).mean().sqrt()
    assert network.config["std"] == pytest.approx(float(expected))
    floats = ld.train("digits-quick", images.float() / 255, labels, settings=SHORT)
    assert floats.config["std"] == pytest.approx(network.config["std"])
    assert ld.train("digits-quick", digits_set, settings=SHORT).config["std"] == data.info("digits").std
    two = digits_set.labels < 2
    fewer = ld.train("digits-quick", digits_set.images[two], digits_set.labels[two], settings=SHORT)
    assert fewer.config["classes"] == 2
    assert fewer.config["std"] != data.info("digits").std


def test_rows_of_features():
    """Samples of shape (30,): training, calling, certifying and predicting, from arrays alone."""
    labels = np.arange(60) % 3
    rows = np.random.default_rng(0).random((60, 30)).clip(0, 0.6) + labels[:, None] * 0.2
    network = ld.train("digits-quick", rows, labels, settings={**SHORT, "epochs": 10})
    assert network.shape == (30, 1, 1)
    assert network.class_names == ("0", "1", "2")
    x = torch.tensor(rows).float()
    proof = ld.certify(network, rows, "0.01", y=labels)
    assert torch.equal(proof.prediction, network(x).argmax(1))
    assert torch.equal(proof.radius, ld.certify(network, x[:, :, None, None], "0.01").radius)
    some = np.zeros(30)
    some[3] = 0.4
    one = ld.certify(network, rows, some)
    assert torch.equal(one.certified, ld.certify(network, x, torch.tensor(some)).certified)
    assert (one.certified >= ld.certify(network, rows, 0.4).certified).all()
    assert torch.equal(ld.predict(network, rows, "0.01") >= 0, ld.certify(network, rows, "0.01").certified)
    with pytest.raises(ValueError, match=r"linfdist\.sklearn"):
        ld.train("digits-quick", rows * 7, labels)
    with pytest.raises(ValueError, match="need images"):
        ld.certify(network, rows[:, :29], "0.01")


def test_arrays_of_images_are_certified_as_they_are_trained(colour):
    images, labels = colour
    network = ld.train("digits-quick", images, labels, settings=SHORT)
    expected = ld.certify(network, images.float() / 255, "1/255")
    for array in (images.numpy(), images.numpy().transpose(0, 2, 3, 1), (images.float() / 255).double().numpy()):
        proof = ld.certify(network, array, "1/255", y=labels.numpy())
        assert torch.equal(proof.radius, expected.radius)
    with pytest.raises(ValueError, match="8/255"):
        ld.certify(network, images.numpy(), "8")
    with pytest.raises(ValueError, match="more than 1"):
        ld.predict(network, images.numpy(), 1.5)


def test_classes_may_be_named(colour, tmp_path):
    images, labels = colour
    names = ["dark", "middle", "bright", "none of these"]
    network = ld.train("digits-quick", images, labels, classes=names, settings=SHORT)
    assert network.config["classes"] == 4
    assert network.class_names == tuple(names)
    ld.models.save(network, str(tmp_path / "named.safetensors"))
    assert ld.load(str(tmp_path / "named.safetensors")).class_names == tuple(names)


IMAGES = torch.zeros(40, 1, 6, 6, dtype=torch.uint8)
IMAGES[20:] = 200
LABELS = torch.arange(40) // 20
NAN = IMAGES.float() / 255
NAN[7, 0, 3, 3] = torch.nan
BAD = {
    "one number an image": ({"images": IMAGES[:, 0, 0, 0]}, ["(40,)"]),
    "no images": ({"images": IMAGES[:0], "labels": LABELS[:0]}, ["(0, 1, 6, 6)"]),
    "whole numbers": ({"images": IMAGES.long()}, ["uint8", "int64"]),
    "text": ({"images": np.array(["a", "b"])}, ["uint8"]),
    "not finite": ({"images": NAN}, ["image 7"]),
    "beyond 1": ({"images": IMAGES.float()}, ["[0, 1]", "200"]),
    "below 0": ({"images": IMAGES.float() / -255}, ["[0, 1]", "-0.78"]),
    "constant": ({"images": IMAGES * 0}, ["constant"]),
    "no labels": ({"labels": None}, ["labels"]),
    "fewer labels": ({"labels": LABELS[:30]}, ["30", "40"]),
    "columns of labels": ({"labels": LABELS[:, None]}, ["(40, 1)"]),
    "labels are floats": ({"labels": LABELS.float()}, ["float32"]),
    "negative label": ({"labels": LABELS - 1}, ["-1"]),
    "labels from 1": ({"labels": LABELS + 1}, ["label 0"]),
    "label beyond the classes": ({"labels": LABELS + 1, "classes": ["a", "b"]}, ["0 … 1", "1 … 2"]),
    "one class": ({"labels": LABELS * 0}, ["one class"]),
    "one class of two": ({"labels": LABELS * 0, "classes": ["a", "b"]}, ["one class"]),
    "fewer images than a batch": ({"settings": {"batch_size": 41}}, ["41", "40"]),
    "crop": ({"settings": {"crop": 7}}, ["crop = 7", "6"]),
    "pad": ({"settings": {"pad": 6}}, ["pad = 6", "6"]),
    "no such key": ({"settings": {"widht": 3}}, ["widht", "width"]),
    "no such recipe": ({"recipe": "digits-quik"}, ["digits-quik", "digits-quick"]),
    "not pairs": ({"images": [1, 2, 3], "labels": None}, ["entry 0"]),
    "no pairs": ({"images": [], "labels": None}, ["none"]),
    "sizes differ": (
        {"images": [(np.zeros((6, 6), np.uint8), 0), (np.zeros((6, 5), np.uint8), 1)], "labels": None},
        ["image 1", "(6, 5)", "(6, 6)"],
    ),
    "labels twice": ({"images": data.Dataset("x", IMAGES, LABELS, ("a", "b"))}, ["labels"]),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_with_its_values(changes, words):
    given = {"recipe": "digits-quick", "images": IMAGES, "labels": LABELS, "settings": {}, **changes}
    recipe, images, labels = given.pop("recipe"), given.pop("images"), given.pop("labels")
    with pytest.raises((ValueError, TypeError)) as caught:
        ld.train(recipe, images, labels, **given)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_divergence(colour):
    with pytest.raises(Diverged) as caught:
        ld.train("digits-quick", *colour, settings={**SHORT, "lr": 1e30, "epochs": 4})
    assert caught.value.step > 0
    assert "lr = 1e+30" in str(caught.value)


@pytest.mark.parametrize("stop", [4, EPOCH, 25])
def test_a_trainer_resumes_from_its_state(digits_set, finished, tmp_path, stop):
    """Without any file: the tensors, the step and the sums are all there is."""
    recipe, info = tiny(), data.info("digits")
    one = Trainer(recipe, digits_set, info)
    for _ in range(stop):
        one.step()
        if one.epoch_ended:
            one.end_epoch()
    kept = {name: tensor.clone() for name, tensor in one.state_dict().items()}
    assert {name.split("/")[0] for name in kept} == {"model", "optimiser"}
    other = Trainer(recipe, digits_set, info, resumed=True)
    other.load_state(kept, one.done, one.sums, tmp_path)
    assert other.state == one.state
    while not other.finished:
        other.step()
    assert same_bits(state(other.finish()), tensors(finished))


@pytest.mark.parametrize("into_e4", [-1, 0, 1])  # steps: the clip is still to come, and is there
def test_a_clip_is_put_in_front_when_e4_begins_and_resuming_has_the_same_bits(digits_set, tmp_path, into_e4):
    boxes = {"e4": 1, "box_lr": 0.01, "box_threshold": "1 eps", "box_clip": [0.2, 0.8]}
    recipe, info = tiny().override(boxes), data.info("digits")
    one = Trainer(recipe, digits_set, info)
    stop = one.total - EPOCH + into_e4
    before = torch.get_rng_state()
    for _ in range(stop):
        one.step()
    assert one.network.config.get("clip") == ([0.2, 0.8] if into_e4 > 0 else None)
    other = Trainer(recipe, digits_set, info, resumed=True)
    other.load_state({name: tensor.clone() for name, tensor in one.state_dict().items()}, stop, one.sums, tmp_path)
    for each in (one, other):
        while not each.finished:
            each.step()
    assert torch.equal(torch.get_rng_state(), before)
    assert one.finish().config["clip"] == [0.2, 0.8]
    assert same_bits(state(one.finish()), state(other.finish()))


def test_putting_a_clip_in_front_keeps_weights_and_scale(digits_set):
    boxes = {"e4": 1, "box_lr": 0.01, "box_threshold": "0.1", "box_clip": [0.2, 0.8]}
    trainer = Trainer(tiny().override(boxes), digits_set, data.info("digits"))
    trainer.objective.loss.scale.data.fill_(3.0)
    last, before = trainer.network.last.weight.clone(), trainer.network.lipschitz
    trainer.done = trainer.total - 1
    trainer._put_clip_in_front()
    assert torch.equal(trainer.network.last.weight, last)
    assert trainer.objective.loss.scale == 3
    assert trainer.network.lipschitz == pytest.approx(before / 0.6)
    assert trainer.objective.loss.aim(trainer.state) == pytest.approx(0.1 * trainer.network.lipschitz)


def test_one_class_leaves_no_folder(tmp_path):
    from PIL import Image

    for split in ("train", "test"):
        folder = tmp_path / "data" / split / "only"
        folder.mkdir(parents=True)
        for k in range(20):
            Image.fromarray(np.full((6, 6), 10 * k, np.uint8)).save(folder / f"{k}.png")
    recipe = recipes.load("digits-quick").override({"data": str(tmp_path / "data"), **SHORT})
    with pytest.raises(ValueError, match="one class"):
        train(recipe, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_stems_and_averaged_neurons_are_trained_saved_and_certified(tmp_path):
    digits = ld.data.load("digits", split="train")
    settings = {"epochs": 8, "width": 96, "pool": [1, 2], "clip": [0.1, 0.9], "per_class": 3}
    network = ld.train("digits-quick", digits.images, digits.labels, settings=settings)
    ld.models.save(network, tmp_path / "model.safetensors", {})
    again, test = ld.load(tmp_path / "model.safetensors"), ld.data.load("digits", split="test")
    proof = ld.certify(again, test.images[:200] / 255, "0.05", test.labels[:200])
    assert torch.equal(proof.prediction, network(test.images[:200] / 255).argmax(1))
    assert proof.certified.float().mean() > 0.3
