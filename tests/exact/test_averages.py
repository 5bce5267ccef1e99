"""Several neurons a class, means of blocks and clipped pixels, in whole numbers."""

import math
import random
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import linfdist as ld
from linfdist import exact
from linfdist.certificates import certify as certify_float
from linfdist.exact import network as network_module
from linfdist.exact import twin
from linfdist.exact.certificate import box_certified_at, certified_at
from linfdist.exact.freeze import compare
from linfdist.exact.stem import Pool, Stem
from linfdist.models import DistNet

from .averages import EVERYTHING, every_image, options, true_logits, whole_logits
from .conftest import made
from .nets import images, random_mlp, random_net

SHAPE = (2, 4, 5)


@pytest.fixture(scope="module")
def averaging(digits, tmp_path_factory):
    """A network that averages and clips wherever it can, and that has learned something."""
    changes = ["width=64", "epochs=8", "per_class=3", "pool=[1, 2, 4]", "clip=[0.05, 0.95]"]
    return made(digits, tmp_path_factory.mktemp("averaging") / "run", changes)


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), k=st.integers(0, 4), own=options, narrow=st.booleans())
def test_the_definition(seed, k, own, narrow, tmp_path_factory):
    """Many images at once, one alone, after loading, and by the twin: all as Python's whole numbers say; and no
    further from the float network in exact arithmetic than the distance.
    """
    net, x = random_net(seed, shape=SHAPE, width=6, depth=2, classes=3, **own), images(3, SHAPE, seed)
    ends = (x.amin(0), x.amax(0)) if narrow else None
    frozen, path = exact.freeze(net, k=k, domain=ends), tmp_path_factory.mktemp("net") / "net"
    exact.save(frozen, path)
    header, tensors, sha256 = twin.read(path)
    assert sha256 == frozen.sha256 == exact.load(path).sha256
    logits = frozen(x)
    for number, image in enumerate(x):
        expected = whole_logits(frozen, image.tolist())
        assert logits[number].tolist() == frozen(image[None])[0].tolist() == expected
        assert exact.load(path)(image[None])[0].tolist() == expected
        assert (-twin.bounds(header, tensors, image.numpy(), image.numpy())[0]).tolist() == expected
        for z, true in zip(expected, true_logits(net, image), strict=True):
            assert abs(Fraction(z, 255 * frozen.steps) - true) <= Fraction(frozen.facts["distance"])
    assert frozen.steps == 2**k * math.lcm(*(s * s for s in own["pool"])) * own["per_class"]


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), k=st.integers(0, 3), own=options)
def test_no_image_contradicts_a_certificate(seed, k, own):
    """All 2,401 images of a small domain: margin <= box <= truth for each of some images."""
    own = {**own, "crop": None, "pool": [size for size in own["pool"] if size < 3]}
    net = random_net(seed, shape=(1, 2, 2), width=6, depth=2, classes=3, **own)
    lower = torch.randint(249, (1, 2, 2), generator=torch.Generator().manual_seed(seed)).to(torch.uint8)
    frozen = exact.freeze(net, k=k, domain=(lower, lower + 6))
    every = every_image(lower, lower + 6)
    classes = frozen(every).argmax(1)
    some = every[torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))[:20]]
    for image, one, two in zip(
        some, exact.certificates(frozen, some, "margin"), exact.certificates(frozen, some), strict=True
    ):
        apart = (every.int() - image.int()).abs().flatten(1).amax(1)
        truth = int(apart[classes != one.prediction].min()) - 1 if (classes != one.prediction).any() else 255
        assert one.levels <= two.levels <= truth
        assert one.radius == Fraction(one.margin, 2 * frozen.steps)


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), k=st.integers(0, 3), own=options)
def test_images_between_the_levels_keep_their_class_too(seed, k, own):
    """Fractions within the closed ball, most of them at its corners, by the definition."""
    net, rng = random_net(seed, shape=(1, 4, 4), width=5, depth=2, classes=3, **own), random.Random(seed)
    frozen = exact.freeze(net, k=k)
    x = images(6, (1, 4, 4), seed)[:9]
    logits = frozen(x)
    for method in (certified_at, box_certified_at):
        for number, image in enumerate(x):
            for eps in (Fraction(rng.randrange(1, 60), 7 * 255), Fraction(1, 300)):
                best = logits[number].argmax()
                where = (frozen, logits[number][None]) if method is certified_at else (frozen, image[None], best[None])
                if not method(*where, eps).item():
                    continue
                for _ in range(6):
                    signs = [[[rng.choice([-1, 1, Fraction(1, 3)]) for _ in row] for row in c] for c in image.tolist()]
                    moved = [
                        [
                            [min(max(n + 255 * eps * sign, 0), 255) for n, sign in zip(*rows, strict=True)]
                            for rows in zip(*c, strict=True)
                        ]
                        for c in zip(image.tolist(), signs, strict=True)
                    ]
                    other = whole_logits(frozen, moved)
                    assert all(other[best] > z for c, z in enumerate(other) if c != best)


