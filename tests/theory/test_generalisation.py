"""Theorem 4.2: the terms as the lemmas have them, and what the sum may claim."""

import math

import pytest

import linfdist as ld
from linfdist import theory
from linfdist.theory.generalisation import dist_sizes

from ..export.nets import convolutional, images, plain, with_head


@pytest.fixture
def case():
    network = plain()
    pixels = images(200).float() / 255
    return network, pixels, network(pixels).argmax(1)


def test_the_terms(case):
    """Against the formulas, written once more from the paper."""
    network, x, y = case
    found = theory.robust_error_bound(network, x, y, "0.01", 0.05)
    radii = ld.certify(network, x, None, method="margin").radius
    assert found.margin_error == float((radii <= found.margin + 0.01).double().mean())
    assert 0 < found.margin <= 1
    assert found.complexity == pytest.approx(48 * found.rademacher / found.margin)
    assert found.loglog == pytest.approx(math.sqrt(math.log(math.log2(2 / found.margin)) / 200))
    t = found.confidence * math.sqrt(200)
    assert 2 * math.exp(-2 * t**2) == pytest.approx(0.05)
    assert found.bound == found.margin_error + found.complexity + found.loglog + found.confidence
    assert found.vacuous
    assert found.vc == theory.relu_vc_dimension(dist_sizes(network))
    assert found.vc_fully_connected > found.vc


def test_needed_is_where_the_bound_begins_to_speak(case):
    network, x, y = case
    found = theory.robust_error_bound(network, x, y, 0, 0.05)
    assert found.margin_error < 1

    def total(n):
        complexity = 48 / found.margin * math.sqrt(2 * found.vc * math.log(math.e * n / found.vc) / n)
        rest = math.sqrt(math.log(math.log2(2 / found.margin)) / n) + math.sqrt(math.log(2 / 0.05) / 2 / n)
        return found.margin_error + complexity + rest

    assert total(found.needed) < 1 <= total(found.needed * 0.999)


def test_wrong_images_and_larger_radii_only_make_it_worse(case):
    """A wrong image has no margin; nothing that is drawn from rounding or ties may count for the network."""
    network, x, y = case
    right = theory.robust_error_bound(network, x, y, 0, 0.05)
    wrong = theory.robust_error_bound(network, x, (y + 1) % 5, 0, 0.05)
    assert wrong.margin_error == 1
    assert wrong.needed == math.inf
    assert right.margin_error < 1
    assert theory.robust_error_bound(network, x, y, 1, 0.05).margin_error == 1


def test_with_smaller_constants_it_would_speak(monkeypatch, case):
    """No sample that fits into memory makes 48/δ small; so the search for δ is tried with a constant of 10⁻⁴."""
    monkeypatch.setattr(theory.generalisation, "LEMMA_A3", 1e-4)
    network, x, y = case
    found = theory.robust_error_bound(network, x, y, 0, 0.05)
    assert not found.vacuous
    leads = ld.certify(network, x, None, method="margin").radius
    for margin in (0.001, 0.01, 0.05, 0.1, 0.3, 0.999):
        error = float((leads <= margin).double().mean())
        loglog = math.sqrt(math.log(math.log2(2 / margin)) / 200)
        assert found.bound <= error + 1e-4 * found.rademacher / margin + loglog + found.confidence + 1e-12


def test_vc_dimensions():
    """Theorem 6 of Bartlett et al. by hand for one neuron of one input and one output."""
    sizes = [1, 1]
    units, parameters = [2, 1], [2, 0]
    total = sum((i + 1) * k for i, k in enumerate(units))
    cumulated = parameters[0] + (parameters[0] + parameters[1])
    expected = 2 + math.ceil(cumulated * math.log2(4 * math.e * total * math.log2(2 * math.e * total)))
    assert theory.relu_vc_dimension(sizes) == expected
    assert theory.relu_vc_dimension([5, 7, 3]) < theory.relu_vc_dimension([5, 8, 3])
    assert theory.relu_vc_dimension([5, 7, 3]) < theory.relu_vc_dimension([5, 7, 7, 3])


@pytest.mark.parametrize("delta", [0, 1, -0.1, 2, math.nan, True, "0.1"])
def test_delta_must_be_a_probability(case, delta):
    with pytest.raises(ValueError, match=r"delta = .* between 0 and 1"):
        theory.robust_error_bound(*case, 0.1, delta)


def test_bad_input_is_refused(case):
    network, x, y = case
    with pytest.raises(ValueError, match="r = -1"):
        theory.robust_error_bound(network, x, y, -1, 0.1)
    with pytest.raises(ValueError, match="images is empty"):
        theory.robust_error_bound(network, x[:0], y[:0], 0.1, 0.1)
    with pytest.raises(ValueError, match="y must have shape"):
        theory.robust_error_bound(network, x, y[:-1], 0.1, 0.1)
    with pytest.raises(ValueError, match="classes 0 to 4"):
        theory.robust_error_bound(network, x, y + 5, 0.1, 0.1)
    with pytest.raises(ValueError, match=r"pixels must lie in \[0, 1\]"):
        theory.robust_error_bound(network, x * math.nan, y, 0.1, 0.1)
    for other in (with_head(), convolutional()):
        with pytest.raises(TypeError, match=r"Head|DistConv2d"):
            theory.robust_error_bound(other, x, y, 0.1, 0.1)
