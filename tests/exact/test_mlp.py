"""Networks with a head: integers up to the features, then float64; what is proved holds for every image."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linfdist import exact
from linfdist.bounds.head import head_bounds
from linfdist.exact import twin
from linfdist.exact.certificate import box_certified_at, box_holds
from linfdist.exact.file import contents
from linfdist.exact.freeze import compare
from linfdist.exact.stem import Stem
from linfdist.models.folded import fold_network
from linfdist.nn import DistLinear

from .nets import TwoPixels, exact_head, exact_outputs, images, random_mlp, random_net, reference


def float_head(net) -> exact.FrozenHead:
    """The float network's head itself, on its own features."""
    bounds = head_bounds(net.head)
    return exact.FrozenHead(bounds.w1, bounds.b1, bounds.w2, bounds.b2)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), k=st.integers(0, 7), depth=st.integers(1, 3), mean_shift=st.booleans())
def test_distance_to_the_network_in_exact_arithmetic(seed, k, depth, mean_shift):
    net = random_mlp(seed, shape=(2, 2, 2), width=5, depth=depth, mean_shift=mean_shift)
    frozen = exact.freeze(net, k=k)
    x = images(2, (2, 2, 2), seed)
    # rounding of the grid alone: half a unit a layer, through the head; no room for a wrong shift or scale
    head = float_head(net)
    moved = Fraction(depth, 2 * 255 * 2**k) / Fraction(fold_network(net, logits=False).std)
    bound = float(moved) * (head.w1.abs().sum(1) @ head.w2.abs().T).max().item() + 1e-9
    for image, logits in zip(x, frozen(x), strict=True):
        true = exact_head(head, exact_outputs(net.body, image))
        for z, value in zip(logits.tolist(), true, strict=True):
            assert abs(Fraction(z) - value) <= min(bound, Fraction(frozen.facts["distance"]))


def test_distance_to_the_float_network_on_all_images(trained_mlp):
    frozen = trained_mlp.frozen
    there = trained_mlp.network(trained_mlp.images.float() / 255).double()
    seen = (frozen(trained_mlp.images) - there).abs().max().item()
    assert 0 < seen <= frozen.facts["distance"] < 1
    fine, coarse = (exact.freeze(trained_mlp.network, k=k) for k in (7, 0))
    assert fine.facts["distance"] < coarse.facts["distance"] / 20  # the grid's share falls by 128
    assert (coarse(trained_mlp.images) - there).abs().max() <= coarse.facts["distance"]


def test_a_saturated_head_is_not_further_than_two_tanhs():
    """Weights of 1e6 before the tanh: its values differ by 2 at most."""
    net = random_mlp(0)
    with torch.no_grad():
        net.head.hidden.weight.mul_(1e6)
    largest = float_head(net).w2.abs().sum(1).max().item()
    assert 1.9 * largest < exact.freeze(net, k=2).facts["distance"] < 2.1 * largest