def test_the_worst_corner_is_tried(averaging):
    """Attacks through the float form find nothing within a certificate, and find much just beyond the truth."""
    x, y = averaging.images[:60], averaging.labels[:60]
    proof = ld.certify(averaging.frozen, x, "0.1", y)
    for eps in (Fraction(1, 10), Fraction(3, 10)):
        found = ld.attacks.PGD()(averaging.frozen, x, y, eps)
        right = averaging.frozen(x).argmax(1) == y
        assert not (found.broken & right & (found.size <= proof.radius)).any()
        assert (found.broken & right).any()


def test_accuracy_stays(averaging):
    result = compare(averaging.network, averaging.frozen, averaging.images, averaging.labels, Fraction(1, 10))
    assert result.clean[0] > 225
    assert result.certified[0] > 45
    assert abs(result.clean[0] - result.clean[1]) <= 2
    assert abs(result.certified[0] - result.certified[1]) <= 2
    pixels = averaging.frozen(averaging.images).double() / (255 * averaging.frozen.steps)
    floats = averaging.network(averaging.images.float() / 255).double() * averaging.frozen.facts["std"]
    assert 0 < (pixels - floats).abs().max().item() <= averaging.frozen.facts["distance"] < 0.003


def test_boxes_prove_what_float_boxes_prove(averaging):
    """Up to rounding: clipped pixels are points for both, which the margin does not see."""
    x, y = averaging.images, averaging.labels
    floats = certify_float(averaging.network, x.float() / 255, "0.1", y, radii=False).certified
    whole = ld.certify(averaging.frozen, x, "0.1", y, radii=False).certified
    assert int((floats != whole).sum()) <= 3
    margin = ld.certify(averaging.frozen, x, "0.1", y, method="margin").certified
    assert int(whole.sum()) > int(margin.sum())
    assert not (margin & ~whole).any()


def test_a_tie_of_sums_proves_nothing():
    """The neurons differ, their sums do not."""
    net = DistNet((1, 1, 1), 2, 1, 1, [0.0], 1.0, per_class=2).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.tensor([[0.0], [20.0], [20.0], [0.0]]) / 255)
        net.last.bias.copy_(torch.tensor([3.0, 5.0, 8.0, 0.0]) / 255)
    frozen = exact.freeze(net, k=1)
    for method in ("margin", "box"):
        proofs = exact.certificates(frozen, torch.tensor([10, 0], dtype=torch.uint8).view(-1, 1, 1, 1), method)
        assert [(proof.margin, proof.levels, proof.prediction) for proof in proofs] == [(0, 0, 0)] * 2


def test_ranges_beyond_16_bits_go_to_32():
    net = random_net(0, shape=(1, 8, 8), width=8, depth=2, pool=[1, 2, 4, 8])
    wide, x = exact.freeze(net, k=3), images(20, (1, 8, 8))
    assert {layer.weight.dtype for layer in wide.layers} == {torch.int32}
    assert wide.stem(x).dtype == torch.int32
    assert int(wide.stem(x).max()) == 255 * 512
    assert wide(x)[3].tolist() == whole_logits(wide, x[3].tolist())
    far = exact.freeze(random_net(0, shape=(1, 7, 7), width=8, depth=2, pool=[2, 3, 5, 7]))
    assert far.stem.steps == 44100
    assert far(x[:, :, :7, :7])[3].tolist() == whole_logits(far, x[3, :, :7, :7].tolist())


def test_what_does_not_fit_32_bits_is_refused():
    with pytest.raises(ValueError, match="pool by fewer sizes"):
        exact.freeze(random_net(0, shape=(1, 13, 13), width=8, depth=2, pool=[5, 7, 11, 13]))
    with pytest.raises(ValueError, match=r"means of blocks of \[2, 3\] pixels are whole numbers times 9"):
        Pool((2, 3), 9)
    with pytest.raises(ValueError, match=r"pixels are clipped to \(3, 600\), expected 0 <= low <= high <= 510"):
        Stem(1, clip=(3, 600))
    net = random_net(0, per_class=30000)
    with torch.no_grad():
        net.last.bias.add_(300.0)
    with pytest.raises(ValueError, match="sums of 30000 neurons reach"):
        exact.freeze(net, k=2)


