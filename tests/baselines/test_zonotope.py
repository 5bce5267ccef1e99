"""Zonotopes of conventional networks: they hold whatever the network computes, and are as tight as Fast-Lin."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linfdist as ld
from linfdist.bounds import Zonotope, ZonotopeBounds, forward_zonotope, pull_back, relaxation
from linfdist.bounds.forms import forms_of, margin_weights
from linfdist.bounds.interval import ball
from linfdist.bounds.zonotope import lowest_over, zonotope_and_box, zonotope_of
from linfdist.models import DistNet
from linfdist.nn import Box, CenterCrop, DistLinear, Flatten, Stack

from ..nn.flushing import flushing
from .nets import cnn, inside, mlp, pixels
from .test_layers import LAYERS
from .test_linear import SEEDS, by_intervals, leads, relaxed

KINDS = {**LAYERS, "flatten": (Flatten, (2, 3, 2), (12,)), "crop": (lambda: CenterCrop(2), (2, 3, 4), (2, 2, 2))}


def bounds(net, room=None):
    found = ZonotopeBounds(net)
    found.room = room or found.room
    return found


@settings(max_examples=12)
@given(
    SEEDS, st.booleans(), st.sampled_from([0.0, 1e-6, 0.02, 0.3, 1.0]), st.booleans(), st.sampled_from([1, 15, None])
)
@torch.no_grad()
def test_no_image_of_the_box_is_below_the_bounds(seed, convolutional, eps, double, room):
    net = (cnn(seed) if convolutional else mlp(seed)).to(torch.float64 if double else torch.float32)
    x = pixels(net, 1, seed).to(net.any_tensor.dtype)
    box = ball(x, torch.full((1, 1, 1, 1), eps, dtype=torch.float64))
    best = net(x).argmax(1)
    z = net(inside(*box, 64, torch.Generator().manual_seed(seed))).double()
    lowest = (z[:, best] - z).amin(0)
    apart = bounds(net, room).margins(box, best)[0]
    others = torch.arange(net.classes) != best
    assert apart[best] == torch.inf
    assert (apart[others] <= lowest[others]).all()
    assert (apart[others] >= by_intervals(net, box, best)[0][others] - 1e-3).all()
    if eps == 0.0:  # a point: nothing but rounding is lost
        torch.testing.assert_close(apart[others], lowest[others], atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(seed=SEEDS, scale=st.sampled_from([1e-25, 1.0, 1e6]), flush=st.booleans(), denormal=st.booleans())
@torch.no_grad()
def test_what_a_layer_computes_has_the_same_coefficients(kind, seed, scale, flush, denormal):
    """At points of the zonotope, in exact arithmetic of what is computed: what is left over fits into the spread, and
    into the new error terms, each of which belongs to one coordinate.
    """
    make, shape, after = KINDS[kind]
    torch.manual_seed(seed)
    layer, count = make().eval(), 3
    if denormal:
        for parameter in layer.parameters():
            parameter.flatten()[::2] = 1e-41
    centre = scale * torch.randn(1, *shape, dtype=torch.float64)
    terms = scale * torch.randn(1, count, *shape, dtype=torch.float64) / 2
    coefficients = 2 * torch.rand(6, count, dtype=torch.float64) - 1
    coefficients[::2] = coefficients[::2].sign()
    x = (centre + torch.einsum("pk,k...->p...", coefficients, terms[0])).float()
    away = (x - centre - torch.einsum("pk,k...->p...", coefficients, terms[0])).abs().amax(0, keepdim=True)
    zonotope = Zonotope(centre, terms, 2 * away, count + 4)
    box = Box(x.amin(0, keepdim=True), x.amax(0, keepdim=True))
    after_it = forward_zonotope(layer, zonotope, box)
    assert tuple(after_it.centre.shape[1:]) == after
    assert after_it.generators.shape[1] <= zonotope.room
    added = after_it.generators[0, count:]
    fresh = added.abs().sum(0) if len(added) else torch.zeros(after).double()
    assert ((added != 0).flatten(1).sum(1) <= 1).all()
    with flushing(flush):
        y = layer(x)
    rows = [side.flatten().tolist() for side in (after_it.centre[0], after_it.radius[0], fresh)]
    old = after_it.generators[0, :count].flatten(1).tolist()
    for point, own in zip(y, coefficients.tolist(), strict=True):
        for place, value in enumerate(point.flatten().tolist()):
            middle, spread, new = (Fraction(row[place]) for row in rows)
            straight = middle + sum(Fraction(e) * Fraction(t[place]) for e, t in zip(own, old, strict=True))
            assert abs(Fraction(value) - straight) <= spread + new


@torch.no_grad()
def test_without_intervals_they_are_the_bounds_of_fast_lin():
    """Zonotopes go forwards and forms backwards, with the same lines around each ReLU (Salman et al., 2019)."""
    for net in (mlp(3, hidden=(9, 7, 6)), cnn(3)):
        x = pixels(net, 3)
        best = net(x).argmax(1)
        for eps in (0.0, 0.02, 0.3):
            box = ball(x, torch.tensor(eps).double())
            zonotope, features = zonotope_and_box(net.body, zonotope_of(box, 10**6, torch.float64), box)
            row, other = torch.arange(3).repeat_interleave(net.classes), torch.arange(net.classes).repeat(3)
            forms = forms_of(margin_weights(best, row, other, net.classes, torch.float64), row)
            apart = lowest_over(pull_back(net.readout, forms, features), zonotope).view(3, -1)
            known = leads(net, "fast-lin", box, best)
            others = known < torch.inf
            torch.testing.assert_close(apart[others], known[others], atol=1e-3, rtol=1e-3)
            assert (bounds(net).margins(box, best)[others] >= apart[others]).all()
            wide = net.features_box(box)
            assert (features.lower >= wide.lower).all()
            assert (features.upper <= wide.upper).all()
            assert eps == 0.0 or (features.upper < wide.upper).any()


@torch.no_grad()
def test_the_linear_program_of_the_same_relaxation_is_at_least_as_tight():
    for seed in range(2):
        net = mlp(seed, hidden=(5, 4), shape=(1, 2, 2))
        x = pixels(net, 1, seed)
        box, best = ball(x, torch.tensor(0.15).double()), net(x).argmax(1)
        apart = bounds(net).margins(box, best)[0]
        other = int((best + 1) % net.classes)
        weight = torch.zeros(net.classes).double()
        weight[best], weight[other] = 1.0, -1.0
        assert apart[other] <= relaxed(net, box, "fast-lin", weight) + 1e-6


@torch.no_grad()
def test_chunks_do_not_matter_and_fewer_terms_cost_tightness_alone():
    net = cnn(1)
    x = pixels(net, 5)
    box, best = ball(x, torch.tensor(0.02).double()), net(x).argmax(1)
    whole = bounds(net).margins(box, best)
    by_two = bounds(net)
    by_two.few = 2
    others = whole < torch.inf
    torch.testing.assert_close(by_two.margins(box, best)[others], whole[others], atol=1e-9, rtol=1e-9)
    hybrid = bounds(net, room=40).margins(box, best)
    assert (hybrid[others] < whole[others]).float().mean() > 0.9
    assert (hybrid[others] > by_intervals(net, box, best)[others]).any()


@torch.no_grad()
def test_layers_without_zonotopes_are_named():
    stack = Stack(Flatten(), DistLinear(9, 3)).eval()
    with pytest.raises(TypeError, match="DistLinear does not map zonotopes"):
        ld.certify(stack, torch.rand(0, 1, 3, 3), "0.1", method="zonotope")
    net = DistNet((1, 3, 3), 4, 5, 2, [0.3], 0.3).eval()
    with pytest.raises(TypeError, match="does not map zonotopes"):
        ld.certify(net, torch.rand(2, 1, 3, 3), "0.1", method="zonotope")
    with pytest.raises(TypeError, match="DistLinear has no linear relaxation"):
        relaxation(DistLinear(3, 3), Box(torch.zeros(1, 3), torch.ones(1, 3)))


@torch.no_grad()
def test_bounds_beyond_all_measure_prove_nothing():
    for factor in (1e60, 1e150):
        net = mlp(0).double()
        for parameter in net.parameters():
            parameter.mul_(factor)
        x = pixels(net, 2).double()
        apart = bounds(net).margins(Box(x, x), net(x).argmax(1))
        assert not ((apart > -torch.inf) & (apart < torch.inf)).any()
    net, x = mlp(0), pixels(mlp(0), 2)
    best = net(x).argmax(1)
    for bad in (torch.nan, torch.inf):
        spoiled = x.clone()
        spoiled[0, 0, 1, 1] = bad
        apart = bounds(net).margins(Box(x, spoiled), best)
        assert not ((apart[0] > -torch.inf) & (apart[0] < torch.inf)).any()
        assert (apart[1] > -torch.inf).all()
    net.body.layers[2].weight[:] = 3e38
    apart = bounds(net).margins(Box(x, x), best)
    assert not ((apart > -torch.inf) & (apart < torch.inf)).any()


@torch.no_grad()
def test_rounding_that_the_bounds_allow_for_happens():
    """Large terms that cancel in the first layer: float32 is far from the exact result, and zonotopes know it."""
    net = mlp(2, hidden=(6, 5))
    layer = net.body.layers[2]
    layer.weight[:, 0::2][:, :4] = 3e5 * torch.rand(6, 4)
    layer.weight[:, 1::2] = -layer.weight[:, 0::2][:, :4]
    x = torch.rand(40, 1, 1, 1).expand(40, 1, 3, 3).contiguous()
    z, exact = net(x).double(), mlp(2, hidden=(6, 5)).double()
    exact.load_state_dict({name: each.double() for name, each in net.state_dict().items()})
    best = torch.zeros(40, dtype=torch.int64)
    apart = bounds(net).margins(Box(x, x), best)
    assert (apart[:, 1:] <= (z[:, :1] - z)[:, 1:]).all()
    bare = exact(x.double())
    assert ((bare[:, :1] - bare)[:, 1:] > (z[:, :1] - z)[:, 1:]).any()  # exact bounds would be wrong


@torch.no_grad()
def test_it_proves_more_than_intervals():
    net, x = mlp(1), pixels(mlp(1), 8)
    zonotope, box = (ld.certify(net, x, "0.02", method=method) for method in ("zonotope", "box"))
    assert (zonotope.radius >= box.radius).all()
    assert zonotope.certified.sum() > box.certified.sum()
