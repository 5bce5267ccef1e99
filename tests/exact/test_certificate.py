"""What is proved holds for every image, and the twin says the same."""

import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linfdist import exact
from linfdist.certificates import certify as certify_float
from linfdist.exact import twin
from linfdist.exact.certificate import box_holds, certified_at, gaps
from linfdist.models import DistNet

from .nets import TwoPixels, images, random_net


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), k=st.integers(0, 6), narrow=st.booleans())
def test_no_image_contradicts_a_certificate(seed, k, narrow):
    """All 65,536 images of two pixels: margin <= box <= truth, for each image that is looked at."""
    net = random_net(seed, shape=(1, 1, 2), width=6, depth=2, classes=3)
    all_images = TwoPixels.of(net, k, seed, narrow)
    frozen, some = all_images.frozen, all_images.some
    for image, one, two in zip(
        some, exact.certificates(frozen, some, "margin"), exact.certificates(frozen, some), strict=True
    ):
        truth = all_images.steady_levels(image)
        assert one.prediction == two.prediction == all_images.classes[tuple(image.flatten().tolist())]
        assert 0 <= one.levels <= two.levels <= truth
        assert one.levels == min(255, max(0, math.ceil(one.radius) - 1))  # closer than the radius, which is open
        assert two.radius == two.levels


def test_box_levels_are_the_largest_that_intervals_prove(trained):
    some = trained.images[:40]
    proofs = exact.certificates(trained.frozen, some)
    predictions = torch.tensor([proof.prediction for proof in proofs])
    levels = torch.tensor([proof.levels for proof in proofs])
    assert (levels > 0).any()
    assert box_holds(trained.frozen, some, predictions, levels)[levels > 0].all()
    assert not box_holds(trained.frozen, some, predictions, levels + 1)[levels < 255].any()


def test_the_float_certificate_agrees_up_to_the_distance(trained):
    """Half the gap moves by at most the distance; the float radius loses a little more to its own rounding."""
    radius = certify_float(trained.network, trained.images.float() / 255, None, method="margin").radius
    proofs = exact.certificates(trained.frozen, trained.images, "margin")
    same = torch.tensor([float(proof.radius) / 255 for proof in proofs], dtype=torch.float64)
    assert (same - radius).abs().max() <= trained.frozen.facts["distance"] + 1e-5


def test_certified_at_is_strict():
    """The closed ball: at exactly half the gap nothing is proved."""
    frozen = exact.freeze(random_net(0), k=3)
    logits = torch.tensor([[100, 0, -5, -9], [101, 0, 0, 0], [7, 7, 0, 0]], dtype=torch.int32)
    assert gaps(logits).tolist() == [100, 101, 0]
    half = Fraction(50, 255 * 8)
    assert certified_at(frozen, logits, half).tolist() == [False, True, False]
    assert certified_at(frozen, logits, half - Fraction(1, 10**12)).tolist() == [True, True, False]
    assert certified_at(frozen, logits, Fraction(0)).tolist() == [True, True, False]


def test_a_tie_proves_nothing():
    net = random_net(1, classes=2)
    with torch.no_grad():
        net.last.weight[1], net.last.bias[1] = net.last.weight[0], net.last.bias[0]
    for method in ("margin", "box"):
        (proof,) = exact.certificates(exact.freeze(net), images(0)[:1], method)
        assert (proof.margin, proof.levels, proof.radius, proof.prediction) == (0, 0, 0, 0)


def test_unknown_methods_are_refused(trained):
    with pytest.raises(ValueError, match=r"method = 'milp': .* certified by margin or box"):
        exact.certificates(trained.frozen, trained.images[:1], "milp")


@given(seed=st.integers(0, 10**6), k=st.integers(0, 6))
@settings(max_examples=10)
def test_the_twin_agrees(seed, k, tmp_path_factory):
    """With a crop, three channels, a domain, and some layers in int32."""
    net = random_net(seed, shape=(3, 4, 5), crop=3)
    with torch.no_grad():
        net.last.weight.mul_(1 + 200 * (seed % 2))
    x = images(3, (3, 4, 5), seed)
    domain = (x.amin(0), x.amax(0)) if seed % 3 else None
    frozen = exact.freeze(net, k=k, domain=domain)
    file = tmp_path_factory.mktemp("twin") / "net"
    exact.save(frozen, file)
    for method in ("margin", "box"):
        for image, proof in zip(x, exact.certificates(frozen, x, method), strict=True):
            exact.verify(json.loads(json.dumps(proof.json())), image.numpy(), file)


@pytest.fixture(params=["margin", "box"])
def proof(request, trained) -> dict:
    return exact.certificates(trained.frozen, trained.images[:1], request.param)[0].json()


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
        ("margin", lambda m: m + 1),
        ("margin", lambda m: m - 1),
        ("method", lambda m: {"box": "margin", "margin": "box"}[m]),
        ("method", "milp"),
        ("radius", lambda r: str(Fraction(r) + Fraction(1, 1000))),
        ("radius", lambda r: f"{r}.0"),
        ("ball", lambda b: {"open": "closed", "closed": "open"}[b]),
        ("levels", lambda n: n + 1),
        ("levels", lambda n: n - 1),
        ("levels", lambda n: str(n)),
        ("levels", True),
        ("domain_sha256", "0" * 64),
    ],
)
def test_changed_certificates_are_refused(trained, proof, key, change):
    exact.verify(proof, trained.images[0].numpy(), trained.file)  # as it is, it holds
    changed = {**proof, key: change(proof[key]) if callable(change) else change}
    with pytest.raises(ValueError, match=key if key != "method" else "method|levels|radius|ball"):
        exact.verify(changed, trained.images[0].numpy(), trained.file)


