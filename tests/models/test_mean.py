"""Mean: one network made of networks and views, certified as the function that it is."""

import json
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linfdist as ld
from linfdist.attacks import attack
from linfdist.attacks.surrogate import gradient, surrogate
from linfdist.bounds import box_prover, margins
from linfdist.bounds.head import HeadBounds
from linfdist.bounds.interval import _pixels
from linfdist.certificates.proofs import ROWS, rows_at_once
from linfdist.eps import parse_eps
from linfdist.files import load_tensors, save_tensors
from linfdist.models import Composed, DistNet, Mean, from_config, load, save
from linfdist.models.base import flush_error, rounding_error
from linfdist.nn import Box, View
from linfdist.nn.base import FLUSHED, Readout

from ..certificates.nets import as_far_as, attacks, corners, count_flips, head_net, images, random_net, trained_net
from ..nn.flushing import flushing

VIEWS = ("same", "mirror", "shift:1,0", "shift:0,-1")
KINDS = {
    "plain": lambda seed=0: Mean([random_net(seed), random_net(seed + 1, width=24, depth=2)]),
    "views": lambda seed=0: Mean([random_net(seed, width=24, depth=2)], VIEWS),
    "plain and views": lambda seed=0: Mean([random_net(seed), random_net(seed + 1, 11, 3, 2.0)], ["same", "mirror"]),
    "heads": lambda seed=0: Mean([head_net(seed), head_net(seed + 1, conv=True)]),
    "mixed": lambda seed=0: Mean([random_net(seed), head_net(seed)], ["same", "shift:-1,1"]),
    "nested": lambda seed=0: Mean([Mean([random_net(seed), random_net(seed + 1)]), random_net(seed + 2)]),
    "nested heads": lambda seed=0: Mean([Mean([random_net(seed), head_net(seed + 1)]), head_net(seed + 2)]),
}
BY_MARGIN_AND_BY_BOX = pytest.mark.parametrize("method", ["margin", "box"])


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def by_hand(net, x, p=math.inf, dtype=torch.float64):
    """The mean of the members' logits over views, in float64."""
    if not isinstance(net, Mean):
        return net(x, p).to(dtype)
    seen = [View(name)(x) for name in net.config["views"]]
    return torch.stack([by_hand(member, image, p) for member in net.members for image in seen]).mean(0)


def test_the_formula(kind):
    net, x = KINDS[kind](), images(30)
    assert not net.training
    for p in (math.inf, 8.0):
        torch.testing.assert_close(net(x, p).double(), by_hand(net, x, p), rtol=1e-5, atol=1e-6)


def test_the_mean_of_one_is_that_one():
    one, x = random_net(3), images(30)
    net = Mean([one])
    assert torch.equal(net(x), one(x))
    mine, its = ld.certify(net, x, None), ld.certify(one, x, None)
    torch.testing.assert_close(mine.radius, its.radius, rtol=0, atol=1e-3)


@BY_MARGIN_AND_BY_BOX
def test_no_image_within_the_radius_flips(kind, method):
    for seed in range(2):
        net, x = KINDS[kind](seed), images(40, seed=7)
        proof = ld.certify(net, x, "0.01", method=method)
        assert torch.equal(proof.prediction, net(x).argmax(1))
        assert proof.certified.any()
        assert count_flips(net, x, attacks(net, x, proof.radius)) == 0
        sure = proof.certified.nonzero()[:, 0]
        for name in ("pgd", "strong"):
            assert not attack(name)(net, x[sure], proof.prediction[sure], parse_eps("0.01")).broken.any()


@BY_MARGIN_AND_BY_BOX
def test_not_at_any_corner_either(method):
    one = trained_net()[0]
    net, x = Mean([one, random_net(4)], ["same", "mirror"]), images(24, seed=11)
    radius = ld.certify(net, x, None, method=method).radius
    assert (radius > 0.003).float().mean() > 0.5
    assert count_flips(net, x, corners(x, radius)) == 0
    assert count_flips(net, x, attacks(net, x, 5 * radius)) > 2  # the attack is worth its name