@given(seed=st.integers(0, 10**6), k=st.integers(0, 7), narrow=st.booleans())
def test_features_keep_every_bit(seed, k, narrow):
    """Pruned = unpruned, with int16 and int32, all features in their order; the engine = the reference."""
    net = random_mlp(seed, depth=1 + seed % 3)
    x = images(20, seed=seed)
    domain = (x.amin(0), x.amax(0)) if narrow else None
    frozen = exact.freeze(net, k=k, domain=domain)
    std = fold_network(net, logits=False).std
    y, offset = Stem(k)(x).double(), -torch.full((9,), 0.2).double()
    for layer in net.body:
        if isinstance(layer, DistLinear):
            weight = ((std * layer.weight.detach().double() - offset) * 255 * 2**k).round()
            y, offset = (y[:, None] - weight).abs().amax(2), torch.zeros(7)
        elif hasattr(layer, "running_mean"):
            offset = -std * layer.running_mean.double()
    assert frozen.features(x).dtype == torch.int32
    assert torch.equal(frozen.features(x).double(), y)
    assert torch.equal(frozen.features(x), -reference(frozen, x))
    assert torch.equal(frozen.features(x[:1]), frozen.features(x)[:1])
    assert frozen(x).dtype == torch.float64
    assert ((frozen(x) - frozen.head(frozen.features(x))).abs() <= 2 * frozen.head.error(frozen.features(x))).all()
    assert frozen(x[:0]).shape == (0, 4)


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), k=st.integers(0, 6), narrow=st.booleans())
def test_no_image_contradicts_a_certificate(seed, k, narrow):
    """All 65,536 images of two pixels: what is proved is true."""
    net = random_mlp(seed, shape=(1, 1, 2), width=6, depth=2, classes=3)
    all_images = TwoPixels.of(net, k, seed, narrow)
    frozen, some = all_images.frozen, all_images.some
    for image, proof in zip(some, exact.certificates(frozen, some), strict=True):
        assert proof.prediction == all_images.classes[tuple(image.flatten().tolist())]
        assert 0 <= proof.levels <= all_images.steady_levels(image)
        assert (proof.margin, proof.method, proof.ball, proof.radius) == (None, "box", "closed", proof.levels)


def test_no_sample_contradicts_a_certificate(trained_mlp):
    """Random images, corners, and steps along the gradient within what is proved."""
    some, frozen = trained_mlp.images[:30], trained_mlp.frozen
    proofs = exact.certificates(frozen, some)
    levels = torch.tensor([proof.levels for proof in proofs])
    classes = torch.tensor([proof.prediction for proof in proofs])
    assert (levels > 10).sum() > 15
    x = (some.float() / 255).requires_grad_()
    loss = torch.nn.functional.cross_entropy(trained_mlp.network(x, 8.0), classes)
    (gradient,) = torch.autograd.grad(loss, x)
    spread = levels[:, None, None, None]
    signs = [gradient.sign().long(), *torch.randint(-1, 2, (40, *some.shape))]
    steps = [sign * spread for sign in signs] + [(torch.rand(some.shape) * (2 * spread + 1)).long() - spread]
    for step in steps:
        assert step.abs().amax((1, 2, 3)).le(levels).all()
        attacked = (some.long() + step).clamp(0, 255).to(torch.uint8)
        assert torch.equal(frozen(attacked).argmax(1), classes)
    beyond = (some.long() + 255 * signs[0]).clamp(0, 255).to(torch.uint8)
    assert (frozen(beyond).argmax(1) != classes).any()  # the gradient does attack


def test_levels_are_the_largest_that_the_search_meets(trained_mlp):
    some = trained_mlp.images[:40]
    proofs = exact.certificates(trained_mlp.frozen, some)
    classes, levels = (torch.tensor([getattr(each, name) for each in proofs]) for name in ("prediction", "levels"))
    assert box_holds(trained_mlp.frozen, some, classes, levels).all()
    assert not box_holds(trained_mlp.frozen, some, classes, levels + 1)[levels < 255].any()


def test_box_certified_at_rounds_the_ball_up(trained_mlp):
    """The closed ball of real images: between n and n + 1 units of the grid, n + 1 count."""
    some, frozen = trained_mlp.images[:20], trained_mlp.frozen
    proofs = exact.certificates(frozen, some)
    classes = torch.tensor([proof.prediction for proof in proofs])
    for row, proof in enumerate(proofs):
        at = [
            bool(box_certified_at(frozen, some[row : row + 1], classes[row : row + 1], Fraction(levels, 255)))
            for levels in (proof.levels, proof.levels + Fraction(1, 10**9), proof.levels + 1)
        ]
        assert at[0]
        assert proof.levels == 255 or not at[2]
        unit = Fraction(1, 2**frozen.k)
        same = box_certified_at(frozen, some[row : row + 1], classes[row : row + 1], (proof.levels + unit) / 255)
        assert at[1] == bool(same)


