"""The exact radius: against what can be computed by hand, all images of a grid, and the certificates."""

import math
import sys
import time
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from linfdist import data, models, recipes
from linfdist.attacks import smallest
from linfdist.certificates import certify
from linfdist.models import DistNet, DistNetMLP
from linfdist.training import train

from .nets import images, random_net, trained_net

pytest.importorskip("highspy", reason="HiGHS solves the programs")

from linfdist.certificates import milp
from linfdist.certificates.milp import Relaxation, minimise, radii, true_radius
from linfdist.certificates.milp_program import Plain, Program

CLOSE = 1e-4  # rounding and tolerances, in pixels
GRID = torch.tensor(list(product(range(129), repeat=2)), dtype=torch.float32) / 128  # all pairs of pixels, (16641, 2)


def one_layer(weights, bias=0.0):
    """Logits −(‖x − w‖ + b) of pixels in a row: one w for each class."""
    weight = torch.tensor(weights)
    net = DistNet((1, 1, weight.shape[1]), len(weight), 1, 1, [0.0], 1.0).eval()
    with torch.no_grad():
        net.last.weight.copy_(weight)
        net.last.bias.copy_(torch.as_tensor(bias).expand(len(weight)))
    return net


def random_pair(seed, width, depth, mean_shift=True, per_class=1):
    """Two pixels, three classes; biases such that each class has its chance."""
    torch.manual_seed(seed)
    options = {"identity_init": False, "mean_shift": mean_shift, "per_class": per_class}
    net = DistNet((2, 1, 1), 3, width, depth, [0.2, 0.6], 0.4, **options).eval()
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if name.endswith(("bias", "running_mean")):
                tensor.normal_()
        level = net(GRID.view(-1, 2, 1, 1)).mean(0) + torch.randn(3) / 20  # but no ties everywhere
        net.last.bias += level.repeat_interleave(per_class)
    return net


@pytest.mark.parametrize(
    ("weights", "x", "radius"),
    [
        ([[0.0], [1.0]], [0.25], 0.25),  # a tie half way
        ([[-1.0], [-2.0]], [0.5], 1.0),  # x + 1 < x + 2 everywhere, though the margin is only half of 1
        ([[-1.0, -1.0], [-1.4, 0.5]], [0.1, 0.1], 0.3),  # at (0, 0.4): the first pixel cannot fall below 0
        ([[0.0, 0.0], [1.0, 1.0]], [0.2, 0.2], 0.3),  # at (0.5, 0.5): both must move
        ([[0.0, 0.0], [1.0, 1.0]], [0.5, 0.5], 0.0),  # a tie from the start
    ],
)
def test_by_hand(weights, x, radius):
    net, image = one_layer(weights), torch.tensor(x).view(1, 1, 1, -1)
    (found,) = true_radius(net, image)
    assert found.prediction == 0
    if radius in (0.0, 1.0):
        assert found.radius == radius
    else:
        assert radius - CLOSE < found.radius < radius < found.upper < radius + CLOSE
        assert net(found.witness[None]).argmax() == 1


def test_a_rival_that_needs_both_signs_of_a_hidden_neuron():
    """h = |x − 1/2| falls and rises; class 1 wins where h < 1/8: from x = 1/8 that is a quarter away, not further."""
    net = DistNet((1, 1, 1), 2, 1, 2, [0.0], 1.0, mean_shift=False).eval()
    with torch.no_grad():
        list(net.body)[-1].weight.fill_(0.5)
        net.last.weight.copy_(torch.tensor([[1.0], [-1.0]]))  # 1 − h and h + 1
        net.last.bias.copy_(torch.tensor([0.0, -0.25]))  # the second one is nearer where 2 h < 1/4
    below, above = true_radius(net, torch.tensor([0.125, 0.9]).view(2, 1, 1, 1))
    assert below.prediction == above.prediction == 0
    assert 0.25 - CLOSE < below.radius < below.upper < 0.25 + CLOSE
    assert 0.275 - CLOSE < above.radius < above.upper < 0.275 + CLOSE