def test_boxes_of_another_precision_are_rounded_outwards_and_no_further():
    net, generator = KINDS["plain"](), torch.Generator().manual_seed(0)
    shape = (50, math.prod(net.shape))
    lower, reach = (torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    lower[:, 0], reach[:, 0] = 0.25, 0.5  # numbers of float32
    box = Box(lower, torch.lerp(lower, torch.ones_like(lower), reach))
    found = Box(*(side.flatten(1) for side in _pixels(net.readout, box)))
    assert found.lower.dtype == torch.float32
    for side, exact, inside in ((found.lower, box.lower, 2.0), (found.upper, box.upper, -1.0)):
        next_one = torch.nextafter(side, torch.full_like(side, inside)).double()
        assert ((side.double() - exact) * inside <= 0).all()
        assert ((next_one - exact) * inside > 0).all()


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6), sizes=st.tuples(*[st.sampled_from([1e-30, 1e-3, 1.0, 1e5, 1e30])] * 2),
    method=st.sampled_from(["margin", "box"]), views=st.sampled_from([("same",), ("mirror", "shift:0,1")]),
)  # fmt: skip
def test_weights_of_any_size(seed, sizes, method, views):
    net = Mean([random_net(seed + k, 7, 2 + k, size) for k, size in enumerate(sizes)], views)
    x = images(16, seed)
    assert count_flips(net, x, attacks(net, x, ld.certify(net, x, None, method=method).radius, tries=3)) == 0


@settings(max_examples=8)
@given(
    seed=st.integers(0, 10**6), gain=st.sampled_from([1e-30, 1.0, 20.0, 1e30]), size=st.sampled_from([1e-3, 1.0, 1e5])
)
def test_heads_of_any_size(seed, gain, size):
    net, x = Mean([head_net(seed % 50, gain), random_net(seed, size=size)]), images(12, seed)
    assert count_flips(net, x, attacks(net, x, ld.certify(net, x, None).radius, tries=3)) == 0


def orders(logits, count):
    """The mean of `count` logits, summed in several orders."""
    for order in (range(count), range(count - 1, -1, -1), torch.randperm(count).tolist()):
        total = torch.zeros_like(logits[0])
        for place in order:
            total = total + logits[place]
        yield total / count
        yield total * torch.tensor(1 / count)


@pytest.mark.parametrize("flush", [False, True])
def test_leads_hold_in_any_order_of_summation(kind, flush):
    net, x = KINDS[kind](), images(20)
    eps = 0.01
    box = Box(*((x + side).clamp(0, 1).flatten(1) for side in (-eps, eps)))
    best = net(x).argmax(1)
    with flushing(flush):
        found = margins(net.readout)(box, best, 0.0)
        every = torch.ones_like(found.lower, dtype=torch.bool)
        closest = found.lower if found.closer is None else found.closer(every)
        proved = box_prover(net.readout)(box, best, 0.0)
    assert closest.gather(1, best[:, None]).isinf().all()
    assert (closest >= found.lower).all()
    assert torch.equal(proved, (closest > 0).all(1))  # although not every pair of classes was looked at closely
    for point in [x, *(as_far_as(x, torch.randn_like(x), torch.full((20,), eps)) for _ in range(6))]:
        inner = [member(View(name)(point)) for member in net.members for name in net.config["views"]]
        for z in [net(point), *orders(inner, len(inner))]:
            apart = z.gather(1, best[:, None]).double() - z.double()
            others = torch.ones_like(z, dtype=torch.bool).scatter(1, best[:, None], False)
            assert (apart[others] >= closest[others]).all()
            assert (z.double().abs().amax(1) <= found.size).all()