def test_accuracy_stays(trained_mlp):
    """The frozen network lacks CROWN, so it proves a little less than the float one, and never more than its truth."""
    result = compare(trained_mlp.network, trained_mlp.frozen, trained_mlp.images, trained_mlp.labels, Fraction(1, 10))
    assert (result.method, result.n) == ("box", 450)
    assert result.clean[0] > 300
    assert abs(result.clean[0] - result.clean[1]) <= 2
    assert result.certified[0] > 200
    assert result.certified[0] - 30 <= result.certified[1] <= min(result.certified[0] + 2, result.clean[1])


def test_only_boxes(trained_mlp):
    with pytest.raises(ValueError, match="this exact network is certified by box"):
        exact.certificates(trained_mlp.frozen, trained_mlp.images[:1], "margin")
    with pytest.raises(ValueError, match="method = 'milp': this exact network is certified by box"):
        exact.certificates(trained_mlp.frozen, trained_mlp.images[:1], "milp")


def tied(net):
    """Classes 0 and 1 are the same."""
    with torch.no_grad():
        net.head.output.weight[1], net.head.output.bias[1] = net.head.output.weight[0], net.head.output.bias[0]
        net.head.output.bias[:2] += 100
    return net


def test_a_tie_has_no_certificate(tmp_path):
    """Nor does the twin accept one that claims nothing but the class."""
    frozen = exact.freeze(tied(random_mlp(0)))
    exact.save(frozen, tmp_path / "net")
    x = images(3)
    clear = exact.freeze(random_mlp(0))
    proof = exact.certificates(clear, x[:1])[0]
    with pytest.raises(exact.Undecided, match="image 0: its two best logits are closer") as caught:
        exact.certificates(frozen, x)
    assert caught.value.image == 0
    forged = replace(proof, model=frozen.sha256, prediction=0, steps=frozen.steps, levels=0, radius=Fraction(0)).json()
    for claim in (0, 1):
        with pytest.raises(ValueError, match="levels"):
            exact.verify({**forged, "class": claim}, x[0].numpy(), tmp_path / "net")


def test_the_first_image_without_a_class_is_named():
    """The others are fine: class 2 wins where the head's first hidden neuron is on."""
    net = random_mlp(3)
    frozen = exact.freeze(net)
    x = images(10)
    features = frozen.features(x).double()
    w1 = torch.zeros(1, 7, dtype=torch.float64)
    w1[0, 0] = 1.0
    at = features[4, 0]  # between both classes at the value of image 4
    head = exact.FrozenHead(w1, -at[None], torch.tensor([[1.0], [-1.0]]).double(), torch.zeros(2).double())
    same = features[:, 0] == at
    with pytest.raises(exact.Undecided) as caught:
        exact.certificates(replace(frozen, head=head), x)
    assert caught.value.image == int(same.nonzero()[0])
    assert len(exact.certificates(replace(frozen, head=head), x[~same])) == int((~same).sum())


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), k=st.integers(0, 6))
def test_the_twin_agrees(seed, k, tmp_path_factory):
    """With a crop, three channels, a domain, and some layers in int32."""
    net = random_mlp(seed, shape=(3, 4, 5), crop=3)
    with torch.no_grad():
        next(layer for layer in net.body if isinstance(layer, DistLinear)).weight.mul_(1 + 200 * (seed % 2))
    x = images(3, (3, 4, 5), seed)
    domain = (x.amin(0), x.amax(0)) if seed % 3 else None
    frozen = exact.freeze(net, k=k, domain=domain)
    file = tmp_path_factory.mktemp("twin") / "net"
    exact.save(frozen, file)
    again = exact.load(file)
    for image, proof, same in zip(x, exact.certificates(frozen, x), exact.certificates(again, x), strict=True):
        assert proof == same
        exact.verify(json.loads(json.dumps(proof.json())), image.numpy(), file)


