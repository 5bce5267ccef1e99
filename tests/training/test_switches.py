"""Every part of the strategy can be switched alone: it changes what it should, and nothing else."""

import math

import pytest
import torch

import linfdist as ld
from linfdist import data, recipes
from linfdist.models import load, save
from linfdist.nn import MeanShift
from linfdist.ops.adam import decay_direction
from linfdist.training import Trainer
from linfdist.training.distributed import Workers
from linfdist.training.objective import start_network

from .runs import tiny

HINGE = {"loss": "hinge", "threshold": "0.4", "ce_start": "none", "ce_end": "none"}
WIDE = {"width": 80, "depth": 4}  # wider than its 64 inputs


@pytest.fixture
def make(digits):
    def make(**changes):
        return Trainer(tiny(**WIDE | changes), data.load("digits", data_dir=digits), data.info("digits"))

    return make


def weights(run):
    return {name: parameter.detach().clone() for name, parameter in run.objective.named_parameters()}


def differing(one, other):
    return {name for name in one.keys() | other.keys() if name not in other or not torch.equal(one[name], other[name])}


def test_identity_init(make):
    ours, plain = weights(make()), weights(make(identity_init=False))
    hidden = {f"network.body.layers.{i}.weight" for i in (2, 4, 6)}
    assert differing(ours, plain) == hidden
    for name in hidden:
        changed = ours[name] != plain[name]
        assert (changed.sum(1) == 1).all()  # one weight a neuron
        assert (ours[name][changed] == -10).all()


def test_mean_shift(make):
    ours, plain = make(), make(mean_shift=False)
    matrices = [[w for name, w in weights(run).items() if name.endswith("weight")] for run in (ours, plain)]
    assert all(torch.equal(one, other) for one, other in zip(*matrices, strict=True))
    biases = [[w for name, w in weights(run).items() if name.endswith("bias")] for run in (ours, plain)]
    assert [len(each) for each in biases] == [1, 4]
    assert not any(bias.any() for bias in biases[1])
    assert not any(isinstance(module, MeanShift) for module in plain.network.modules())
    assert sum(isinstance(module, MeanShift) for module in ours.network.modules()) == 3


def one_step(run, step=0):
    run.done = step
    state, before = run.state, weights(run)
    loss = run.step()
    return before, weights(run), loss, state


@pytest.mark.parametrize("step", [0, 15, 29])  # p = 8, growing, infinite
def test_decay(make, step):
    after, losses = {}, set()
    for decay in ("none", "l2", "lp"):
        strength = {} if decay == "none" else {"weight_decay": "0.1"}
        before, after[decay], loss, state = one_step(make(decay=decay, **strength), step)
        losses.add(loss)
    assert len(losses) == 1  # the decay changes the update only
    assert math.isinf(state.p) == (step == 29)
    for name, w in before.items():
        for decay in ("l2", "lp"):
            moved = after["none"][name] - after[decay][name]
            p = state.p if decay == "lp" and name.endswith("weight") else 2
            expected = torch.zeros(()) if name == "scaled_ce.scale" else state.lr * 0.1 * decay_direction(w, p)
            torch.testing.assert_close(moved, expected.expand_as(moved), rtol=1e-3, atol=3e-6)


def test_smooth(make):
    smooth, rough = make(), make(smooth=False)
    assert not differing(weights(smooth), weights(rough))
    assert one_step(smooth)[3].p == 8
    assert math.isinf(one_step(rough)[3].p)
    gradients = [run.network.body.layers[4].weight.grad for run in (smooth, rough)]
    dense, sparse = ((gradient != 0).float().mean() for gradient in gradients)
    assert sparse < 0.2 < 0.9 < dense


def test_loss(make):
    scaled, hinge = make(), make(**HINGE)
    assert differing(weights(scaled), weights(hinge)) == {"scaled_ce.scale"}
    assert one_step(scaled)[2] != one_step(hinge)[2]
    assert weights(scaled)["scaled_ce.scale"] != 1
    assert "scaled_ce.scale" not in scaled.network.state_dict()  # it never enters a certified output