def test_costly_bounds_are_for_classes_that_others_leave_open(monkeypatch):
    """No member asks CROWN about a pair that the mean of IBP has proved: with 200 classes that is most of the work."""
    net, x = KINDS["nested heads"](), images(40)
    best, box = net(x).argmax(1), Box(*((x + side).clamp(0, 1).flatten(1) for side in (-0.02, 0.02)))
    lead, asked, crown = margins(net.readout)(box, best, 0.0), [], HeadBounds.crown

    def count(self, hidden, best, row, other):
        asked.append(len(row))
        return crown(self, hidden, best, row, other)

    monkeypatch.setattr(HeadBounds, "crown", count)
    box_prover(net.readout)(box, best, 0.0)
    failed = (lead.lower <= 0).sum(1)
    assert asked[:2] == [int((failed > 0).sum())] * 2  # both heads, about the worst class of each image
    assert 0 < sum(asked) <= 2 * int(failed.sum()) < 2 * failed.numel() * (net.classes - 1)


def test_the_constant_is_the_mean_of_the_members_constants():
    steep = DistNet((1, 3, 3), 4, 7, 2, [0.3], 0.1).eval()
    flat = DistNet((1, 3, 3), 4, 7, 2, [0.3], 1.0).eval()
    net = Mean([steep, flat], VIEWS)
    exact = (Fraction(steep.lipschitz) + Fraction(flat.lipschitz)) / 2
    assert Fraction(net.readout.lipschitz) >= exact
    assert net.readout.lipschitz == pytest.approx(float(exact), rel=1e-15)
    assert net.lipschitz == 1  # up to its features, the pixels
    assert Mean([steep, head_net(0)]).readout.lipschitz is None


@pytest.mark.parametrize("which", ["plain", "views", "plain and views", "nested"])
def test_the_rounding_error_holds(which):
    net, x = KINDS[which](), images(200)
    bound = rounding_error(net)
    double = KINDS[which]().double()
    assert 0 < (net(x).double() - double(x.double())).abs().max().item() <= bound
    assert bound >= sum(rounding_error(member) for member in net.members) / len(net.members)


@torch.no_grad()
def mirrored(net):
    """The same network with its classes in the opposite order."""
    net.last.weight.copy_(net.last.weight.flip(0))
    net.last.bias.copy_(net.last.bias.flip(0))
    return net


@BY_MARGIN_AND_BY_BOX
def test_never_the_first_that_certifies(method):
    """Members that disagree, each certified, whose mean is nearly a tie: that proves nothing."""
    one, two, x = random_net(0), mirrored(random_net(0)), images(60)
    two.last.bias.data[0] += 1e-4
    net = Mean([one, two])
    proofs = [ld.certify(each, x, "0.005", method=method) for each in (one, two, net)]
    torn = (proofs[0].prediction != proofs[1].prediction) & proofs[0].certified & proofs[1].certified
    close = net(x).topk(2).values.diff(dim=1)[:, 0].abs() < 1e-3
    assert (torn & close).any()
    assert not proofs[2].certified[torn & close].any()
    assert torch.equal(proofs[2].prediction, net(x).argmax(1))


@BY_MARGIN_AND_BY_BOX
def test_ties_certify_nothing(method):
    net = Mean([random_net(0), mirrored(random_net(0))])
    proof = ld.certify(net, images(20), "0", method=method)
    tied = net(images(20)).topk(2).values.diff(dim=1)[:, 0] == 0
    assert tied.any()
    assert not proof.certified[tied].any()


@BY_MARGIN_AND_BY_BOX
def test_certificates_do_not_hang_on_denormals(method):
    net, x = KINDS["plain and views"](), images(40)
    before = ld.certify(net, x, "0.01", method=method)
    with flushing():
        after = ld.certify(net, x, "0.01", method=method)
    assert torch.equal(before.certified, after.certified)
    assert flush_error(net, rounding_error(net)) == FLUSHED * torch.finfo(torch.float32).tiny
    with torch.no_grad():
        net.members[1].last.weight[0, 0] = 1e-30
    assert flush_error(net, rounding_error(net)) == 2 * rounding_error(net)


