"""The claim of the estimator, from the attacker's side: no sample within its radius, in the user's units, changes its
class, whatever the units.
"""

import functools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="the estimator needs scikit-learn")

from linfdist.sklearn import LinfDistClassifier

UNITS = {
    "plain": (0.0, 1.0),
    "far from zero": (1e9, 1e-3),
    "beyond cancellation": (1e15, 4.0),
    "huge": (0.0, 1e300),
    "tiny": (-1e-270, 1e-280),
    "negative": (-5.0, 1e-9),
}


def blobs(seed, rows=90):
    """Three classes in six features, the last of which is constant; in [0, 1]."""
    generator = np.random.default_rng(seed)
    labels = np.arange(rows) % 3
    centres = generator.uniform(0.2, 0.8, (3, 5))
    points = (centres[labels] + 0.08 * generator.standard_normal((rows, 5))).clip(0, 1)
    return np.column_stack([points, np.full(rows, 0.5)]), labels


@functools.cache
def fitted(units, scale="range", dtype=np.float64):
    offset, width = UNITS[units]
    points, labels = blobs(0)
    samples = (offset + width * points).astype(dtype)
    scale = scale if scale == "range" else width * scale
    classifier = LinfDistClassifier(scale=scale, max_iter=60, width=32, random_state=0)
    return classifier.fit(samples[:60], labels[:60]), samples


def within(samples, eps, scale, signs):
    """Move samples by up to eps · scale in each feature, to the last float64 of the box in exact arithmetic."""
    change = np.asarray(eps)[..., None] * scale
    with np.errstate(over="ignore", under="ignore"):
        moved = samples + signs * change
    for place in np.ndindex(*samples.shape):
        start = Fraction(float(samples[place]))
        limit = Fraction(float(np.broadcast_to(eps, len(samples))[place[0]])) * Fraction(float(scale[place[1]]))
        while abs(Fraction(float(moved[place])) - start) > limit:
            moved[place] = math.nextafter(moved[place], samples[place])
    return moved


def attack(classifier, samples, eps, tries=12, seed=0):
    """(n,) bool: some point of the box, a corner of it or one towards another sample, has another class."""
    generator = np.random.default_rng(seed)
    classes = classifier.predict(samples)
    broken = np.zeros(len(samples), bool)
    middle = np.median(samples, 0)
    towards = [generator.choice([-1.0, 1.0], samples.shape) for _ in range(tries)]
    others = [samples[generator.permutation(len(samples))] for _ in range(tries)] + [
        np.broadcast_to(middle, samples.shape)
    ]
    towards += [1.0 * (other > samples) - (other < samples) for other in others]
    for signs in towards:
        broken |= classifier.predict(within(samples, eps, classifier.scale_, signs)) != classes
    return broken


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("scale", ["range", 0.5])
def test_nothing_within_eps_or_the_radius_changes_the_class(units, scale):
    classifier, samples = fitted(units, scale)
    assert classifier.score(samples[60:], blobs(0)[1][60:]) > 0.6
    proof = classifier.certify(samples[60:], 0.05)
    assert not (attack(classifier, samples[60:], np.full(30, 0.05)) & proof.certified.numpy()).any()
    finite = proof.radius.numpy().clip(max=1.0)
    assert not (attack(classifier, samples[60:], finite) & (finite > 0)).any()
    assert finite.mean() > 0.02  # it is no empty claim, even where float64 has a grain of 0.03 ranges
    assert attack(classifier, samples[60:], np.full(30, 0.6)).mean() > 0.3  # and the attack is none either
    assert (proof.certified <= (proof.radius >= 0.05)).all()


def test_eps_for_each_feature():
    classifier, samples = fitted("far from zero")
    some = np.array([0.2, 0.0, 0.0, 0.0, 0.01, 0.0])
    proof = classifier.certify(samples[60:], some)
    uniform = classifier.certify(samples[60:], 0.2).certified
    assert (proof.certified >= uniform).all()
    assert (proof.certified > uniform).any()
    classes = classifier.predict(samples[60:])
    for signs in np.random.default_rng(0).choice([-1.0, 1.0], (20, 6)):
        moved = samples[60:] + signs * some * classifier.scale_
        assert (classifier.predict(moved) == classes)[proof.certified.numpy()].all()
    each = np.broadcast_to(some, (30, 6))
    assert torch.equal(classifier.certify(samples[60:], each).certified, proof.certified)


def test_beyond_the_range():
    """Far outside, all is as at the border; the proof says the same of balls that cross it."""
    classifier, samples = fitted("plain")
    far = samples[60:].copy()
    far[:, 0] = [-1e308, 1e308, -3.0, 7.0, np.nextafter(samples[:60, 0].max(), 9)] * 6
    proof = classifier.certify(far, 0.05)
    assert not (attack(classifier, far, np.full(30, 0.05)) & proof.certified.numpy()).any()
    assert proof.certified.any()
    strict = LinfDistClassifier(outside="error", max_iter=1, width=4, random_state=0)
    strict.fit(samples[:60], blobs(0)[1][:60])
    with pytest.raises(ValueError, match=r"-1e\+308 \(row 0, column 0\) lies outside the range"):
        strict.predict(far)


def test_a_constant_feature_may_become_anything():
    classifier, samples = fitted("plain")
    assert classifier.scale_[5] == 0
    moved = samples.copy()
    moved[:, 5] = -1e300
    assert np.array_equal(classifier.decision_function(moved), classifier.decision_function(samples))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_float32_samples_mean_their_exact_values(dtype):
    classifier, samples = fitted("plain", dtype=dtype)
    assert samples.dtype == dtype
    proof = classifier.certify(samples[60:])
    wide = classifier.certify(samples[60:].astype(np.float64))
    assert torch.equal(proof.radius, wide.radius)


def test_integers():
    points, labels = blobs(1)
    whole = (points * 40).astype(np.int64)
    classifier = LinfDistClassifier(scale=1, eps=2, max_iter=60, width=32, random_state=0).fit(whole, labels)
    proof = classifier.certify(whole, 1)
    generator = np.random.default_rng(0)
    for _ in range(30):
        moved = whole + generator.integers(-1, 2, whole.shape)
        assert (classifier.predict(moved) == classifier.predict(whole))[proof.certified.numpy()].all()
    assert proof.certified.any()
    with pytest.raises(ValueError, match="beyond the numbers that float64 holds"):
        classifier.predict(whole + 2**53)


def test_denormal_numbers_flushed_or_not():
    classifier, samples = fitted("tiny")
    near = samples[:30].copy()
    near[:, 0] = classifier.scaling_.low[0] + np.linspace(0, 1e-307, 30)
    expected = classifier.decision_function(near)
    proof = classifier.certify(near, 0.01).certified
    torch.set_flush_denormal(True)
    try:
        assert np.array_equal(classifier.decision_function(near), expected)
        assert torch.equal(classifier.certify(near, 0.01).certified, proof)
    finally:
        torch.set_flush_denormal(False)


def test_a_network_of_one_mind_has_an_infinite_radius():
    points, labels = blobs(2)
    classifier = LinfDistClassifier(max_iter=1, width=4, random_state=0).fit(points, labels)
    with torch.no_grad():
        classifier.network_.last.bias.copy_(torch.tensor([0.0, 100.0, 100.0]))
    proof = classifier.certify(points)
    assert proof.radius.isinf().all()
    assert proof.certified.all()
