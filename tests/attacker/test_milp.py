"""The exact radii of tiny networks, against everything else that is known of them."""

import itertools
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linfdist as ld
from linfdist.certificates.milp import true_radius
from linfdist.models import DistNet

from ..certificates.nets import as_far_as, head_net, images, trained_net

pytest.importorskip("highspy", reason="the extra milp brings the solver")


def small(seed, pixels, classes, width, depth, size, std):
    torch.manual_seed(seed)
    net = DistNet((1, 1, pixels), classes, width, depth, [0.3], std, identity_init=False)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if name.endswith("weight"):
                tensor.mul_(size)
            elif name.endswith(("bias", "running_mean")):
                tensor.copy_(torch.randn_like(tensor) * size / 4)
    return net.eval()


def grid(x, radius, steps=9):
    """All images of a grid over the ball, its corners included: (N, 1, 1, pixels)."""
    ends = [as_far_as(x[None], torch.full_like(x[None], sign), radius[None]) for sign in (-1.0, 1.0)]
    lines = [
        torch.linspace(a, b, steps).tolist() for a, b in zip(*(end.flatten().tolist() for end in ends), strict=True)
    ]
    points = torch.tensor(list(itertools.product(*lines)))
    inside = points.clamp(ends[0].flatten(), ends[1].flatten())
    return inside.view(-1, *x.shape)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6), pixels=st.integers(1, 3), classes=st.integers(2, 4), width=st.integers(1, 3),
    depth=st.integers(1, 2), size=st.sampled_from([1e-6, 0.1, 1.0, 1.0, 30.0, 1e4]),
    std=st.sampled_from([1e-3, 0.31, 1.0, 20.0]),
)  # fmt: skip
def test_order_of_all_methods_and_brute_force(seed, pixels, classes, width, depth, size, std):
    """margin <= box <= exact radius < witness, up to the tolerance; and nothing on a grid of the ball differs."""
    net, x = small(seed, pixels, classes, width, depth, size, std), torch.rand(3, 1, 1, pixels)
    margin, box, exact = (ld.certify(net, x, None, method=method).radius for method in ("margin", "box", "milp"))
    assert (box >= margin).all()
    assert (exact >= box).all()
    for image, proved, found in zip(x, exact.clamp(max=1), true_radius(net, x), strict=True):
        if proved > 0:
            assert (net(grid(image, proved)).argmax(1) == found.prediction).all()
        assert found.radius <= proved
        if found.witness is not None:
            assert int(net(found.witness[None]).argmax()) != found.prediction
            assert 0 <= found.witness.min() <= found.witness.max() <= 1
            distance = float((found.witness.double() - image.double()).abs().max())
            assert distance == found.upper > proved


def test_many_images_of_a_network_that_has_learned_something():
    net, x = trained_net()
    x = x[:40]
    box, exact = ld.certify(net, x, None), ld.certify(net, x, None, method="milp")
    assert torch.equal(box.prediction, exact.prediction)
    assert (exact.radius >= box.radius).all()
    assert (exact.radius > box.radius + 1e-3).any()
    eps = exact.radius.median().item()
    certified = ld.certify(net, x, eps, method="milp").certified
    assert torch.equal(certified, exact.radius >= eps)


def test_labels_and_eps_of_any_kind():
    net, x = trained_net()[0], images(6, 11)
    proof = ld.certify(net, x, "0.01", method="milp")
    assert proof.certified.any()
    wrong = (proof.prediction + 1) % 4
    assert not ld.certify(net, x, "0.01", y=wrong, method="milp").certified.any()
    assert ld.certify(net, x, 0, method="milp").certified.all()
    assert not ld.certify(net, x, 1, method="milp").certified.any()


@pytest.mark.parametrize(("pixels", "width"), [(256, 120), (784, 200)])
def test_a_network_too_large_is_refused_at_once(pixels, width):
    net = DistNet((1, 1, pixels), 10, width, 3, [0.3], 0.31, identity_init=False).eval()
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"too large for method milp: .* choose method box"):
        ld.certify(net, torch.rand(50, 1, 1, pixels), "0.1", method="milp")
    assert time.monotonic() - start < 20


def test_a_limit_of_time_keeps_what_is_proved():
    """However little time there is, a radius is proved or 0, and never above the one that more time gives."""
    net, x = small(3, 3, 3, 7, 3, 1.0, 0.31), torch.rand(2, 1, 1, 3)
    before = [0.0] * len(x)
    for limit in (1e-9, 0.05, 5.0):
        start = time.monotonic()
        found = true_radius(net, x, time_limit=limit)
        assert time.monotonic() - start < len(x) * (limit + 5)
        for k, each in enumerate(found):
            assert each.radius >= before[k] - 1e-5
            assert each.witness is None or each.radius < each.upper
            assert (net(grid(x[k], torch.tensor(each.radius).clamp(max=1))).argmax(1) == each.prediction).all()
        before = [each.radius for each in found]


def test_clip_pool_and_heads_are_refused_in_words():
    options = ({"clip": (0.1, 0.9)}, {"pool": [2]})
    stems = [DistNet((1, 3, 3), 3, 3, 2, [0.3], 0.31, **own).eval() for own in options]
    for net in (*stems, head_net(0), head_net(0, conv=True)):
        with pytest.raises(TypeError) as it:
            ld.certify(net, images(2), "0.1", method="milp")
        assert "\n" not in str(it.value)