@settings(max_examples=15)
@example(
    seed=57, width=1, depth=4, shift=True, n=1, pixels=(1, 143)
)  # HiGHS 1.15.1 as a MIP solver: no solution within 1
@given(
    seed=st.integers(0, 10**6), width=st.integers(1, 4), depth=st.integers(1, 3), shift=st.booleans(),
    n=st.integers(1, 3), pixels=st.tuples(st.integers(0, 255), st.integers(0, 255)),
)  # fmt: skip
def test_no_image_of_a_grid_lies_within_and_the_witness_not_far_beyond(seed, width, depth, shift, n, pixels):
    net, x = random_pair(seed, width, depth, shift, n), torch.tensor(pixels).view(1, 2, 1, 1) / 255
    (found,) = true_radius(net, x)
    distance = (GRID.double() - x.double().view(1, 2)).abs().amax(1)
    flipped = net(GRID.view(-1, 2, 1, 1)).argmax(1) != net(x).argmax()
    assert not (flipped & (distance <= found.radius)).any()
    if found.witness is None:
        assert found.radius == 1  # nothing to be found
    else:
        check_witness(net, x[0], found)
        assert found.upper - found.radius < CLOSE


def check_witness(net, x, found):
    assert net(x[None]).argmax() == found.prediction != net(found.witness[None]).argmax()
    assert found.witness.shape == x.shape
    assert found.witness.min() >= 0
    assert found.witness.max() <= 1
    assert (found.witness.double() - x.double()).abs().max() == found.upper > found.radius


def test_the_grid_nets_are_worth_testing():
    """Most have several classes, and on some the exact radius is well above what bounds prove."""
    x = torch.full((1, 2, 1, 1), 0.5)
    nets = [random_pair(seed, 4, 2) for seed in range(12)]
    assert sum(len(net(GRID.view(-1, 2, 1, 1)).argmax(1).unique()) > 1 for net in nets) >= 8
    assert sum(bool(radii(net, x) > certify(net, x, None).radius + 0.02) for net in nets) >= 3


@given(seed=st.integers(0, 10**6), size=st.sampled_from([0.01, 1.0, 100.0]), scale=st.sampled_from([0.0, 1.0]))
def test_no_multipliers_prove_too_much(seed, size, scale):
    """Whatever a solver may come up with: the bound stays below every point of the program, none of which is empty."""
    net, x = random_pair(57, 1, 4), torch.tensor((1, 143)).view(2, 1, 1) / 255
    program = Program(Plain.of(net), x.flatten().double().numpy(), 1, 2, 1.0, 4e-6)
    answer = minimise(program, time.monotonic() + 60)
    assert answer.point is not None
    relaxation = Relaxation(program, time.monotonic() + 60)
    multipliers = np.random.default_rng(seed).normal(size=len(program.rows)) * size
    whole = answer.point.copy()
    whole[program.binaries] = whole[program.binaries].round()
    assert relaxation.bound(scale, multipliers, whole - 1e-12, whole + 1e-12) <= scale * answer.value + 1e-9
    lower, upper = np.array(program.lower), np.array(program.upper)
    assert relaxation.bound(scale, multipliers, lower, upper) <= scale * answer.value


@pytest.mark.parametrize("seed", range(3))
def test_margin_box_exact_witness_in_this_order(seed):
    net, x = random_net(seed, width=12, depth=3), images(4, seed)
    check_order(net, x)


def test_order_on_a_net_that_has_learned_something():
    net, x = trained_net()
    found = check_order(net, x[:12])
    assert all(each.upper - each.radius < CLOSE for each in found)


