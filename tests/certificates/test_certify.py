"""`certify` and `predict`: what they return, and how the methods relate."""

import math
from fractions import Fraction

import pytest
import torch

import linfdist as ld
from linfdist.certificates import METHODS, proofs

from .nets import head_net, images, random_net, trained_net, two_classes


@pytest.fixture(scope="module")
def trained():
    return trained_net()


@pytest.fixture(params=["plain", "head", "conv"])
def net(request):
    return {"plain": lambda: trained_net()[0], "head": lambda: head_net(0), "conv": lambda: head_net(1, conv=True)}[
        request.param
    ]()


@pytest.mark.parametrize("method", ["margin", "box"])
def test_what_comes_back(net, method):
    x = images(40, seed=3)
    proof = ld.certify(net, x, "2/255", method=method)
    assert torch.equal(proof.prediction, net(x).argmax(1))
    assert proof.prediction.dtype == torch.int64
    assert proof.radius.dtype == torch.float64
    assert proof.certified.dtype == torch.bool
    assert proof.prediction.shape == proof.radius.shape == proof.certified.shape == (40,)
    assert 0 < proof.certified.sum() < 40  # the next lines mean something
    assert (proof.radius[~proof.certified] < 2 / 255).all()
    assert (proof.radius[proof.certified] >= math.nextafter(2 / 255, 0)).all()


def test_the_box_proves_what_the_margin_proves_and_more(net):
    x = images(60, seed=4)
    for eps in (None, "1/100", "0.03"):
        margin, box = (ld.certify(net, x, eps, method=method) for method in ("margin", "box"))
        assert (box.radius >= margin.radius).all()
        assert box.radius.sum() > 1.01 * margin.radius.sum()
        if eps is not None:
            assert (box.certified >= margin.certified).all()


def test_radii_and_certified_agree(net):
    """Certified at every radius claimed, and not much beyond."""
    x = images(30, seed=5)
    radius = ld.certify(net, x, None).radius
    assert (radius > 0).any()
    for k in range(0, 30, 3):
        one = x[k : k + 1]
        assert ld.certify(net, one, radius[k].item(), radii=False).certified.item() == (radius[k] > 0)
        beyond = radius[k].item() * (1 + 2**-9) + 2**-13
        assert not ld.certify(net, one, beyond, radii=False).certified.item()


@pytest.mark.parametrize("method", ["margin", "box"])
def test_one_pass_only(net, method):
    x = images(30, seed=6)
    for eps in ("1/255", "0.05"):
        full, quick = (ld.certify(net, x, eps, method=method, radii=radii) for radii in (True, False))
        assert torch.equal(full.certified, quick.certified)
        assert (quick.radius <= full.radius).all()
        assert (quick.radius[quick.certified] >= math.nextafter(float(Fraction(eps)), 0)).all()


def test_labels_count(trained):
    net, x = trained
    proof = ld.certify(net, x, "0.01")
    wrong = (proof.prediction + 1) % 4
    assert not ld.certify(net, x, "0.01", y=wrong).certified.any()
    right = ld.certify(net, x, "0.01", y=proof.prediction.int())
    assert torch.equal(right.certified, proof.certified)
    assert torch.equal(ld.certify(net, x, "0.01", y=wrong).radius, proof.radius)


@pytest.mark.parametrize("method", ["margin", "box"])
def test_predict_abstains(net, method):
    x = images(40, seed=7)
    proof = ld.certify(net, x, "2/255", method=method)
    answer = ld.predict(net, x, "2/255", method=method)
    assert torch.equal(answer, torch.where(proof.certified, proof.prediction, -1))
    assert (answer == -1).any()
    assert (answer >= 0).any()


def test_chunks_do_not_matter(net, monkeypatch):
    """Plain nets to the bit; the bounds of a head may differ in their last bits, and a search with them."""
    x = images(23, seed=8)
    eps = torch.rand(23, 1, 3, 3, dtype=torch.float64) * 0.02
    whole, whole_box = ld.certify(net, x, "0.02"), ld.certify(net, x, eps)
    monkeypatch.setattr(proofs, "ROWS", 5)
    parts, parts_box = ld.certify(net, x, "0.02"), ld.certify(net, x, eps)
    assert torch.equal(whole.prediction, parts.prediction)
    assert torch.equal(whole.certified, parts.certified)
    assert torch.equal(whole_box.certified, parts_box.certified)
    assert 0 < whole_box.certified.sum() < 23
    torch.testing.assert_close(whole.radius, parts.radius, rtol=2**-9, atol=2**-13)
    if isinstance(net, ld.models.DistNet):
        assert torch.equal(whole.radius, parts.radius)


def test_large_activations_make_small_chunks():
    with torch.device("meta"):  # sizes alone
        small = ld.models.DistNet((1, 28, 28), 10, 5120, 5, [0.0], 1.0)
        conv = ld.models.ConvDistNetMLP((3, 32, 32), 10, 32, 4, [0.0] * 3, 1.0, head=4)
        wide = ld.models.ConvDistNetMLP((3, 32, 32), 10, 96, 3, [0.0] * 3, 1.0, head=4)
    assert proofs.rows_at_once(small) == proofs.ROWS
    assert proofs.rows_at_once(conv) == proofs.ELEMENTS // (32 * 32 * 32) == 512
    assert proofs.rows_at_once(wide) == proofs.ELEMENTS // (96 * 32 * 32) < proofs.ROWS