@pytest.fixture
def proof(trained_mlp) -> dict:
    proof = exact.certificates(trained_mlp.frozen, trained_mlp.images[:1])[0].json()
    assert 0 < proof["levels"] < 254
    return proof


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("format", "linfdist-certificate-2"),
        ("image_sha256", "0" * 64),
        ("image_shape", [8, 8]),
        ("model_sha256", "0" * 64),
        ("class", lambda c: (c + 1) % 10),
        ("class", lambda c: float(c)),
        ("grid", "1/1020 pixel"),
        ("margin", 0),
        ("margin", 1000),
        ("method", "margin"),
        ("method", "milp"),
        ("radius", lambda r: str(int(r) + 1)),
        ("radius", lambda r: str(int(r) - 1)),
        ("ball", "open"),
        ("levels", lambda n: n + 1),
        ("levels", 255),
        ("levels", 256),
        ("levels", -1),
        ("levels", None),
        ("levels", True),
        ("domain_sha256", "0" * 64),
    ],
)
def test_changed_certificates_are_refused(trained_mlp, proof, key, change):
    exact.verify(proof, trained_mlp.images[0].numpy(), trained_mlp.file)  # as it is, it holds
    changed = {**proof, key: change(proof[key]) if callable(change) else change}
    with pytest.raises(ValueError, match=key):
        exact.verify(changed, trained_mlp.images[0].numpy(), trained_mlp.file)
    for entries in ({k: v for k, v in proof.items() if k != key}, {**proof, "note": "certified to 255 levels"}):
        with pytest.raises(ValueError, match=f"{key}|note"):
            exact.verify(entries, trained_mlp.images[0].numpy(), trained_mlp.file)


def test_the_twin_demands_a_proof_but_not_the_largest(trained_mlp, proof):
    image = trained_mlp.images[0].numpy()
    for levels in (0, 1, proof["levels"] - 1):
        exact.verify({**proof, "levels": levels, "radius": str(levels)}, image, trained_mlp.file)
    more = proof["levels"] + 1
    with pytest.raises(ValueError, match="which the network's intervals do not prove"):
        exact.verify({**proof, "levels": more, "radius": str(more)}, image, trained_mlp.file)


def test_other_images_and_networks_are_refused(trained_mlp, trained, proof):
    other = trained_mlp.images[0].clone()
    other[0, 3, 3] += 1
    with pytest.raises(ValueError, match="certificate says"):
        exact.verify(proof, other.numpy(), trained_mlp.file)
    with pytest.raises(ValueError, match="certificate says"):
        exact.verify(proof, trained_mlp.images[0].numpy(), trained.file)
    (plain,) = exact.certificates(trained.frozen, trained.images[:1], "margin")
    with pytest.raises(ValueError, match="method"):
        exact.verify(plain.json(), trained.images[0].numpy(), trained_mlp.file)


def test_files_hold_the_head(trained_mlp):
    again = exact.load(trained_mlp.file)
    assert again.sha256 == trained_mlp.frozen.sha256 == twin.read(trained_mlp.file)[2]
    for name, tensor in trained_mlp.frozen.head.tensors().items():
        assert torch.equal(getattr(again.head, name), tensor)
    assert torch.equal(again.features(trained_mlp.images), trained_mlp.frozen.features(trained_mlp.images))
    header, _ = contents(trained_mlp.frozen)
    assert header["format"] == "linfdist-exact-head-1"


def test_files_without_a_head_are_as_before():
    header, tensors = contents(exact.freeze(random_net(0), k=3))
    assert header["format"] == "linfdist-exact-1"
    assert list(header) == ["format", "k", "shape", "crop", "layers", "facts"]
    assert set(tensors) == {"lower", "upper"} | {f"{i}.{part}" for i in range(3) for part in ("mask", "weight", "bias")}


def test_a_head_must_fit_the_features(trained_mlp):
    frozen = trained_mlp.frozen
    head = replace(frozen.head, w1=frozen.head.w1[:, 1:])
    with pytest.raises(ValueError, match="the head takes 47 features, the last layer has 48"):
        replace(frozen, head=head)
    one = replace(frozen.head, w2=frozen.head.w2[:1], b2=frozen.head.b2[:1])
    with pytest.raises(ValueError, match="one class"):
        replace(frozen, head=one)