def test_entries_are_neither_missing_nor_added(trained, proof):
    image = trained.images[0].numpy()
    for key in proof:
        with pytest.raises(ValueError, match=key):
            exact.verify({k: v for k, v in proof.items() if k != key}, image, trained.file)
    with pytest.raises(ValueError, match="unknown entry 'note'"):
        exact.verify({**proof, "note": "certified to 255 levels"}, image, trained.file)


def test_other_images_are_refused(trained, proof):
    other = trained.images[0].clone()
    other[0, 3, 3] += 1
    with pytest.raises(ValueError, match="certificate says"):
        exact.verify(proof, other.numpy(), trained.file)
    with pytest.raises(ValueError, match=r"the network takes uint8 \(1, 8, 8\)"):
        exact.verify(proof, trained.images[0, 0].numpy(), trained.file)
    with pytest.raises(ValueError, match="the image is float32"):
        exact.verify(proof, trained.images[0].float().numpy(), trained.file)


def test_a_domain_is_part_of_the_certificate(trained, tmp_path):
    image = trained.images[0]
    dark = exact.freeze(trained.network, k=trained.frozen.k, domain=(torch.zeros_like(image), image))
    exact.save(dark, tmp_path / "dark")
    (proof,) = exact.certificates(dark, image[None])
    (free,) = exact.certificates(trained.frozen, image[None])
    assert proof.domain is not None
    assert free.domain is None
    assert proof.levels >= free.levels  # fewer images to speak about
    exact.verify(proof.json(), image.numpy(), tmp_path / "dark")
    with pytest.raises(ValueError, match=r"domain_sha256: .* says None"):
        exact.verify({**proof.json(), "domain_sha256": None}, image.numpy(), tmp_path / "dark")
    with pytest.raises(ValueError, match="certificate says"):
        exact.verify(proof.json(), image.numpy(), trained.file)  # the network without a domain
    bright = image.clone()
    bright[image == image.max()] += 0 if image.max() == 255 else 1
    bright[image == 0] = 1
    with pytest.raises(ValueError, match="outside the network's domain"):
        exact.verify(proof.json(), bright.numpy(), tmp_path / "dark")


def test_the_twin_needs_numpy_alone(trained, tmp_path):
    """It is loaded from its file, where neither torch nor linfdist can be imported."""
    (proof,) = exact.certificates(trained.frozen, trained.images[:1])
    code = """
import importlib.util, json, sys
import numpy as np
sys.modules["torch"] = sys.modules["linfdist"] = sys.modules["safetensors"] = None
spec = importlib.util.spec_from_file_location("twin", sys.argv[1])
twin = importlib.util.module_from_spec(spec)
spec.loader.exec_module(twin)
proof = json.loads(sys.argv[2])
image = np.array(json.loads(sys.argv[3]), np.uint8)
twin.verify(proof, image, sys.argv[4])
try:
    twin.verify({**proof, "margin": proof["margin"] + 1}, image, sys.argv[4])
except ValueError as error:
    print(error)
"""
    arguments = [twin.__file__, json.dumps(proof.json()), json.dumps(trained.images[0].tolist()), str(trained.file)]
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert run.stdout == f"margin: the certificate says {proof.margin + 1}, it is {proof.margin}\n"
    assert sum(bool(line.strip()) for line in Path(twin.__file__).read_text().splitlines()) <= 380


def test_by_hand(tmp_path):
    """One pixel, classes at the distances |x| and |x - 200|: they tie at 100, where the first class wins."""
    net = DistNet((1, 1, 1), 2, 1, 1, [0.0], 1.0).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.tensor([[0.0], [200 / 255]]))
    x = torch.full((1, 1, 1, 1), 150, dtype=torch.uint8)
    frozen = exact.freeze(net, k=0)
    assert frozen(x).tolist() == [[-150, -50]]
    for method, radius in (("margin", 50), ("box", 49)):  # open and closed: 101 is the last of its class
        (proof,) = exact.certificates(frozen, x, method)
        assert (proof.prediction, proof.margin, proof.radius, proof.levels) == (1, 100, radius, 49)
    bright = exact.freeze(net, k=0, domain=(torch.full_like(x[0], 101), torch.full_like(x[0], 255)))
    (proof,) = exact.certificates(bright, x)
    assert proof.levels == 255  # there is no image of the other class
    exact.save(bright, tmp_path / "net")
    exact.verify(proof.json(), x[0].numpy(), tmp_path / "net")
    with pytest.raises(ValueError, match="levels: the certificate says 254, the network's intervals prove more"):
        exact.verify({**proof.json(), "levels": 254, "radius": "254"}, x[0].numpy(), tmp_path / "net")