def test_seed(make):
    one, same, other = make(), make(), make(seed=1)
    assert not differing(weights(one), weights(same))
    assert len(differing(weights(one), weights(other))) == 4  # biases and scale start as ever
    assert torch.equal(one.batches.at(3)[1], same.batches.at(3)[1])
    assert not torch.equal(one.batches.at(3)[1], other.batches.at(3)[1])


def test_batches(make):
    """An epoch shows every image once at most; another epoch another order; two processes split each batch."""
    run = make(batch_size=100)
    assert run.batches.steps_per_epoch == 13
    seen = torch.cat([run.batches.at(step)[0] for step in range(13)]).flatten(1)
    originals = run.batches.images.flatten(1).float() / 255
    assert len(seen) == 1300
    assert len(seen.unique(dim=0)) >= 1300 - (len(originals) - len(originals.unique(dim=0)))
    assert not torch.equal(run.batches.at(0)[0], run.batches.at(13)[0])
    whole, labels = run.batches.at(5)
    for rank in (0, 1):
        run.batches.workers = Workers(rank, 2, torch.device("cpu"))
        mine, my_labels = run.batches.at(5)
        assert torch.equal(mine, whole[rank::2])
        assert torch.equal(my_labels, labels[rank::2])


def test_start_from_a_network(make, finished):
    run = make(width=12, depth=3, start=str(finished))
    assert not differing(run.network.state_dict(), load(finished).state_dict())


def test_start_from_a_pruned_network_says_so_once(make, finished, tmp_path):
    start = tmp_path / "pruned.safetensors"
    save(load(finished), start, prune=True)
    run = make(width=12, depth=3, start=str(start))
    assert "pruned network" in "".join(run.notes)
    assert not differing(run.network.state_dict(), load(start).state_dict())
    assert not run.network.pruned  # all weights change from here on
    assert not make(width=12, depth=3, start=str(finished)).notes


@pytest.mark.parametrize(
    ("larger", "most"), [({"depth": 5}, 1e-4), ({"width": 36}, 0), ({"width": 24, "depth": 4}, 1e-4)]
)
def test_start_from_a_smaller_network(make, finished, larger, most):
    run = make(**{"width": 12, "depth": 3, **larger}, start=str(finished))
    pixels = torch.rand(7, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(run.network.eval()(pixels), load(finished)(pixels), atol=most, rtol=0)


def test_start_gets_the_head_of_the_recipe(make, finished):
    head = {"model": "dist_net_mlp", "loss": "ibp", "kappa": 0.5, "eps_train": "0.1", "head": 16}
    plain = {"threshold": "none", "ce_start": "none", "ce_end": "none"}
    pixels = torch.rand(40, 1, 8, 8)
    with torch.no_grad():
        run = make(width=12, depth=3, **plain, **head, start=str(finished))  # it computes the same
        assert torch.equal(run.network.eval()(pixels).argmax(1), load(finished)(pixels).argmax(1))
        run = make(width=12, depth=2, **plain, **head, start=str(finished))  # it is random
        assert torch.equal(run.network.eval().features(pixels), load(finished).features(pixels))


def test_start_from_the_zoo():
    recipe = recipes.load("mnist-quick").override({"start": "mnist-0.3", "per_class": 1})
    network = start_network(recipe, data.info("mnist"), (torch.rand(2, 1, 28, 28), torch.tensor([3, 4])))
    assert not differing(network.state_dict(), ld.load("mnist-0.3").state_dict())


def test_start_that_cannot_grow_to_the_shape_is_refused(make, finished):
    with pytest.raises(
        ValueError, match=r"cannot become the recipe's network: .*\(width: 12 there, 80 here\).* by a whole factor"
    ):
        make(width=80, depth=3, start=str(finished))
    with pytest.raises(ValueError, match=r"depth: 3 there, 2 here"):
        make(width=12, depth=2, start=str(finished))
    with pytest.raises(FileNotFoundError, match=r"no network 'nowhere'"):
        make(start="nowhere")