def test_sums_in_another_order_certify_no_image_by_itself():
    """At eps = 0 the image is the ball; where sums round, its logits are known up to their rounding only."""
    net = DistNet((1, 3, 3), 4, 24, 2, [0.3], 0.31, per_class=64).eval()
    with torch.no_grad():
        net.last.weight.mul_(1000)
        net.last.weight[64:128] = net.last.weight[:64].flip(0)  # a tie, but for the order of the sums
        net.last.bias[128:] += 1000
    x = images(60)
    assert (net(x).topk(2).values.diff(dim=1) < 0).any()  # no tie in this order
    for method in ("margin", "box"):
        proof = ld.certify(net, x, "0", method=method)
        assert (proof.prediction < 2).all()
        assert not proof.certified.any()


# --- what else networks do ------------------------------------------------------------------------


def test_gradients_of_finite_p_reach_every_layer_of_every_member(kind):
    net, x = KINDS[kind](), images(6)
    logits, slope = gradient(net, x, lambda z: z[:, 0].sum(), 8.0)
    assert torch.equal(logits, net(x))
    expected = torch.zeros_like(x)
    for member in net.members:
        for name in net.config["views"]:
            pixels = x.clone().requires_grad_()
            z = surrogate(member, View(name)(pixels), 8.0)
            expected += torch.autograd.grad(z[:, 0].sum(), pixels)[0]
    torch.testing.assert_close(slope, expected / len(net.members) / len(net.config["views"]))


def test_counts():
    one, two = random_net(0), head_net(0)
    net = Mean([one, two], ["same", "mirror"])
    assert net.terms() == 2 * (one.terms() + two.terms())
    assert len(list(net.parameters())) == len([*one.parameters(), *two.parameters()])
    assert net.classes == 4


def test_memory_follows_the_members():
    wide = DistNet((1, 3, 3), 4, 200_000, 2, [0.3], 0.31, identity_init=False).eval()
    assert rows_at_once(Mean([random_net(0), wide])) == rows_at_once(wide) < ROWS


@pytest.mark.parametrize("compact", [False, True])
def test_round_trip_through_a_file(kind, tmp_path, compact):
    net, x = KINDS[kind](), images(9)
    save(net, tmp_path / "model.safetensors", {}, compact=compact)
    again = load(tmp_path)
    assert isinstance(again, Mean)
    assert not any(module.training for module in again.modules())
    assert again.config == net.config == json.loads(json.dumps(net.config))
    assert compact or torch.equal(again(x), net(x))
    ld.certify(again, x, "0.01")


