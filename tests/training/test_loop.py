"""A run: its folder, its repeatability, its end, and what stops it."""

import json
import os
import shutil
import signal
import sys

import pytest
import torch

from linfdist import data, models, recipes
from linfdist.data.samples import as_pixels
from linfdist.files import load_tensors, save_tensors
from linfdist.training import Diverged, Interrupted, Trainer, train

from .runs import EPOCH, FINISHED, files, metrics, same_bits, stop_after, tensors, tiny


def test_a_finished_run(finished):
    assert files(finished) == FINISHED
    assert recipes.load(finished / "recipe.json") == tiny()
    network = models.load(finished)
    assert network.config["width"] == 12
    assert not network.training
    assert load_tensors(finished / "model.safetensors")[1]["recipe"] == "digits-quick"


def test_metrics(finished):
    rows = metrics(finished)
    assert [row["step"] for row in rows] == [EPOCH, 2 * EPOCH, 3 * EPOCH]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert 8 < rows[0]["p"] < rows[1]["p"]
    assert rows[2]["p"] is None  # infinity, which JSON does not have
    assert rows[0]["lr"] > rows[1]["lr"] > rows[2]["lr"] > 0
    for row in rows:
        assert 0 < row["loss"] < 5
        assert 0 <= row["train_accuracy"] <= 100
    raw = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert all(row["images_per_second"] > 0 for row in raw)
    assert raw[0]["seconds"] < raw[1]["seconds"] < raw[2]["seconds"]


def test_it_learns(digits, tmp_path):
    out = train(tiny(width=64, batch_size=32, epochs=12), tmp_path / "run", data_dir=digits, quiet=True)
    rows = metrics(out)
    assert rows[-1]["train_accuracy"] > 65
    assert rows[-1]["loss"] < 0.7 * rows[0]["loss"]


@pytest.mark.parametrize("changes", [{"width": 300, "depth": 4}, {"width": 30, "decay": "lp", "weight_decay": "0.005"}])
def test_same_seed_same_bits_on_any_number_of_threads(digits, tmp_path, changes):
    results = []
    for threads in (1, 2, 2):
        torch.set_num_threads(threads)
        recipe = tiny(**{"epochs": 0.6, **changes})
        out = train(recipe, tmp_path / str(len(results)), data_dir=digits, quiet=True)
        results.append(tensors(out))
    assert same_bits(results[0], results[1])
    assert same_bits(results[1], results[2])
    other = train(tiny(**{"epochs": 0.6, "seed": 1, **changes}), tmp_path / "other", data_dir=digits, quiet=True)
    assert not same_bits(results[0], tensors(other))


def test_held_out_images_are_not_trained_on(digits, tmp_path):
    looks = []

    def evaluate(network, images, labels):
        looks.append((images, labels))
        return {"certified": float(len(images))}

    out = train(tiny(epochs=0.1, holdout=300), tmp_path / "run", data_dir=digits, quiet=True, evaluate=evaluate)
    (held, labels), (trained_on, _) = looks
    assert len(held) == len(labels) == 300
    assert len(labels.unique()) == 10
    batches = Trainer(tiny(holdout=300, pad=0), data.load("digits", data_dir=digits), data.info("digits")).batches
    drawn = {image.numpy().tobytes() for step in range(batches.steps_per_epoch) for image in batches.at(step)[0]}
    assert {image.numpy().tobytes() for image in as_pixels(trained_on)} & drawn
    assert not {image.numpy().tobytes() for image in as_pixels(held)} & drawn
    last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["certified"], last["seen_certified"]) == (300, 1000)
    with pytest.raises(ValueError, match="larger than the 47 training images"):
        train(tiny(holdout=1300), tmp_path / "none", data_dir=digits)
    with pytest.raises(ValueError, match="holdout = 1347: must be less than the 1347 training images"):
        train(tiny(holdout=1347), tmp_path / "none", data_dir=digits)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])  # a terminal and a launcher may both pass it on
