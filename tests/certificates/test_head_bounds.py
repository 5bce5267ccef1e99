"""IBP and CROWN against sampling, against an LP of the same relaxation, and by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linfdist.bounds import box_prover
from linfdist.bounds.head import TANH_EPS, HeadBounds, head_bounds
from linfdist.bounds.tanh import tanh_lines
from linfdist.nn import Box, Head

CLASSES = 4


def make_head(seed, features=7, hidden=9, gain=1.0, classes=CLASSES):
    torch.manual_seed(seed)
    head = Head(features, hidden, classes)
    with torch.no_grad():
        head.hidden.weight.mul_(gain)
        head.hidden.bias.normal_()
        head.output.bias.normal_()
    return head


def make_box(rows, features, radius):
    lower = torch.randn(rows, features)
    return Box(lower, lower + 2 * radius * torch.rand(rows, features))


def wide(box):
    return Box(box.lower.double(), box.upper.double())


def every_pair(bounds, hidden, best):
    row, other = torch.ones(len(best), CLASSES).scatter(1, best[:, None], 0.0).nonzero().unbind(1)
    return row, other, bounds.crown(hidden, best, row, other)


def differences(head, features, best):
    """Lower bounds (b, classes) of z[best] − z[j] as executed: the better of IBP and CROWN; infinity at best."""
    bounds = head_bounds(head)
    hidden = bounds.hidden(features)
    found = bounds.ibp(hidden, best)
    row, other = (found < torch.inf).nonzero().unbind(1)
    found[row, other] = torch.maximum(found[row, other], bounds.crown(hidden, best, row, other))
    return found


def executed(head, box, best, count=60):
    """Smallest z[best] − z[j] seen, by the float32 head, at corners, inside, and down the gradient."""
    smallest = torch.full((len(best), CLASSES), math.inf, dtype=torch.float64)

    def see(f):
        nonlocal smallest
        z = head(f).double()
        smallest = torch.minimum(smallest, z.gather(1, best[:, None]) - z)

    for _ in range(count):
        see(torch.where(torch.rand_like(box.lower) < 0.5, *box))
        see(torch.lerp(*box, torch.rand_like(box.lower)).clamp(*box))
    for other in range(CLASSES):
        f = ((box.lower + box.upper) / 2).clamp(*box)
        for _ in range(6):
            f = f.detach().requires_grad_()
            z = head(f)
            (slope,) = torch.autograd.grad((z.gather(1, best[:, None])[:, 0] - z[:, other]).sum(), f)
            f = torch.where(slope > 0, *box)
            see(f.detach())
    return smallest.detach()


@given(
    seed=st.integers(0, 10**6), radius=st.sampled_from([0.0, 1e-6, 0.01, 0.3, 5.0]),
    gain=st.sampled_from([1e-20, 0.3, 3.0, 100.0]), hidden=st.sampled_from([1, 9, 40]),
)  # fmt: skip
def test_they_enclose_what_the_head_computes(seed, radius, gain, hidden):
    head = make_head(seed, hidden=hidden, gain=gain)
    box, best = make_box(6, 7, radius), torch.randint(CLASSES, (6,))
    bounds = head_bounds(head)
    inside = bounds.hidden(wide(box))
    seen = executed(head, box, best, count=10)
    row, other, crown = every_pair(bounds, inside, best)
    assert (crown <= seen[row, other]).all()
    assert (bounds.ibp(inside, best)[row, other] <= seen[row, other]).all()
    both = differences(head, wide(box), best)
    assert torch.equal(both[row, other], torch.maximum(crown, bounds.ibp(inside, best)[row, other]))
    assert (both.gather(1, best[:, None]) == math.inf).all()
    f = torch.lerp(*box, torch.rand_like(box.lower)).clamp(*box)
    h = head.hidden(f).double()
    assert (inside.lower <= h).all()
    assert (h <= inside.upper).all()


def test_they_are_tight():
    """At a point, the bounds are the value, but for the rounding; on a box, the sampled minimum is not far."""
    head, best = make_head(0), torch.tensor([0, 1, 2, 3])
    point = make_box(4, 7, 0.0)
    z = head(point.lower).double()
    difference = z.gather(1, best[:, None]) - z
    bounds = differences(head, wide(point), best)
    others = difference != 0
    torch.testing.assert_close(bounds[others], difference[others], rtol=0, atol=2e-5)
    box = make_box(4, 7, 0.05)
    bounds = differences(head, wide(box), best)
    seen = executed(head, box, best)
    assert (seen - bounds)[others].max() < 0.05


def test_each_of_the_two_wins_somewhere():
    head, best = make_head(1), torch.randint(CLASSES, (20,))
    bounds, wins = head_bounds(head), []
    for radius in (0.05, 20.0):
        hidden = bounds.hidden(wide(make_box(20, 7, radius)))
        row, other, crown = every_pair(bounds, hidden, best)
        wins.append((crown > bounds.ibp(hidden, best)[row, other]).float().mean().item())
    assert wins[0] > 0.9  # small boxes: lines; large ones: tanh is all but a step, and lines lean
    assert wins[1] < 0.9


def test_crown_is_asked_where_it_can_help(monkeypatch):
    """Once about the worst class of images that IBP cannot prove, then about the other classes of those it saved."""
    head, box = make_head(2, hidden=40), make_box(400, 7, 0.3)
    best, bounds, box = head((box.lower + box.upper) / 2).argmax(1), head_bounds(head), wide(box)
    both, ibp, asked = differences(head, box, best), bounds.ibp(bounds.hidden(box), best), []
    crown = HeadBounds.crown

    def count(self, hidden, best, row, other):
        asked.append(len(row))
        return crown(self, hidden, best, row, other)

    monkeypatch.setattr(HeadBounds, "crown", count)
    proved = box_prover(head)(box, best, 0.0)
    assert torch.equal(proved, (both > 0).all(1))
    assert proved.sum() > (ibp > 0).all(1).sum() > 0
    saved = both.gather(1, ibp.argmin(1, keepdim=True))[:, 0] > 0
    assert asked == [int((ibp <= 0).any(1).sum()), int(((ibp <= 0).sum(1) - 1)[saved].clamp(min=0).sum())]
    assert asked[1] > 0


def test_an_lp_of_the_same_relaxation_agrees():
    """min z[best] − z[j] over features in the box and every tanh between its two lines: CROWN solves exactly that."""
    highspy = pytest.importorskip("highspy")
    head = make_head(3)
    bounds = head_bounds(head)
    box, best = wide(make_box(3, 7, 0.4)), torch.tensor([0, 1, 2])
    hidden = bounds.hidden(box)
    lines = tanh_lines(hidden.lower, hidden.upper)
    row, other, crown = every_pair(bounds, hidden, best)
    for k, j, bound in zip(row.tolist(), other.tolist(), crown.tolist(), strict=True):
        solver = highspy.Highs()
        solver.silent()
        f = [
            solver.addVariable(lb=low, ub=high)
            for low, high in zip(box.lower[k].tolist(), box.upper[k].tolist(), strict=True)
        ]
        t = [solver.addVariable(lb=-math.inf, ub=math.inf) for _ in range(len(bounds.b1))]
        for n in range(len(t)):
            h = sum(bounds.w1[n, i].item() * f[i] for i in range(len(f))) + bounds.b1[n].item()
            solver.addConstr(t[n] >= lines.lower_slope[k, n].item() * h + lines.lower_offset[k, n].item())
            solver.addConstr(t[n] <= lines.upper_slope[k, n].item() * h + lines.upper_offset[k, n].item())
        weight = (bounds.w2[best[k]] - bounds.w2[j]).tolist()
        solver.minimize(sum(weight[n] * t[n] for n in range(len(t))))
        optimum = solver.getInfo().objective_function_value + (bounds.b2[best[k]] - bounds.b2[j]).item()
        assert bound <= optimum + 1e-6  # the solver's tolerance
        assert bound >= optimum - 1e-4  # our slack


def test_lines_enclose_tanh_and_touch_it():
    """Dense sampling of many intervals: huge, tiny, empty, on either side of 0."""
    ends = torch.cat([torch.linspace(-6, 6, 25), torch.tensor([-1e30, -500.0, -19.3, -1e-9, 1e-9, 19.3, 500.0, 1e30])])
    lower, upper = torch.cartesian_prod(ends.double(), ends.double()).unbind(1)
    lower, upper = torch.minimum(lower, upper), torch.maximum(lower, upper)
    lines = tanh_lines(lower, upper)
    share = torch.cat([torch.linspace(0, 1, 401).double(), 10.0 ** -torch.linspace(1, 40, 100).double()])[:, None]
    for h in (lower + share * (upper - lower), upper - share * (upper - lower), (share - 0.5) * 20):
        h = torch.minimum(torch.maximum(h, lower), upper)
        above = lines.upper_slope * h + lines.upper_offset - h.tanh()
        below = h.tanh() - lines.lower_slope * h - lines.lower_offset
        assert above.min() >= 0
        assert below.min() >= 0
    narrow = upper - lower < 50
    h = torch.minimum(torch.maximum(lower + share * (upper - lower), lower), upper)
    touches = (lines.upper_slope * h + lines.upper_offset - h.tanh()).amin(0)
    assert touches[narrow].max() < 1e-3


def test_a_line_is_the_best_of_its_kind():
    """[1, 2]: the tangent at 3/2; [−2, −1]: the chord."""
    lines = tanh_lines(torch.tensor([1.0, -2.0]).double(), torch.tensor([2.0, -1.0]).double())
    assert lines.upper_slope[0].item() == pytest.approx(1 - math.tanh(1.5) ** 2)
    assert lines.upper_slope[1].item() == pytest.approx(math.tanh(2) - math.tanh(1))


@pytest.mark.parametrize(("lower", "upper"), [(-1.0, 3.0), (-3.0, 1.0), (-3.0, 0.3), (-0.2, 0.1)])
def test_no_other_line_has_a_lower_middle(lower, upper):
    """The tangent at the middle, the one through the lower end, and the chord."""
    lines = tanh_lines(torch.tensor(lower).double(), torch.tensor(upper).double())
    h, middle = torch.linspace(lower, upper, 4001).double(), (lower + upper) / 2
    slopes = torch.linspace(0, 1, 2001).double()[:, None]
    middles = slopes[:, 0] * middle + (h.tanh() - slopes * h).amax(1)
    assert (lines.upper_slope * middle + lines.upper_offset).item() == pytest.approx(middles.min().item(), abs=2e-3)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_error_of_tanh(threads):
    """Every 97th float32 of [2^-14, 16], both signs, in vectors and alone: at most a quarter of what is allowed."""
    torch.set_num_threads(threads)
    h = torch.arange(0x38800000, 0x41800000, 97, dtype=torch.int32).view(torch.float32)
    for sign in (1, -1):
        error = ((sign * h).tanh().double() - (sign * h).double().tanh()).abs().max().item()
        assert error <= TANH_EPS / 4 * torch.finfo(torch.float32).eps
    alone = torch.stack([value.tanh() for value in h[::9973]])
    assert (alone.double() - h[::9973].double().tanh()).abs().max() <= TANH_EPS / 4 * torch.finfo(torch.float32).eps


@pytest.mark.slow
def test_the_error_of_tanh_everywhere():
    """All floats of [2^-14, 16]; below, tanh is h to 2^-29, and above, 1."""
    for start in range(0x38800000, 0x41800000, 1 << 22):
        h = torch.arange(start, start + (1 << 22), dtype=torch.int32).view(torch.float32)
        assert (h.tanh().double() - h.double().tanh()).abs().max() <= TANH_EPS / 4 * torch.finfo(torch.float32).eps


def test_by_hand():
    """One feature, one hidden neuron, two classes: z = ±tanh(f) on [0, 1]; the smallest difference is at f = 0."""
    head = Head(1, 1, 2)
    with torch.no_grad():
        head.hidden.weight.fill_(1.0)
        head.output.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        head.output.bias.copy_(torch.tensor([0.5, 0.0]))
    box = Box(torch.zeros(2, 1).double(), torch.ones(2, 1).double())
    bounds = differences(head, box, torch.tensor([0, 1]))
    assert bounds[0].tolist() == [math.inf, pytest.approx(0.5, abs=1e-5)]
    assert bounds[1].tolist() == [pytest.approx(-0.5 - 2 * math.tanh(1), abs=1e-5), math.inf]
    assert box_prover(head)(box, torch.tensor([0, 1]), 0.0).tolist() == [True, False]


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_features_without_bounds_prove_nothing(value):
    head = make_head(0, gain=1e10)
    box = Box(torch.zeros(2, 7).double(), torch.zeros(2, 7).double())
    box.upper[0, 3] = value
    proved = differences(head, box, torch.tensor([0, 0]))
    assert (proved[0, 1:] == -math.inf).all()
    assert proved[1, 1:].isfinite().all()


def test_what_rounding_may_do_is_counted():
    """A tanh at its flat end that errs by all that is allowed, and the size of logits that are their biases alone."""
    head = make_head(0, gain=100.0)
    box, best, bounds = wide(make_box(6, 7, 0.0)), torch.randint(CLASSES, (6,)), head_bounds(head)
    exact = (box.lower @ bounds.w1.T + bounds.b1).tanh()
    hidden, allowed = bounds.hidden(box), TANH_EPS * torch.finfo(torch.float32).eps
    assert (exact.abs() == 1).any()
    assert (hidden.low <= exact - allowed).all()
    assert (hidden.high >= exact + allowed).all()
    with torch.no_grad():
        head.output.weight.zero_()
    assert (head_bounds(head).margins(box, best).size >= head(box.lower.float()).double().abs().amax(1)).all()
