"""Training of conventional networks on small data: each method does to its network what it is known for."""

import copy
from functools import cache

import pytest
import torch
from torch.nn.functional import cross_entropy

import linfdist as ld
from linfdist.baselines import TRAINING_METHODS, GroupSortNet, Plan, ReLUNet, SortNet, train
from linfdist.baselines.affine import Linear
from linfdist.baselines.methods import IBP, MTLIBP, SABR, Adversarial
from linfdist.baselines.methods.interval import looseness
from linfdist.baselines.plan import Stage
from linfdist.bounds import LinearBounds, margins
from linfdist.bounds.interval import ball
from linfdist.bounds.training import Bounds
from linfdist.training import Diverged

from .nets import cnn, inside, pixels

EPS = "0.1"


@cache
def digits():
    return ld.data.load("digits", split="train"), ld.data.load("digits", split="test")


def fresh():
    torch.manual_seed(0)
    return ReLUNet((1, 8, 8), 10, [0.3], 0.37, hidden=[48, 24])


@cache
def trained(method):
    images = digits()[0]
    plan = Plan(eps=float(EPS), epochs=14, warm_up=1, ramp=8, lr=6e-3, batch_size=128, kappa=(1.0, 0.3))
    return train(fresh(), images.images, images.labels, method, plan)


@cache
def rates(method):
    """Clean accuracy, that against PGD, and those certified by intervals and by CROWN-IBP, on 200 test images."""
    net, test = trained(method), digits()[1]
    x, y = net.from_bytes(test.images[:200]), test.labels[:200]
    attacked = ld.attacks.attack("pgd")(net, x, y, ld.eps.parse_eps(EPS))
    found = {"clean": (net(x).argmax(1) == y).float().mean().item(), "pgd": 1 - attacked.broken.float().mean().item()}
    for way in ("box", "crown-ibp"):
        certified = ld.certify(net, x, EPS, y, method=way, radii=False).certified
        assert not (certified & attacked.broken).any()  # certified never broken, image by image
        found[way] = certified.float().mean().item()
    return found


def test_natural_and_adversarial_training_are_certified_by_nothing():
    natural, adversarial = rates("natural"), rates("adversarial")
    assert natural["clean"] > 0.9
    assert natural["box"] < 0.02
    assert adversarial["pgd"] > natural["pgd"] + 0.05
    assert adversarial["box"] < 0.02
    assert adversarial["crown-ibp"] < 0.1


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "crown-ibp-fused"])
def test_certified_training_is_certified(method):
    found = rates(method)
    assert found["clean"] > 0.75
    assert found["box"] > 0.35
    assert found["crown-ibp"] >= found["box"]


@pytest.mark.parametrize("method", TRAINING_METHODS)
def test_same_seed_same_weights_and_the_generator_is_left_alone(method):
    images = digits()[0]
    few = images.images[:256], images.labels[:256]
    plan = Plan(eps=0.1, epochs=2, warm_up=0, ramp=1, batch_size=64, pad=1, seed=3)
    start, ends, epochs = TRAINING_METHODS[method]().network((1, 8, 8), 10, [0.3], 0.37, size="mlp", width=0.05), [], []
    state = torch.random.get_rng_state()
    for _ in range(2):
        net = train(copy.deepcopy(start), *few, method, plan, epochs.append)
        ends.append(net.state_dict())
        assert not net.training
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])
    assert [each.epoch for each in epochs] == [1.0, 2.0] * 2
    assert epochs[1].eps == pytest.approx(0.1)


def test_bounds_of_training_are_those_of_certificates_without_slack():
    for net in (cnn(0), cnn(1)):
        x = pixels(net, 3)
        box = ball(x, torch.tensor(0.03).double())
        with torch.no_grad():
            y = net(x).argmax(1)
            proved = margins(net.readout)(net.features_box(box), y, 0.0).lower, LinearBounds(net, False).margins(box, y)
            for mode in (net.eval(), net.train()):
                bounds = Bounds(mode, x, 0.03)
                for bare, sound in zip((bounds.interval_margins(y), bounds.linear_margins(y)), proved, strict=True):
                    others = sound < torch.inf
                    torch.testing.assert_close(bare.double()[others], sound[others], atol=1e-3, rtol=1e-3)
                    assert (bare[~others].abs() < 1e-4).all()  # the label's own difference


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "crown-ibp-fused", "diffai"])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
@torch.no_grad()
def test_the_worst_case_is_above_every_image_of_the_ball(method, beta):
    net = cnn(4)
    for seed in range(3):
        x, y = pixels(net, 1, seed), torch.tensor([seed % 5])
        worst = TRAINING_METHODS[method]().worst(net, x, y, Stage(0.0, 0.05, 0.0, beta, 0.1))
        box = ball(x, torch.tensor(0.05).double())
        z = net(inside(*box, 100, torch.Generator().manual_seed(seed)))
        losses = cross_entropy(z, y.expand(len(z)), reduction="none")
        assert losses.max() <= worst + 1e-5
        still = TRAINING_METHODS[method]().worst(net, x, y, Stage(0.0, 0.0, 0.0, beta, 0.1))
        torch.testing.assert_close(still, cross_entropy(net(x), y), atol=2e-3, rtol=2e-3)