def test_an_empty_batch(net):
    proof = ld.certify(net, images(0), "0.1", y=torch.empty(0, dtype=torch.int64))
    assert proof.prediction.shape == proof.radius.shape == proof.certified.shape == (0,)
    assert ld.certify(net, images(0), None).certified is None


# --- eps ------------------------------------------------------------------------------------------


def test_all_ways_to_say_eps():
    net, x = two_classes(0.0, 1.0), torch.full((1, 1, 1, 1), 0.25)
    for eps in ("1/8", "0.125", 0.125, Fraction(1, 8), torch.tensor(0.125), torch.full((1, 1, 1, 1), 0.125)):
        assert ld.certify(net, x, eps).certified.item()
    for eps in ("1", 1, Fraction(1)):
        assert not ld.certify(net, x, eps).certified.item()
    for eps in ("8", 7.5, "1e5", Fraction(3), torch.tensor(8.0)):
        with pytest.raises(ValueError, match="1, on the 0–1 intensity scale"):
            ld.certify(net, x, eps)
    assert ld.certify(net, x, None).certified is None


def test_text_is_exact_and_a_float_is_its_binary_value():
    """The box reaches exactly the middle, a tie, for 1/10 from 4/10; the float 0.1 is a bit more than 1/10."""
    net = two_classes(0.0, 1.0).double()
    x = torch.full((1, 1, 1, 1), 0.4, dtype=torch.float64)  # a bit more than 4/10: 0.4 + 0.1 rounds to 1/2
    room = Fraction(1, 2) - Fraction(0.4)
    assert not ld.certify(net, x, room).certified.item()
    assert ld.certify(net, x, room * Fraction(10**15 - 1, 10**15)).certified.item()
    assert Fraction(0.1) > Fraction(1, 10) > room
    assert not ld.certify(net, x, "0.1").certified.item()


@pytest.mark.parametrize("text", ["8/255", "0.1", "1/3", "2/255", "0.3"])
def test_a_radius_never_exceeds_the_eps_it_was_proved_at(text):
    """Where only eps itself was tried, the claim is the largest float below it: no float is 8/255."""
    net, x = two_classes(0.0, 1.0), torch.full((1, 1, 1, 1), 0.05)
    proof = ld.certify(head_net(0), images(200, seed=1), text, radii=False)
    claims = set(proof.radius[proof.certified].tolist()) | set(ld.certify(net, x, text, radii=False).radius.tolist())
    for claim in claims - {ld.certify(net, x, None, method="margin").radius.item()}:
        assert Fraction(claim) <= Fraction(text) < Fraction(math.nextafter(claim, 1))


@pytest.mark.parametrize("method", ["margin", "box"])
def test_eps_zero_is_about_the_image_alone(method):
    net = two_classes(0.0, 1.0)
    x = torch.tensor([0.25, 0.5, 0.75, 0.5 - 2**-25])[:, None, None, None]  # the second ties, the last nearly does
    proof = ld.certify(net, x, 0, method=method)
    assert proof.certified.tolist() == [True, False, True, True]
    assert proof.radius[1] == 0


def test_pixels_may_differ_in_eps():
    """Only the first pixel decides; an eps that leaves it alone may be as large as it likes elsewhere."""
    net = ld.models.DistNet((1, 1, 2), 2, 1, 1, [0.0], 1.0).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.tensor([[-10.0, 0.5], [11.0, 0.5]]))
    x = torch.tensor([0.25, 0.25])[None, None, None]
    assert ld.certify(net, x, torch.tensor([0.2, 1.0])).certified.item()
    assert not ld.certify(net, x, torch.tensor([0.25, 0.0])).certified.item()  # ties at 1/2
    assert not ld.certify(net, x, "0.25").certified.item()
    both = ld.certify(net, x.expand(2, 1, 1, 2), torch.tensor([[0.2, 1.0], [0.3, 0.0]])[:, None, None])
    assert both.certified.tolist() == [True, False]
    assert torch.equal(both.radius, ld.certify(net, x.expand(2, 1, 1, 2), None).radius)


def test_float64_networks(net):
    x = images(30, seed=2)
    single, double = ld.certify(net, x, "0.01"), ld.certify(net.double(), x.double(), "0.01")
    torch.testing.assert_close(single.radius, double.radius, rtol=2**-8, atol=2**-12)
    assert (double.radius > 0).any()


def test_one_method_more_is_refused():
    with pytest.raises(ValueError, match=f"'alpha-crown': must be one of {', '.join(METHODS)}; did you mean crown\\?$"):
        ld.certify(random_net(0), images(1), None, method="alpha-crown")
    with pytest.raises(TypeError, match="a NearestClass has no linear bounds, so method 'box' is the best there is"):
        ld.certify(random_net(0), images(1), None, method="crown")
    with pytest.raises(TypeError, match=r"distances only, not for DistNetMLP"):
        ld.certify(head_net(0), images(1), None, method="milp")
