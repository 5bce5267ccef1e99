"""Images whose loss has no gradient are drawn less often; the order follows from the seed and the margins."""

import math
import os
import signal

import pytest
import torch

from linfdist import data, recipes
from linfdist.files import load_tensors, save_tensors
from linfdist.training import Interrupted, train
from linfdist.training.batches import LOST, SAFE, Batches, Sampler
from linfdist.training.distributed import Workers
from linfdist.training.losses import clipped_hinge_loss, margins
from linfdist.training.trainer import Trainer

from .runs import metrics, same_bits, stop_after, tensors, tiny

FEWER = {"safe_share": 0.2, "lost_share": 0.3, "epochs": 4}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def times(sampler, length):
    sampler.begin_epoch(length, False, generator())
    return torch.bincount(sampler.order, minlength=sampler.count)


def test_leads():
    z = torch.tensor([[3.0, 1.0, 2.5], [3.0, 1.0, 2.5], [-math.inf, 0.0, 0.0]])
    assert margins(z, torch.tensor([0, 1, 2])).tolist() == [0.5, -2.0, 0.0]


def test_who_is_safe_or_lost_has_no_gradient():
    z = torch.tensor([[SAFE, 0.0], [0.0, -LOST], [0.5, 0.0]]).requires_grad_()
    clipped_hinge_loss(z, torch.tensor([0, 0, 0]), 1.0).backward()
    assert z.grad.any(1).tolist() == [False, False, True]


@pytest.mark.parametrize("all_images", [True, False])
def test_without_shares_an_epoch_is_one_permutation(all_images):
    sampler = Sampler(17)
    sampler.begin_epoch(16, all_images, generator(3))
    assert torch.equal(sampler.order, torch.randperm(17, generator=generator(3))[:16])
    assert sampler.state_dict() == {}


def test_shares():
    sampler = Sampler(3000, safe_share=0.2, lost_share=0.5)
    sampler.margins[:1000], sampler.margins[1000:2000] = SAFE, LOST
    sampler.margins[2000], sampler.margins[2001] = SAFE - 1e-6, LOST + 1e-6
    counted = times(sampler, 170_000)  # a hundred passes of 200 + 500 + 1000 images
    assert 19 < counted[:1000].float().mean() < 21
    assert 49 < counted[1000:2000].float().mean() < 51
    assert counted[2000:].max() - counted[2000:].min() <= 1  # all others are in every pass
    sampler.begin_epoch(3000, True, generator())
    assert len(sampler.order.unique()) == 3000


def test_all_safe_is_no_endless_loop():
    sampler = Sampler(3, safe_share=0.01)
    sampler.margins.fill_(9.0)
    assert times(sampler, 50).sum() == 50


def test_of_two_draws_the_last_one_counts():
    sampler = Sampler(4, safe_share=0.5)
    sampler.order = torch.tensor([3, 1, 3, 0])
    sampler.record(1, torch.tensor([7.0, 8.0, 9.0]))
    sampler.record(0, torch.tensor([5.0]))
    assert sampler.margins.tolist() == [9.0, 7.0, 0.5, 5.0]


def test_training_learns_whom_to_leave_out(digits):
    trainer = Trainer(tiny(**FEWER), data.load("digits", data_dir=digits), data.info("digits"))
    sampler, length = trainer.batches.sampler, trainer.batches.steps_per_epoch * 128
    while not trainer.finished:
        before = sampler.margins.clone()
        trainer.step()
        place = (trainer.done - 1) % trainer.batches.steps_per_epoch * 128
        changed = (sampler.margins != before).nonzero().flatten().tolist()
        assert set(changed) <= set(sampler.order[place : place + 128].tolist())
        assert changed
    assert len(sampler.order) == length
    assert len(sampler.order.unique()) < length  # somebody came twice, in place of somebody else


def test_resumed_runs_have_the_same_bits(digits, tmp_path):
    whole = train(tiny(**FEWER), tmp_path / "whole", data_dir=digits, quiet=True)
    ways = {  # the last checkpoint is one step before the end of an epoch that has left somebody out, or at its end
        "within": (stop_after(3, lambda: 1 / 0), ZeroDivisionError, 29),
        "between": (stop_after(2, lambda: os.kill(os.getpid(), signal.SIGINT)), Interrupted, 20),
    }
    for name, (stop, raised, step) in ways.items():
        out = tmp_path / name
        with pytest.raises(raised):
            train(tiny(**FEWER), out, data_dir=digits, quiet=True, evaluate=stop, checkpoint_seconds=0)
        assert load_tensors(out / "checkpoint.safetensors")[1]["step"] == step
        order = load_tensors(out / "checkpoint.safetensors")[0]["sampler/order"]
        assert len(order.unique()) < len(order)
        train(tiny(**FEWER), out, data_dir=digits, quiet=True, resume=True)
        assert same_bits(tensors(out), tensors(whole))
        assert metrics(out)[-1] == metrics(whole)[-1]
    assert not same_bits(tensors(whole), tensors(train(tiny(epochs=4), tmp_path / "all", data_dir=digits, quiet=True)))


