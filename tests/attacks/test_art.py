"""The attacks of the Adversarial Robustness Toolbox, through the classifier that wraps a network."""

import math
import sys
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch

import linfdist as ld
from linfdist.attacks import art_classifier, size
from linfdist.attacks.base import Ball

from .nets import many_pixels, random_net


@pytest.fixture(scope="module")
def evasion():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that it imports
        return pytest.importorskip("art.attacks.evasion", reason="the extra `art`")


def pgd(evasion, classifier, eps):
    """Run the attack with surrogate gradients; steps of a tenth of the ball, one random start."""
    return evasion.ProjectedGradientDescent(
        classifier, eps=eps, eps_step=eps / 10, max_iter=20, num_random_init=1, verbose=False
    )


def auto(evasion, classifier, eps):
    """AutoAttack's parts, with fewer steps than its hundred and 5,000: the test is about soundness, not strength."""
    pytest.importorskip("multiprocess", reason="ART's AutoAttack imports it, though ART does not require it")
    steps = {"eps": eps, "eps_step": eps / 4, "max_iter": 10, "nb_random_init": 1, "verbose": False}
    losses = ("cross_entropy", "difference_logits_ratio")
    parts = [evasion.AutoProjectedGradientDescent(classifier, loss_type=loss, **steps) for loss in losses]
    parts.append(evasion.DeepFool(classifier, max_iter=5, nb_grads=3, verbose=False))
    parts.append(evasion.SquareAttack(classifier, eps=eps, max_iter=60, nb_restarts=1, verbose=False))
    return evasion.AutoAttack(classifier, eps=eps, eps_step=eps / 4, attacks=parts)


@pytest.mark.parametrize("attack", [pgd, auto])
def test_it_fails_inside_proved_radii_and_bites_beyond(evasion, attack, trained):
    np.random.seed(0)  # ART's own generator
    net, x, y = trained.network, trained.x[:60], trained.y[:60]
    proof = ld.certify(net, x, eps=None)
    order = proof.radius.argsort(descending=True)
    chosen = order[(proof.prediction == y)[order]][:6]
    x, y, radius = x[chosen], y[chosen], proof.radius[chosen].min().item()
    assert radius > 0.05
    classifier = art_classifier(net)

    inside = torch.from_numpy(attack(evasion, classifier, radius).generate(x.numpy(), y.numpy()))
    inside = Ball.around(x, [Fraction(radius)]).clip(inside)  # ART rounds its steps
    assert (size(inside, x) <= radius).all()
    assert attack is auto or size(inside, x).max() > 0.99 * radius  # AutoAttack keeps images that it cannot fool
    assert torch.equal(net.predict(inside), y)

    beyond = torch.from_numpy(attack(evasion, classifier, 3 * radius).generate(x.numpy(), y.numpy()))
    assert (net.predict(beyond) != y).any()


def test_it_has_the_logits_of_the_network_and_surrogate_gradients(evasion):
    net, x, y = many_pixels(), np.full((1, 1, 6, 6), 0.3, np.float32), np.array([[1, 0]])
    x[0, 0, 2, 3] = 0.29
    soft, hard = art_classifier(net), art_classifier(net, p=math.inf)
    for classifier in (soft, hard):
        assert np.array_equal(classifier.predict(x), net(torch.from_numpy(x)).detach().numpy())
        assert classifier.input_shape == (1, 6, 6)
        assert classifier.nb_classes == 2
    assert np.count_nonzero(hard.loss_gradient(x, y)) <= 2
    assert np.count_nonzero(soft.loss_gradient(x, y)) == 36


def test_the_network_is_left_as_it_is(evasion):
    net, x = random_net(4).train(), torch.rand(6, 1, 3, 3)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    classifier = art_classifier(net)
    classifier.loss_gradient(x.numpy(), np.eye(6, 4), training_mode=True)
    with net.in_eval_mode():
        assert np.array_equal(classifier.predict(x.numpy(), training_mode=True), net(x).detach().numpy())
    assert net.training
    assert all(torch.equal(tensor, net.state_dict()[name]) for name, tensor in before.items())
    assert all(each.requires_grad and each.grad is None for each in net.parameters())


def test_an_exact_network_is_attacked_through_its_floats(evasion, trained):
    exact, x = ld.exact.freeze(trained.network), trained.x[:5]
    found = art_classifier(exact).predict(x.numpy())
    assert np.array_equal(found, exact.floats(x).detach().numpy())


def test_what_is_no_network_is_named():
    with pytest.raises(TypeError, match=r"network must be a network, got .*Linear"):
        art_classifier(torch.nn.Linear(2, 2))


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "art.estimators.classification", None)
    with pytest.raises(ImportError, match="pip install adversarial-robustness-toolbox"):
        art_classifier(random_net(4))