def check_order(net, x):
    margin, box = (certify(net, x, None, method=method).radius for method in ("margin", "box"))
    found = true_radius(net, x)
    for row, each in enumerate(found):
        assert margin[row] <= box[row] < each.radius + CLOSE
        assert box[row] < each.upper
        if each.witness is not None:
            check_witness(net, x[row], each)
    return found


def test_attacks_find_nothing_within():
    net, x = trained_net()
    x = x[:24]
    exact, attacked = radii(net, x), smallest(net, x, net(x).argmax(1))
    assert attacked.broken.all()
    assert (attacked.size > exact).all()
    assert (attacked.size < exact * 1.1 + 0.01).float().mean() > 0.5  # and the attack is worth its name


def test_certify_by_milp():
    """Between the margin and the truth lie radii that this method alone proves."""
    net, x = one_layer([[-1.0, -1.0], [-1.4, 0.5]]), torch.full((1, 1, 1, 2), 0.1)
    for eps, methods in (("0.19", 3), ("0.29", 2), ("0.3", 0)):
        proofs = [certify(net, x, eps, method=method) for method in ("margin", "box", "milp")]
        assert sum(bool(proof.certified) for proof in proofs) == methods, eps
    net, x = one_layer([[-1.0], [-2.0]]), torch.full((1, 1, 1, 1), 0.5)
    assert not certify(net, x, "0.6", method="box").certified
    assert certify(net, x, "0.6", method="milp").certified
    assert certify(net, x, "0.6", method="milp").radius == 1


def test_the_program_is_the_network():
    """Several channels with means of their own, biases or shifts: std times the distances, in pixels."""
    for shift in (True, False):
        torch.manual_seed(3)
        net = DistNet((3, 2, 2), 4, 5, 3, [0.1, 0.5, 0.9], 0.25, mean_shift=shift).eval()
        for name, tensor in net.state_dict().items():
            if name.endswith(("bias", "running_mean")):
                tensor.normal_()
        x = torch.rand(6, 3, 2, 2)
        for image, logits in zip(x.double(), net.double()(x.double()), strict=True):
            values = Plain.of(net).values(image.flatten().numpy())[-1]
            assert torch.allclose(torch.from_numpy(values), -0.25 * logits, rtol=0, atol=1e-12)


def test_only_the_crop_counts():
    torch.manual_seed(5)
    whole = DistNet((1, 5, 4), 3, 6, 2, [0.3], 0.3, crop=2).eval()
    part = DistNet((1, 2, 2), 3, 6, 2, [0.3], 0.3).eval()
    part.load_state_dict(dict(zip(part.state_dict(), whole.state_dict().values(), strict=True)))
    x = torch.rand(3, 1, 5, 4)
    for image, large, small in zip(x, true_radius(whole, x), true_radius(part, x[..., 1:3, 1:3]), strict=True):
        assert large.radius == small.radius
        if large.witness is not None:
            check_witness(whole, image, large)
            edge = torch.ones(1, 5, 4, dtype=torch.bool)
            edge[:, 1:3, 1:3] = False
            assert torch.equal(large.witness[edge], image[edge])


def test_time_is_limited_and_what_is_proved_by_then_counts():
    net, x = random_net(0, width=7, depth=4), images(1)  # takes half a minute
    start = time.monotonic()
    (found,) = true_radius(net, x, time_limit=0.5)
    assert time.monotonic() - start < 5
    assert certify(net, x, None, method="margin").radius - CLOSE < found.radius < 1


def test_weights_too_large_for_the_solver_prove_nothing():
    x = images(4)
    for size in (1e8, 1e30):
        assert not radii(random_net(2, size=size), x).any()
    net = one_layer([[0.0], [-3e38]], [0.0, 3e38])
    assert not radii(net, torch.full((1, 1, 1, 1), 0.25)).any()


def test_float64_networks():
    net = one_layer([[0.0], [1.0]]).double()
    (found,) = true_radius(net, torch.full((1, 1, 1, 1), 0.25, dtype=torch.float64))
    assert 0.25 - 1e-5 < found.radius < 0.25 <= found.upper < 0.25 + 1e-5