def test_a_signal_stops_with_a_checkpoint(finished, digits, tmp_path, number, times):
    stop = stop_after(2, lambda: [os.kill(os.getpid(), number) for _ in range(times)])
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    out = tmp_path / "run"
    with pytest.raises(Interrupted, match=f"stopped at step {2 * EPOCH} of {3 * EPOCH}; --resume"):
        train(tiny(), out, data_dir=digits, quiet=True, evaluate=stop)
    assert files(out) == {"checkpoint.safetensors", "recipe.json", "metrics.jsonl"}
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    with pytest.raises(FileNotFoundError, match="not finished: resume it first"):
        models.load(out)
    with pytest.raises(FileExistsError, match="unfinished run: add --resume"):
        train(tiny(), out, data_dir=digits)
    train(tiny(), out, data_dir=digits, quiet=True, resume=True)
    assert same_bits(tensors(out), tensors(finished))
    assert [row["step"] for row in metrics(out)] == [EPOCH, 2 * EPOCH, 3 * EPOCH]


def test_an_exception_anywhere_leaves_a_run_that_resumes(finished, digits, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(ZeroDivisionError):
        train(tiny(), out, data_dir=digits, quiet=True, evaluate=stop_after(2, lambda: 1 / 0), checkpoint_seconds=0)
    train(tiny(), out, data_dir=digits, quiet=True, resume=True)
    assert same_bits(tensors(out), tensors(finished))
    assert [{**row, "clean": 1.0} for row in metrics(out)] == [{**row, "clean": 1.0} for row in metrics(finished)]


def test_a_run_from_before_a_recipe_had_all_its_keys_resumes(finished, digits, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(ZeroDivisionError):
        train(tiny(), out, data_dir=digits, quiet=True, evaluate=stop_after(2, lambda: 1 / 0), checkpoint_seconds=0)
    recipe = json.loads((out / "recipe.json").read_text())
    assert recipe.pop("warp_share") == 1
    (out / "recipe.json").write_text(json.dumps(recipe))
    train(tiny(), out, data_dir=digits, quiet=True, resume=True)
    assert same_bits(tensors(out), tensors(finished))


def test_resume_does_not_need_the_network_it_started_from(finished, digits, tmp_path):
    start = shutil.copy(finished / "model.safetensors", tmp_path / "start.safetensors")
    recipe = tiny(start=str(start))
    whole = train(recipe, tmp_path / "whole", data_dir=digits, quiet=True)
    out = tmp_path / "run"
    with pytest.raises(ZeroDivisionError):
        train(recipe, out, data_dir=digits, quiet=True, evaluate=stop_after(2, lambda: 1 / 0), checkpoint_seconds=0)
    start.unlink()
    train(recipe, out, data_dir=digits, quiet=True, resume=True)
    assert same_bits(tensors(out), tensors(whole))
    assert not same_bits(tensors(whole), tensors(finished))


def test_a_start_from_a_pruned_network_is_noted(finished, digits, tmp_path, capsys):
    start = tmp_path / "start.safetensors"
    models.save(models.load(finished), start, prune=True)
    out = train(tiny(start=str(start)), tmp_path / "run", data_dir=digits, quiet=True)
    assert "training starts from a pruned network" in capsys.readouterr().out
    assert not models.load(out).pruned


def test_resume_without_a_checkpoint_starts_afresh(finished, digits, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "metrics.jsonl").write_text('{"step": 10}\n{"st')  # killed before the first checkpoint
    (out / ".checkpoint.safetensors.123.tmp").write_bytes(b"half")
    train(tiny(), out, data_dir=digits, quiet=True, resume=True)
    assert files(out) == FINISHED
    assert same_bits(tensors(out), tensors(finished))
    assert metrics(out) == metrics(finished)


def test_a_finished_run_is_left_alone(finished, digits):
    before = (finished / "model.safetensors").read_bytes()
    with pytest.raises(FileExistsError, match="holds a finished run"):
        train(tiny(), finished, data_dir=digits)
    (finished / "checkpoint.safetensors").write_bytes(b"killed after the model was written")
    assert train(tiny(), finished, data_dir=digits, resume=True) == finished
    assert files(finished) == FINISHED
    assert (finished / "model.safetensors").read_bytes() == before


@pytest.fixture
def stopped(digits, tmp_path):
    """A run that was stopped after its first epoch."""
    out = tmp_path / "stopped"
    stop = stop_after(1, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted):
        train(tiny(), out, data_dir=digits, quiet=True, evaluate=stop)
    return out


def test_another_recipe_is_refused_by_the_names_of_its_keys(stopped, finished, digits):
    for out in (stopped, finished):
        with pytest.raises(ValueError, match=r"another recipe \(lr: 0\.03 there, 0\.5 now, seed: 0 there, 7 now\)"):
            train(tiny(lr=0.5, seed=7), out, data_dir=digits, resume=True)


def test_the_order_of_settings_does_not_matter(stopped, digits):
    recipe = recipes.load("digits-quick").override({"epochs": 3, "batch_size": 128, "width": 12})
    assert recipe.source != tiny().source
    assert files(train(recipe, stopped, data_dir=digits, resume=True, quiet=True)) == FINISHED


@pytest.mark.parametrize("text", ["", "[1]", "{", "\udcff"])
def test_a_damaged_recipe_is_refused(stopped, digits, text):
    (stopped / "recipe.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=r"cannot be resumed: its recipe\.json cannot be read"):
        train(tiny(), stopped, data_dir=digits, resume=True)


def tampered(change):
    def damage(path):
        content, header = load_tensors(path)
        content = {name: tensor.clone() for name, tensor in content.items()}
        change(content, header)
        save_tensors(path, content, header)

    return damage


def one_of(content, start):
    return next(name for name in content if name.startswith(start))


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(os.urandom(500)),
    "no step": tampered(lambda content, header: header.pop("step")),
    "step beyond the end": tampered(lambda content, header: header.update(step=31)),
    "step is text": tampered(lambda content, header: header.update(step="5")),
    "sums": tampered(lambda content, header: header.update(sums=None)),
    "a name": tampered(lambda content, header: content.update(weights=torch.zeros(1))),
    "weight missing": tampered(lambda content, header: content.pop(one_of(content, "model/"))),
    "moment missing": tampered(lambda content, header: content.pop(one_of(content, "optimiser/"))),
    "moment of one number": tampered(
        lambda content, header: content.update({one_of(content, "optimiser/network.body"): torch.zeros(1, 1)})
    ),
    "weight is NaN": tampered(lambda content, header: content[one_of(content, "model/network.body")].fill_(torch.nan)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_refused(stopped, digits, damage):
    damage(stopped / "checkpoint.safetensors")
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors"):
        train(tiny(), stopped, data_dir=digits, resume=True)


def test_divergence_is_explained(digits, tmp_path):
    expected = r"at step \d+ \(epoch .*, p = 8, lr = 9\.97e\+29\)\. Lower the learning rate"
    with pytest.raises(Diverged, match=expected) as it:
        train(tiny(lr=1e30), tmp_path / "run", data_dir=digits, quiet=True)
    assert "there is no checkpoint yet" in str(it.value)


def test_weights_that_diverge_never_replace_a_good_checkpoint(digits, tmp_path):
    """A finite loss may have a gradient that is not."""
    out = tmp_path / "run"

    def poison(network, images, labels):
        before.append((out / "checkpoint.safetensors").read_bytes())
        with torch.no_grad():
            network.last.weight.fill_(torch.nan)
        return {}

    before = []
    with pytest.raises(Diverged, match=r"network\.last\.weight has values that are not finite .*last checkpoint is"):
        train(tiny(), out, data_dir=digits, quiet=True, evaluate=poison, checkpoint_seconds=0)
    assert (out / "checkpoint.safetensors").read_bytes() == before[0]
    assert not (out / "model.safetensors").exists()
    train(tiny(), out, data_dir=digits, quiet=True, resume=True)


def test_a_folder_that_cannot_be_made(digits, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        train(tiny(), tmp_path / "file" / "run", data_dir=digits)


def test_batches_must_fit(digits, tmp_path):
    with pytest.raises(ValueError, match="larger than the 1347 training images"):
        train(tiny(batch_size=2000), tmp_path / "run", data_dir=digits)


def test_tensorboard_is_an_extra(digits, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(ImportError, match=r"pip install tensorboard"):
        train(tiny(), tmp_path / "run", data_dir=digits, tensorboard=True)


def test_lines_of_a_quiet_run(digits, tmp_path, capsys):
    train(tiny(), tmp_path / "run", data_dir=digits, quiet=True, evaluate=lambda *_: {"clean": 50.0, "certified": 25.0})
    told = capsys.readouterr().out.splitlines()
    lines = [line for line in told if line.startswith("epoch")]
    assert len(lines) == 3
    assert all(line.startswith("warning: nothing is learned so far: ") for line in told if line not in lines)
    assert lines[2].startswith("epoch 3  p inf  lr 0.0001  loss ")
    assert "training images: clean 50.00 certified 25.00" in lines[2]