def test_sabr_and_mtl_ibp_lie_between_adversarial_training_and_ibp():
    net, stage = cnn(4), Stage(0.0, 0.05, 0.0, 1.0, 0.1)
    x, y = pixels(net, 6), torch.arange(6) % 5
    intervals, attacked = IBP().worst(net, x, y, stage), Adversarial()(net, x, y, stage)[0]
    assert torch.equal(SABR(share=1.0).worst(net, x, y, stage), intervals)
    assert torch.equal(MTLIBP(share=1.0).worst(net, x, y, stage), intervals)
    assert torch.equal(MTLIBP(share=0.0).worst(net, x, y, stage), attacked)
    for method in (SABR(), MTLIBP()):
        assert attacked < method.worst(net, x, y, stage) < intervals
    centre = SABR().centre(net, x, y, stage)
    assert ((centre - x).abs() <= 0.6 * 0.05 + 1e-7).all()  # so that the box of radius 0.4 · 0.05 stays in the ball
    for method in (SABR, MTLIBP):
        with pytest.raises(ValueError, match="share = 2"):
            method(share=2)


@pytest.mark.parametrize(
    ("weights", "second", "cost"),
    [
        ((1.0, -1.0), 0.25, 0.0),  # one neuron on, one off, and boxes as wide as those of the pixels
        ((4.0, -4.0), 0.25, 0.5),  # four times as wide
        ((1.0, -1.0), 0.1, 0.6),  # sums of 0.5 and 0.1, equally far from their mean
        ((1.0, 1.0), 0.25, 2.0),  # all on
    ],
)
def test_loose_boxes_and_unbalanced_relus_cost(weights, second, cost):
    net = ReLUNet((1, 1, 2), 2, [0.0], 1.0, hidden=[2])
    with torch.no_grad():
        layer = next(each for each in net.body if isinstance(each, Linear))
        layer.weight.copy_(torch.tensor(weights).diag())
        layer.bias.zero_()
    bounds = Bounds(net, torch.tensor([[[[0.5, second]]]]), 0.05)
    assert float(looseness(bounds).detach()) == pytest.approx(cost, abs=1e-6)


def test_ibp_adds_penalties_until_the_end_of_the_ramp():
    net, before, after = cnn(4), Stage(0.0, 0.05, 0.0, 1.0, 0.1, share=0.75), Stage(0.0, 0.05, 0.0, 1.0, 0.1)
    x, y = pixels(net, 6), torch.arange(6) % 5
    cost = looseness(Bounds(net, x, 0.05))
    plain, growing = (IBP(penalty=0.0).worst(net, x, y, stage) for stage in (after, before))
    assert cost > 0
    assert torch.equal(plain, growing)
    assert torch.equal(IBP().worst(net, x, y, after), plain)
    torch.testing.assert_close(IBP().worst(net, x, y, before), plain + 0.5 * 0.25 * cost)
    still = IBP().worst(net, x, y, Stage(0.0, 0.0, 0.0, 1.0, 0.1, share=0.0))
    torch.testing.assert_close(still, cross_entropy(net(x), y), atol=2e-3, rtol=2e-3)
    with pytest.raises(ValueError, match="penalty = -1"):
        IBP(penalty=-1)


def test_networks_of_ibp_start_with_boxes_that_hardly_grow():
    x, ratio = torch.rand(20, 1, 28, 28, generator=torch.Generator().manual_seed(0)), {}
    for penalty in (0.0, 0.5):
        torch.manual_seed(0)
        net = IBP(penalty).network((1, 28, 28), 10, [0.3], 1.0)
        boxes = Bounds(net, x, 0.1).boxes
        ratio[penalty] = float(((boxes[-1].upper - boxes[-1].lower).mean() / 0.2).detach())
    assert ratio[0.5] < 2 < 5 < ratio[0.0]