DAMAGE = {
    "no margins": lambda content: content.pop("sampler/margins"),
    "no order": lambda content: content.pop("sampler/order"),
    "margins of others": lambda content: content.update({"sampler/margins": torch.zeros(5)}),
    "NaN": lambda content: content["sampler/margins"].fill_(torch.nan),
    "double": lambda content: content.update({"sampler/margins": content["sampler/margins"].double()}),
    "empty": lambda content: content.update({"sampler/order": content["sampler/order"][:0]}),
    "short": lambda content: content.update({"sampler/order": content["sampler/order"][:5]}),
    "nobody": lambda content: content["sampler/order"].fill_(-1),
    "beyond": lambda content: content["sampler/order"].fill_(10**6),
    "floats": lambda content: content.update({"sampler/order": content["sampler/order"].double()}),
}


def test_damaged_checkpoints_are_refused(digits, tmp_path):
    out = tmp_path / "run"
    stop = stop_after(2, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(tiny(**FEWER), out, data_dir=digits, quiet=True, evaluate=stop, checkpoint_seconds=0)
    path = out / "checkpoint.safetensors"
    content, header = load_tensors(path)
    for damage in DAMAGE.values():
        damaged = {name: tensor.clone() for name, tensor in content.items()}
        damage(damaged)
        save_tensors(path, damaged, header)
        with pytest.raises(ValueError, match=r"checkpoint\.safetensors does not fit this run: .*sampler"):
            train(tiny(**FEWER), out, data_dir=digits, resume=True)


def test_no_batch_is_made_before_the_margins_are_known():
    device = torch.device("meta")  # stands for a GPU, for which batches are made ahead
    images, labels = torch.zeros(300, 1, 4, 4), torch.zeros(300, dtype=torch.int64)
    for changes, ahead in (({}, True), (FEWER, False)):
        batches = Batches(images, labels, tiny(pad=0, **changes), Workers(device=device))
        batches.prepare(1)
        assert 1 in batches._ready
        batches.at(1)
        batches.prepare(batches.steps_per_epoch)
        assert (batches.steps_per_epoch in batches._ready) is ahead


def test_recipes():
    with pytest.raises(recipes.RecipeError, match=r"safe_share = 0.*0\.01"):
        tiny(safe_share=0)
    with pytest.raises(recipes.RecipeError, match=r"lost_share = 0\.5: has no effect here, because loss = 'ibp'"):
        recipes.load("mnist-mlp").override({"lost_share": 0.5})
    with pytest.raises(recipes.RecipeError, match=r"lost_share = 0\.5: has no effect here, because loss = 'hinge'"):
        recipes.load("mnist").override({"lost_share": 0.5})


def test_shares_that_a_recipe_has_left_aside_by_another_loss(digits):
    """`mnist-quick` with a head inherits shares that its loss has no use for."""
    head = {"model": "dist_net_mlp", "loss": "ibp", "threshold": None, "ce_start": None, "ce_end": None,
            "kappa": 0.5, "eps_train": "0.1"}  # fmt: skip
    recipe = tiny(**FEWER).override(head)
    assert recipe.safe_share == 0.2
    trainer = Trainer(recipe, data.load("digits", data_dir=digits), data.info("digits"))
    assert not trainer.batches.sampler.selective
    trainer.step()


def test_margins_on_boxes(digits):
    """In e4 the margin of an image is that of its worst case, in units of that phase's threshold."""
    recipe = tiny(**FEWER).override({"e4": 1, "box_threshold": "0.2", "box_lr": 0.01})
    trainer = Trainer(recipe, data.load("digits", data_dir=digits), data.info("digits"))
    trainer.done = round(trainer.total * 0.9)
    state = trainer.state
    assert state.boxes
    x, y = trainer.batches.at(trainer.done)
    with torch.no_grad():
        _, bounds = trainer.objective(x, y, state)
    where = trainer.batches.sampler.order[trainer.done % trainer.batches.steps_per_epoch * 128 :][:128]
    trainer.step()
    expected = margins(bounds, y) / (0.2 * trainer.network.lipschitz)
    torch.testing.assert_close(trainer.batches.sampler.margins[where], expected)


def test_what_counts_more_is_drawn_more_often():
    counts = torch.tensor([0.0, 1.0, 1.0, 2.5, 0.0, 5.5, 0.0], dtype=torch.float64)
    sampler = Sampler(7, counts=counts)
    drawn = torch.zeros(7, dtype=torch.int64)
    for seed in range(40):
        sampler.begin_epoch(10, False, torch.Generator().manual_seed(seed))
        once = sampler.order.bincount(minlength=7)
        assert ((once - counts).abs() < 1).all()  # rounded down or up, never more
        drawn += once
    assert (drawn / 40 - counts).abs().max() < 0.25
    even = Sampler(17, counts=torch.full((17,), 0.3, dtype=torch.float64))
    even.begin_epoch(17, False, torch.Generator().manual_seed(0))
    assert sorted(even.order.tolist()) == list(range(17))
    with pytest.raises(ValueError, match="must be 1 if images have weights"):
        Sampler(7, safe_share=0.5, counts=counts)
