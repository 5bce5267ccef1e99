"""IBP and CROWN of the ReLU form: bounds that hold, never contradict our proofs, and prove less."""

import pytest
import torch

import linfdist as ld
from linfdist import theory
from linfdist.models import DistNet

from ..export.nets import filled, images

SHAPE = (1, 3, 3)


def network(seed: int, depth: int = 2) -> DistNet:
    sizes = {"shape": SHAPE, "classes": 4, "width": 5, "depth": depth, "mean": [0.3], "std": 0.5}
    return filled(DistNet(**sizes, identity_init=False), seed)


def pixels(count: int, seed: int = 0) -> torch.Tensor:
    return images(count, seed, SHAPE).float() / 255


@pytest.mark.parametrize("method", ["ibp", "crown"])
def test_the_bounds_hold(method):
    """Samples of the ball, its corners among them, lie between the bounds."""
    for seed, eps in ((0, 0.03), (1, 0.1), (2, 0.4)):
        net, x = network(seed, depth=3), pixels(4, seed)
        opinion = theory.second_opinion(theory.to_relu(net), x, eps, method)
        for k in range(150):
            step = 2 * torch.rand_like(x) - 1
            moved = (x + eps * (step.sign() if k % 2 else step)).clamp(0, 1)
            z = net(moved).double()
            lead = z.gather(1, opinion.prediction[:, None]) - z
            assert (lead >= opinion.lower - 1e-5).all()
            assert (lead <= opinion.upper + 1e-5).all()


def test_points_are_bounded_by_themselves():
    net, x = network(0), pixels(5)
    relu = theory.to_relu(net)
    for method in ("ibp", "crown"):
        opinion = theory.second_opinion(relu, x, 0, method)
        z = relu(x)
        lead = z.gather(1, opinion.prediction[:, None]) - z
        assert torch.allclose(opinion.lower, lead, rtol=0, atol=1e-12)
        assert torch.allclose(opinion.upper, lead, rtol=0, atol=1e-12)


def test_our_proofs_are_never_contradicted():
    """Where we prove a class within r, no bound of its lead may be wholly negative; and the true radius, by the exact
    search, is at least what the second opinion proves.
    """
    pytest.importorskip("highspy")
    for seed in range(2):
        net, x = network(seed), pixels(1, seed)
        relu, ours = theory.to_relu(net), ld.certify(net, x, None)
        exact = ld.certify(net, x, None, method="milp").radius
        for method in ("ibp", "crown"):
            for image, radius in zip(x, ours.radius.tolist(), strict=True):
                opinion = theory.second_opinion(relu, image[None], radius, method)
                assert (opinion.upper >= -1e-6).all()
            assert (theory.opinion_radius(relu, x, method) <= exact + 1e-4).all()


def test_crown_is_better_than_ibp_and_worse_than_ours():
    """On average: the very point of bounds made for dist nets. A change that makes CROWN loose would be seen."""
    net, x = network(3), pixels(3, 3)
    relu = theory.to_relu(net)
    ours = ld.certify(net, x, None).radius
    ibp, crown = (theory.opinion_radius(relu, x, method) for method in ("ibp", "crown"))
    assert (crown >= ibp).all()
    assert 10 * ibp.mean() < crown.mean() < ours.mean()
    assert crown.mean() > 0.2 * ours.mean()


def test_exact_networks_too():
    net = network(1)
    frozen, x = ld.exact.freeze(net, k=4), images(4, 1, SHAPE)
    opinion = theory.second_opinion(theory.to_relu(frozen), x, "5/255")
    proof = ld.certify(frozen, x, "5/255")
    assert torch.equal(opinion.prediction, proof.prediction)
    assert (opinion.upper[proof.certified] >= 0).all()
    for _ in range(100):
        moved = (x.int() + torch.randint(-5, 6, x.shape)).clamp(0, 255).byte()
        z = frozen(moved).double()
        lead = z.gather(1, opinion.prediction[:, None]) - z
        assert ((opinion.lower - 1e-6 <= lead) & (lead <= opinion.upper + 1e-6)).all()


def test_bad_input_is_refused():
    relu = theory.to_relu(network(0))
    with pytest.raises(ValueError, match="method = 'lp'"):
        theory.second_opinion(relu, pixels(1), 0.1, "lp")
    with pytest.raises(ValueError, match=r"pixels must lie in \[0, 1\]"):
        theory.second_opinion(relu, pixels(1) + 1, 0.1)
    with pytest.raises(ValueError, match="pixels must lie"):
        theory.second_opinion(relu, pixels(1) * float("nan"), 0.1)
    with pytest.raises(ValueError, match="eps = -1"):
        theory.second_opinion(relu, pixels(1), -1)
