"""The float64 head: its bounds hold in every order of summation, and the twin's follow from the producer's."""

import math
import random
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linfdist.exact import FrozenHead, twin

from .nets import exact_head

EPS = 2.0**-52


def random_head(seed: int, features=6, hidden=5, classes=3, size=1.0, cancel=False) -> FrozenHead:
    """Sums of size one over features of size 1000; if `cancel`, of terms that are 1e12 times as large."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    w1, b1, w2, b2 = draw(hidden, features) / 1000, draw(hidden), size * draw(classes, hidden), size * draw(classes)
    if cancel:
        w2[:, 1] = -w2[:, 0] * 1e12
        w2[:, 0] *= 1e12
        w1[1], b1[1] = w1[0], b1[0]  # the same t twice
    return FrozenHead(w1, b1, w2, b2)


def executed(head: FrozenHead, n: list[int], rng: random.Random) -> list[float]:
    """The head in float64 with sums in any order, fused or not, and a tanh that errs by up to 4 epsilons."""

    def linear(weight, bias, values):
        fused = rng.random() < 0.5
        results = []
        for row, b in zip(weight.tolist(), bias.tolist(), strict=True):
            terms = [(w, v) for w, v in zip(row, values, strict=True)] + [(b, 1.0)]
            rng.shuffle(terms)
            if rng.random() < 0.3:  # in two halves
                halves = terms[::2], terms[1::2]
                results.append(sum(chain(half, fused) for half in halves))
            else:
                results.append(chain(terms, fused))
        return results

    def chain(terms, fused):
        total = 0.0
        for w, v in terms:
            total = float(Fraction(w) * Fraction(v) + Fraction(total)) if fused else total + w * v
        return total

    hidden = linear(head.w1, head.b1, [float(each) for each in n])
    return linear(head.w2, head.b2, [math.tanh(h) + rng.choice([-3.0, 0.0, 3.0]) * EPS for h in hidden])


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), cancel=st.booleans(), size=st.sampled_from([1e-90, 1.0, 1e80]))
def test_every_execution_is_within_the_error(seed, cancel, size):
    head = random_head(seed, size=size, cancel=cancel)
    n = torch.randint(-2000, 2001, (1, 6), generator=torch.Generator().manual_seed(seed))
    error = head.error(n)[0].tolist()
    exact = exact_head(head, [Fraction(each) for each in n[0].tolist()])
    rng = random.Random(seed)
    runs = [executed(head, n[0].tolist(), rng) for _ in range(20)]
    runs += [head(n)[0].tolist(), head(n.repeat(7, 1))[3].tolist()]
    runs += [twin.head_logits([each.numpy() for each in head.tensors().values()], n[0].numpy()).tolist()]
    for logits in runs:
        assert all(abs(Fraction(z) - true) <= bound for z, true, bound in zip(logits, exact, error, strict=True))
    largest = float(head.w2.abs().sum(1).max() + head.b2.abs().max())
    assert max(error) <= 1e-11 * largest  # it says something


def boxes(seed: int, count: int, reach: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    middle = torch.randint(-2000, 2001, (count, 6), generator=generator)
    return middle - torch.randint(0, reach + 1, (count, 6), generator=generator), middle + reach


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), reach=st.sampled_from([0, 1, 30, 300]), cancel=st.booleans())
def test_what_is_proved_holds_in_every_order(seed, reach, cancel):
    head = random_head(seed, cancel=cancel)
    low, high = boxes(seed, 8, reach)
    best = head((low + high) // 2).argmax(1)
    rng = random.Random(seed)
    for row in head.proves(low.double(), high.double(), best).nonzero()[:, 0].tolist():
        for _ in range(12):
            ends = zip(low[row].tolist(), high[row].tolist(), strict=True)
            corner = rng.random() < 0.5
            n = [rng.choice(pair) if corner else rng.randint(*pair) for pair in ends]
            logits = executed(head, n, rng)
            assert all(z < logits[best[row]] for k, z in enumerate(logits) if k != best[row])


def test_it_proves_what_it_should():
    """Random heads and small boxes: nearly all of them; and boxes that are too large: nearly none."""
    for reach, least, most in ((0, 200, 200), (5, 180, 200), (2000, 0, 20)):
        proved = 0
        for seed in range(20):
            head, (low, high) = random_head(seed), boxes(seed, 10, reach)
            best = head((low + high).double() / 2).argmax(1)
            proved += int(head.proves(low.double(), high.double(), best).sum())
        assert least <= proved <= most
    head = random_head(0)
    assert not head.proves(low.double() * 0, low.double() * 0, (head(low * 0).argmax(1) + 1) % 3).any()  # another class
    assert head.proves(low[:0].double(), low[:0].double(), low[:0, 0]).shape == (0,)


def threshold(make, best: int) -> tuple[float, float]:
    """The smallest gap, in units of 2^-50, at which make(gap) is proved, and at which the twin is satisfied."""

    def proved(gap):
        head, point = make(gap * 2.0**-50), torch.zeros(1, 1, dtype=torch.float64)
        return bool(head.proves(point, point, torch.tensor([best])))

    def accepted(gap):
        arrays, point = (
            [each.numpy() for each in make(gap * 2.0**-50).tensors().values()],
            torch.zeros(1).long().numpy(),
        )
        return twin.head_holds(arrays, point, point, best)

    return next(gap for gap in range(1000) if proved(gap)), next(gap for gap in range(1000) if accepted(gap))


@pytest.mark.parametrize("best", [0, 1])
def test_the_slack_of_sums(best):
    """t = tanh(50) = 1, and logits that differ by the gap: sums of 2 terms and a bias, of size 2, for two classes.

    Hence (2 + 16) (2 + 2) = 72; the producer takes twice that.
    """
    zero, one = torch.zeros(2, 1, dtype=torch.float64), torch.ones(2, dtype=torch.float64)

    def make(gap):
        w2 = torch.tensor([[1.0, -1.0], [1.0, -1.0]], dtype=torch.float64)
        w2[best, 0] += gap
        return FrozenHead(zero, 50 * one, w2, 0 * one)

    assert threshold(make, best) == pytest.approx((145, 73), abs=1)


@pytest.mark.parametrize("best", [0, 1])
def test_the_slack_of_tanh(best):
    """±tanh(gap): 2 gap must exceed (1 + 16) (1 + 1) for the sums, and 2 · 4 for the tanh."""
    zero, sign = torch.zeros(1, 1, dtype=torch.float64), 1 - 2 * best
    w2 = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)

    def make(gap):
        return FrozenHead(zero, torch.full((1,), sign * gap, dtype=torch.float64), w2, 0 * w2[:, 0])

    assert threshold(make, best) == pytest.approx((43, 22), abs=1)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), reach=st.integers(0, 400), cancel=st.booleans(), features=st.sampled_from([6, 700]))
def test_the_twin_accepts_what_is_proved(seed, reach, cancel, features):
    head = random_head(seed, features=features, hidden=9, cancel=cancel)
    generator = torch.Generator().manual_seed(seed)
    low = torch.randint(-3000, 3001, (6, features), generator=generator)
    high = low + torch.randint(0, reach // features + 2, (6, features), generator=generator)
    best = head(low).argmax(1)
    arrays = [each.numpy() for each in head.tensors().values()]
    for row, proved in enumerate(head.proves(low.double(), high.double(), best).tolist()):
        accepted = twin.head_holds(arrays, low[row].numpy(), high[row].numpy(), int(best[row]))
        assert accepted or not proved


def test_cancellation_decides_nothing():
    """1e16 + 1 - 1e16 is 0 or 1, depending on the order: the class is what the machine makes of it."""
    zero, one = torch.zeros(3, 1, dtype=torch.float64), torch.ones(3, dtype=torch.float64)

    def head(large):
        w2 = torch.tensor([[large, 1, -large], [0, 0.5, 0]], dtype=torch.float64)
        return FrozenHead(zero, 50 * one, w2, torch.zeros(2, dtype=torch.float64))

    assert (1e16 + 1) - 1e16 < 0.5 < (1e16 - 1e16) + 1  # so both classes can win
    n = torch.zeros(1, 1, dtype=torch.float64)
    for large, certain in ((1e16, False), (1e14, False), (1e8, True)):
        arrays = [each.numpy() for each in head(large).tensors().values()]
        for best in (0, 1):
            assert bool(head(large).proves(n, n, torch.tensor([best]))) == (certain and best == 0)
            point = n[0].long().numpy()
            assert twin.head_holds(arrays, point, point, best) == (certain and best == 0)


def test_cancellation_in_the_first_layer():
    """h = 2^53 n0 - 2^53 n1 + n2 and neighbours: features of 2^20 make it lose more than its sign."""
    w1 = torch.tensor([[2.0**53, -(2.0**53), 1.0]], dtype=torch.float64)
    one = torch.ones(2, dtype=torch.float64)
    head = FrozenHead(w1, 0 * one[:1], torch.tensor([[1.0], [-1.0]], dtype=torch.float64), 0 * one)
    n = torch.tensor([[2**20, 2**20, 5]], dtype=torch.float64)
    assert 2.0**73 + 5 - 2.0**73 == 0 < 2.0**73 - 2.0**73 + 5  # a tie in one order, class 0 in another
    arrays = [each.numpy() for each in head.tensors().values()]
    for keep, certain in ((1.0, False), (0.0, True)):  # as it is, and without the large features
        point = n * torch.tensor([keep, keep, 1.0])
        assert bool(head.proves(point, point, torch.tensor([0]))) == certain
        whole = point[0].long().numpy()
        assert twin.head_holds(arrays, whole, whole, 0) == certain


def test_the_largest_weights_do_not_overflow():
    head = random_head(0)
    tensors = {name: tensor.sign() * 1e100 for name, tensor in head.tensors().items()}
    huge = FrozenHead(**tensors)
    n = torch.full((1, 6), 2**31 - 1)
    assert huge(n).isfinite().all()
    assert huge.error(n).isfinite().all()
    assert not huge.proves(-n.double(), n.double(), huge(n).argmax(1)).any()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.1e100])
@pytest.mark.parametrize("name", ["w1", "b1", "w2", "b2"])
def test_what_is_not_finite_is_refused(name, value):
    tensors = {key: tensor.clone() for key, tensor in random_head(0).tensors().items()}
    tensors[name].view(-1)[-1] = value
    with pytest.raises(ValueError, match=f"{name} of the head reaches"):
        FrozenHead(**tensors)


def test_shapes_and_types_are_checked():
    head = random_head(0).tensors()
    for change, complaint in (
        ({"w1": head["w1"].float()}, "w1 of the head is torch.float32"),
        ({"b1": head["b1"][1:]}, "do not fit together"),
        ({"w2": head["w2"][:, 1:]}, "do not fit together"),
        ({"b2": head["b2"][:1]}, "do not fit together"),
        ({"w1": head["w1"][0]}, "do not fit together"),
        ({"w1": head["w1"][:0], "b1": head["b1"][:0], "w2": head["w2"][:, :0]}, "w1 of the head reaches nan"),
    ):
        with pytest.raises(ValueError, match=complaint):
            FrozenHead(**{**head, **change})