HOSTILE = {
    "no list": ({"members": {"0": {}}}, "members must be a list of configurations"),
    "no networks": ({"members": []}, "at least one network"),
    "no configuration": ({"members": ["DistNet"]}, "members must be a list of configurations"),
    "unknown": ({"members": [{"class": "ResNet"}]}, "no network of class 'ResNet'"),
    "views": ({"views": ["upside down"]}, "no view is called 'upside down'"),
    "far": ({"views": ["shift:9,9"]}, "out of sight"),
    "no views": ({"views": []}, "at least one view"),
    "key": ({"weights": [1]}, "a Mean: unknown 'weights'"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_files_that_nobody_wrote_are_refused(case, tmp_path):
    path = tmp_path / "model.safetensors"
    save(KINDS["plain"](), path, {})
    tensors, header = load_tensors(path)
    change, message = HOSTILE[case]
    header["config"].update(change)
    save_tensors(path, tensors, header)
    with pytest.raises(ValueError, match=message):
        load(path)


def test_depths_beyond_the_file_are_refused_before_anything_is_built(tmp_path):
    path = tmp_path / "model.safetensors"
    save(KINDS["plain"](), path, {})
    tensors, header = load_tensors(path)
    header["config"]["members"][1]["depth"] = 10**9
    save_tensors(path, tensors, header)
    with pytest.raises(ValueError, match=r"1000000004 layers, but the file holds \d+ tensors"):
        load(path)


def test_nesting_without_end_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save(KINDS["plain"](), path, {})
    tensors, header = load_tensors(path)
    for _ in range(400):
        header["config"] = {"class": "Mean", "members": [header["config"]], "views": ["same"]}
    save_tensors(path, tensors, header)
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        load(path)


# --- what is refused ------------------------------------------------------------------------------


class OtherReadout(Readout):
    """Has no bounds."""

    lipschitz = None
    classes = 4

    def forward(self, x, p=math.inf):
        return x[:, :4]


@pytest.mark.parametrize(
    ("members", "error", "message"),
    [
        (list, ValueError, "at least one network"),
        (lambda: random_net(0), ValueError, "must be a list of at least one network, got DistNet"),
        (lambda: [random_net(0), torch.nn.Linear(9, 4)], TypeError, "member 1 is a Linear"),
        (lambda: [random_net(0)] * 2, ValueError, "member 1 is a network that is already a member"),
        (
            lambda: [random_net(0), DistNet((1, 4, 4), 4, 7, 2, [0.3], 0.3)],
            ValueError,
            r"shape of images: member 0 has \(1, 3, 3\), member 1 has \(1, 4, 4\)",
        ),
        (
            lambda: [random_net(0), DistNet((1, 3, 3), 5, 7, 2, [0.3], 0.3)],
            ValueError,
            "number of classes: member 0 has 4, member 1 has 5",
        ),
        (
            lambda: [random_net(0), random_net(1).double()],
            ValueError,
            r"precision: member 0 has torch\.float32, member 1 has torch\.float64",
        ),
    ],
)
def test_members_that_do_not_fit(members, error, message):
    with pytest.raises(error, match=message):
        Mean(members())


@pytest.mark.parametrize("views", [[], "same", None, ["sideways"], ["shift:3,0"]])
def test_views_that_do_not_fit(views):
    with pytest.raises(ValueError, match=r"at least one view|no view is called|out of sight"):
        Mean([random_net(0)], views)


def test_members_are_checked_like_any_network():
    class Louder(DistNet):
        def forward(self, x, p=math.inf):
            return 1000 * super().forward(x, p)

    loud = Louder((1, 3, 3), 4, 7, 2, [0.3], 0.31).eval()
    with pytest.raises(TypeError, match=r"Mean\.mean\.members\.1 is a Louder, which inherits"):
        ld.certify(Mean([random_net(0), loud]), images(2), None)
    net = KINDS["plain"]()
    net.members[1].body.train()
    with pytest.raises(ValueError, match="training mode"):
        ld.certify(net, images(2), None)
    net = KINDS["plain"]()
    net.members[0].last.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="forward hooks"):
        ld.certify(net, images(2), None)


def test_a_member_that_is_more_than_its_parts_is_refused():
    class Other(type(random_net(0)).__mro__[1]):  # of PixelNet itself
        def __init__(self):
            inner = random_net(0)
            super().__init__(inner.shape, None)
            self.config, self.body, self.far = {}, inner.body, inner.last

        @property
        def readout(self):
            return self.far

        def features(self, x, p=math.inf):
            return 2 * super().features(x, p)

    with pytest.raises(TypeError, match=r"Mean\.mean\.members\.0 has its own features"):
        ld.certify(Mean([Other().eval()]), images(2), None)


def test_what_a_mean_cannot_do_it_says():
    net, x = KINDS["plain"](), images(2)
    with pytest.raises(TypeError, match="a Mean has no form in integers"):
        ld.exact.freeze(net)
    other = Composed(random_net(0).body, OtherReadout().eval(), (1, 3, 3)).eval()
    with pytest.raises(TypeError, match="OtherReadout has no bounds of its logits"):
        ld.certify(Mean([other, random_net(1)]), x, "0.1")
    with pytest.raises(ValueError, match="a Mean cannot be saved"):
        save(Mean([other]), "never.safetensors", {})


def test_training_mode_is_that_of_the_members():
    assert Mean([random_net(0).train(), random_net(1)]).training
    assert not Mean([random_net(0), random_net(1)]).training
    assert not from_config(KINDS["views"]().config).training