def test_bounds_on_the_grid_cost_nothing():
    """76.5 levels are whole steps for k = 1, and are rounded for k = 0; blocks of 8 take all of the grid."""
    net = random_net(1, shape=(1, 8, 8), width=6, depth=2, clip=(0.3, 0.7))
    assert exact.freeze(net, k=1).stem.clip == (153, 357)
    assert exact.freeze(net, k=0).stem.clip == (77, 178)
    pooled = random_net(1, shape=(1, 8, 8), width=6, depth=2, clip=(0.3, 0.7), pool=[8, 2])
    assert exact.freeze(pooled).stem == Stem(0, clip=(77, 178), pool=Pool((8, 2), 64))
    near, far = (exact.freeze(pooled, k=k).facts["distance"] for k in (1, 0))
    assert far - near > 0.4 / 255  # half a level


@pytest.mark.parametrize("own", [{"clip": (0.3, 0.7)}, {"clip": (0.3, 0.7), "per_class": 3}, {"per_class": 3}], ids=str)
def test_8_bits_where_they_suffice(monkeypatch, own):
    """Clipped pixels vary less: two steps a level fit, where whole levels would be needed otherwise."""
    monkeypatch.setattr(network_module, "SIDED_BELOW", 2.0)  # random weights are hardly pruned
    net = random_net(2, shape=(1, 6, 6), width=40, depth=3, **own)
    frozen, x = exact.freeze(net, k=1 if "clip" in own else 0), images(300, (1, 6, 6))
    assert frozen.in_bytes
    assert frozen._chain is not None
    assert torch.equal(frozen(x), torch.cat([frozen(image[None]) for image in x]))
    assert not exact.freeze(net, k=2).in_bytes


@pytest.mark.parametrize("own", [{"pool": [2, 4]}, {}, {"crop": 6}, {"clip": (0.1, 0.8)}], ids=str)
@pytest.mark.parametrize("narrow", [False, True])
def test_16_bits_for_wide_weights(monkeypatch, own, narrow):
    """Weights far from the inputs need 32 bits; how far outputs vary does not."""
    monkeypatch.setattr(network_module, "SIDED_BELOW", 2.0)
    net, x = random_net(2, shape=(1, 8, 8), width=40, depth=3, **own), images(300, (1, 8, 8))
    ends = torch.randint(90, (1, 8, 8)).to(torch.uint8), torch.randint(160, 256, (1, 8, 8)).to(torch.uint8)
    x = torch.maximum(torch.minimum(x, ends[1]), ends[0]) if narrow else x
    with torch.no_grad():
        next(layer for layer in net.body if hasattr(layer, "in_features")).weight.sub_(10)
    frozen = exact.freeze(net, k=3 if "pool" in own else 6, domain=ends if narrow else None)
    assert frozen.layers[0].weight.dtype == torch.int32
    assert frozen._chain.sides.weight.dtype == torch.int16
    assert torch.equal(frozen(x), torch.cat([frozen(image[None]) for image in x]))


def test_a_head_follows_stems():
    net = random_mlp(3, shape=(1, 4, 4), pool=[1, 2], clip=(0.2, 0.8), crop=3)
    frozen, x = exact.freeze(net), images(50, (1, 4, 4))
    assert (frozen(x) - net(x / 255)).abs().max().item() <= frozen.facts["distance"] < 0.05
    assert [layer.weight.dtype for layer in frozen.layers] == [torch.int16] * 2


@pytest.mark.parametrize("own", [EVERYTHING, {"per_class": 2}, {"clip": (0.0, 0.5)}, {"pool": [3, 1]}], ids=str)
def test_the_float_form(own):
    frozen = exact.freeze(random_net(4, shape=SHAPE, width=6, depth=2, **own), k=3)
    x = images(20, SHAPE)
    floats = exact.as_floats(frozen)(x / 255).double() * 255 * frozen.steps
    assert (floats - frozen(x)).abs().max() < 1e-3 * 255 * frozen.steps


def test_a_mean_of_networks_is_refused_in_words():
    with pytest.raises(TypeError, match="each of its members has"):
        exact.freeze(ld.models.Mean([random_net(0), random_net(1)]))
    with pytest.raises(TypeError, match="a MeanLogits has no form on top of integers"):
        exact.freeze(ld.models.Mean([random_mlp(0), random_mlp(1)]))