def test_ibp_trains_networks_without_relus():
    net = GroupSortNet((1, 8, 8), 10, [0.3], 0.37, hidden=[16])
    images = digits()[0]
    seen = []
    plan = Plan(eps=0.05, epochs=6, warm_up=1, ramp=3, lr=6e-3, batch_size=128)
    train(net, images.images, images.labels, "ibp", plan, seen.append)
    assert seen[-1].accuracy > 50


def test_the_plan_ramps():
    plan = Plan(eps=0.4, epochs=10, warm_up=1, ramp=4, kappa=(1.0, 0.5), beta=(1.0, 0.0), lr=0.1)
    assert plan.at(0, 10).eps == plan.at(10, 10).eps == 0.0
    assert plan.at(10, 10).kappa == plan.at(10, 10).beta == 1.0
    middle, last = plan.at(30, 10), plan.at(99, 10)
    assert (middle.eps, middle.kappa, middle.beta, middle.lr) == pytest.approx((0.2, 0.75, 0.5, 0.1))
    assert (last.eps, last.kappa, last.beta) == pytest.approx((0.4, 0.5, 0.0))
    assert last.lr < 0.001
    drawn = [torch.rand(3, generator=plan.at(step, 10).generator(stream)) for step in (1, 2) for stream in ("a", "b")]
    assert len({tuple(each.tolist()) for each in drawn}) == 4
    assert torch.equal(drawn[0], torch.rand(3, generator=plan.at(1, 10).generator("a")))


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"eps": 8}, "eps = 8: is more than 1; must be between 0 and 1"),
        ({"eps": 0.1, "epochs": 0}, "epochs = 0"),
        ({"eps": 0.1, "lr": float("nan")}, "lr = nan"),
        ({"eps": 0.1, "kappa": (1.0, 2.0)}, "kappa"),
        ({"eps": 0.1, "epochs": 3, "ramp": 9}, "must be at most epochs = 3"),
        ({"eps": 0.1, "warm_up": -1}, "warm_up = -1"),
    ],
)
def test_plans_that_make_no_sense_are_refused(values, what):
    with pytest.raises(ValueError, match=what):
        Plan(**values)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"eps": None}, "eps = None: must be text or a number, not NoneType"),
        ({"eps": 0.1, "epochs": None}, "epochs = None: must be a number, got a NoneType"),
        ({"eps": 0.1, "batch_size": True}, "batch_size = True: must be a number"),
        ({"eps": 0.1, "kappa": 0.5}, "kappa = 0.5: must be two numbers"),
        ({"eps": 0.1, "beta": (1.0,)}, "beta = .*: must be two numbers"),
    ],
)
def test_plans_of_other_things_than_numbers_are_refused(values, what):
    with pytest.raises(TypeError, match=what):
        Plan(**values)


@pytest.mark.parametrize(
    ("method", "kind", "part"),
    [
        ("ibp", SortNet, "NearestSorted"),
        ("sabr", SortNet, "NearestSorted"),
        ("cap", SortNet, "NearestSorted"),
        ("crown-ibp", GroupSortNet, "GroupSort"),
        ("pvt", GroupSortNet, "GroupSort"),
        ("diffai", GroupSortNet, "GroupSort"),
        ("colt", GroupSortNet, "GroupSort"),
    ],
)
def test_networks_without_the_bounds_of_a_method_are_refused_at_once(method, kind, part):
    net, images = kind((1, 8, 8), 10, [0.3], 0.37, hidden=[6]), torch.rand(8, 1, 8, 8)
    with pytest.raises(TypeError, match=f"'{method}' cannot train a {kind.__name__}: its part {part} has"):
        train(net, images, torch.zeros(8, dtype=torch.int64), method, Plan(eps=0.1, batch_size=4))


def test_what_cannot_be_trained_is_refused():
    images = torch.rand(8, 1, 8, 8)
    plan = Plan(eps=0.1, batch_size=4, epochs=1, warm_up=0, ramp=1)
    with pytest.raises(ValueError, match="must be one of natural, adversarial, ibp"):
        train(fresh(), images, torch.zeros(8, dtype=torch.int64), "magic", plan)
    with pytest.raises(ValueError, match="one label for each image"):
        train(fresh(), images, torch.zeros(7, dtype=torch.int64), "ibp", plan)
    with pytest.raises(ValueError, match="need images"):
        train(fresh(), torch.rand(8, 3, 8, 8), torch.zeros(8, dtype=torch.int64), "ibp", plan)
    with pytest.raises(Diverged, match="the loss became nan"):
        train(fresh(), images * torch.nan, torch.zeros(8, dtype=torch.int64), "natural", plan)