def test_what_is_refused(monkeypatch):
    net, x = random_net(0), images(2)
    with pytest.raises(ValueError, match=r"pixels must lie in \[0, 1\]"):
        true_radius(net, x + math.nan)
    with pytest.raises(ValueError, match="training mode"):
        true_radius(random_net(0).train(), x)
    with pytest.raises(TypeError, match="a Head does not consist of distances"):
        true_radius(DistNetMLP((1, 3, 3), 4, 9, 2, [0.3], 0.3, head=4).eval(), x)
    with pytest.raises(ValueError, match="time_limit = 0"):
        true_radius(net, x, time_limit=0)
    large = DistNet((1, 16, 16), 10, 64, 3, [0.5], 0.3, identity_init=False).eval()
    count = Plain.of(large).count_binaries()
    assert count > milp.MAX_BINARIES
    with pytest.raises(ValueError, match=f"too large for method milp: it takes {count:,} binary variables"):
        true_radius(large, torch.rand(1, 1, 16, 16))
    assert true_radius(net, x[:0]) == []
    assert radii(net, x[:0]).shape == (0,)
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(ImportError, match=r"pip install highspy"):
        true_radius(net, x)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    pytest.importorskip("sklearn", reason="scikit-learn brings the digits")
    folder = tmp_path_factory.mktemp("digits")
    data.fetch("digits", folder)
    return folder


def trained_on_digits(digits, tmp_path, **changes):
    recipe = recipes.load("digits-quick").override({"width": 16, **changes})
    train(recipe, tmp_path, data_dir=digits, quiet=True)
    test = data.load("digits", split="test", data_dir=digits)
    net = models.load(tmp_path)
    x, y = test.images[:200].float() / 255, test.labels[:200]
    right = net(x).argmax(1) == y
    return net, x[right], y[right]


@pytest.mark.slow
@pytest.mark.timeout(1500)  # twenty images, a minute each at most
def test_digits_certificates_against_the_truth(digits, tmp_path, capsys):
    """On a trained plain net margin and box are close to the exact radius, and so is the strong attack from above."""
    net, x, y = trained_on_digits(digits, tmp_path)
    x, y = x[:20], y[:20]
    exact = check_order(net, x)
    truth = torch.tensor([each.radius for each in exact])
    margin, box = (certify(net, x, None, method=method).radius for method in ("margin", "box"))
    attacked = smallest(net, x, y)
    assert (attacked.size[attacked.broken] > truth[attacked.broken]).all()
    tight = {"margin": margin / truth, "box": box / truth}
    with capsys.disabled():
        print({name: f"{ratio.mean():.3f} of the exact radius on average" for name, ratio in tight.items()})
    assert tight["margin"].mean() > 0.8
    assert tight["box"].mean() >= tight["margin"].mean()


@pytest.mark.slow
def test_digits_head_bounds_against_attacks(digits, tmp_path, capsys):
    """With an MLP on top there is no exact radius: box and CROWN from below, the strong attack from above."""
    other_loss = {"threshold": None, "ce_start": None, "ce_end": None}
    changes = {"model": "dist_net_mlp", "width": 64, "head": 32, "loss": "ibp", "eps_train": "0.1", "kappa": 0.5}
    net, x, y = trained_on_digits(digits, tmp_path, **changes, **other_loss)
    x, y = x[:40], y[:40]
    margin, box = (certify(net, x, None, method=method).radius for method in ("margin", "box"))
    attacked = smallest(net, x, y)
    assert (margin <= box).all()
    assert (box[attacked.broken] < attacked.size[attacked.broken]).all()
    assert attacked.broken.float().mean() > 0.8
    with capsys.disabled():
        ratio = (box / attacked.size)[attacked.broken].mean()
        print(f"box and CROWN prove {ratio:.3f} of the smallest attack on average")
    assert ratio > 0.5
