"""The page computes the engine's integers, and its certificates are the engine's, to the last entry."""

import json

import pytest
import torch

from linfdist import data, exact, load
from linfdist.exact import FrozenNet, freeze
from linfdist.export.html import page as page_text

from ..exact.nets import images, random_mlp, random_net
from .engine import run

ZOO = {"mnist-0.3": "mnist", "fashion-0.1": "fashion", "cifar10-8_255-512": "cifar10"}


def assert_same(page, network: FrozenNet, pixels, folder, proofs: int) -> None:
    found = run(page, network, pixels, folder, proofs)
    assert torch.equal(torch.tensor(found["logits"]), network(pixels))
    assert found["proofs"] == [proof.json() for proof in exact.certificates(network, pixels[:proofs])]


def test_mnist(opened, frozen, mnist, mnist_page, tmp_path):
    page = opened(mnist_page)
    assert_same(page, frozen, mnist.images[:300], tmp_path, proofs=30)


def test_random_networks(opened, mnist_page, tmp_path):
    """Shapes, grids, crops, domains and 32-bit layers; black, white and random images, and corners of the cube."""
    page = opened(mnist_page)
    for seed in range(20):
        torch.manual_seed(seed)
        shape = ((1, 3, 3), (3, 4, 5), (1, 1, 9), (3, 2, 2))[seed % 4]
        crop = {"crop": 2} if seed % 8 == 1 else {}
        network = random_net(seed, shape, width=5 + 3 * seed, depth=1 + seed % 4, classes=2 + seed % 5, **crop)
        ends = torch.randint(256, (2, *shape)).sort(0).values.to(torch.uint8)
        domain = (ends[0], ends[1]) if seed % 3 == 2 else None
        frozen = freeze(network, k=seed % 8, domain=domain)
        pixels = images(12, shape, seed)
        if domain is not None:
            pixels = torch.minimum(torch.maximum(pixels, ends[0]), ends[1])
        assert_same(page, frozen, pixels, tmp_path, proofs=len(pixels))


AVERAGING = [
    {"pool": [2]}, {"pool": [1, 2, 3]}, {"clip": [0.2, 0.7]}, {"per_class": 3},
    {"pool": [1, 2], "clip": [0.1, 0.9], "per_class": 5, "crop": 4},
]  # fmt: skip


def test_networks_that_average(opened, mnist_page, tmp_path):
    """Means of blocks, clipped pixels and several neurons a class are sums of integers, here as there."""
    page = opened(mnist_page)
    for seed, options in enumerate(AVERAGING):
        shape = (1 + 2 * (seed % 2), 5, 6)
        network = freeze(random_net(seed, shape, width=6 + seed, depth=2, classes=3, **options), k=seed % 4)
        pixels = images(8, shape, seed)
        assert_same(page, network, pixels, tmp_path, proofs=len(pixels))


def test_networks_with_a_head(opened, mnist_page, tmp_path):
    """Logits are as near to exact ones as float64 sums are, and the independent checker accepts every certificate."""
    page, proved = opened(mnist_page), 0
    for seed in range(6):
        network = freeze(random_mlp(seed, shape=(1, 3, 4), width=11 + seed, classes=2 + seed % 3))
        pixels = images(6, (1, 3, 4), seed)
        found = run(page, network, pixels, tmp_path, len(pixels))
        logits = torch.tensor(found["logits"], dtype=torch.float64)
        assert ((logits - network(pixels)).abs() <= 2 * network.head.error(network.features(pixels))).all()
        for image, proof in zip(pixels, found["proofs"], strict=True):
            if proof is not None:
                exact.verify(proof, image.numpy(), tmp_path / "network.safetensors")
                proved += proof["levels"] > 0
    assert proved > 10


def test_headers_with_strange_texts_have_the_same_hash(opened, mnist_page, tmp_path):
    """Numbers in every form, keys whose order depends on the alphabet, escapes, empty objects and lists."""
    facts = {
        "z": 1e-05,
        "ä": 1e16,
        "\U0001f600": 2,
        "\uffff": [[], {}, {"b": None, "a": True}],
        'a"\\\n': 10**30,
        "A": -0.0,
    }
    network = freeze(random_net(0), facts=facts)
    found = run(opened(mnist_page), network, images(1), tmp_path, proofs=1)
    assert found["proofs"][0]["model_sha256"] == network.sha256


def test_a_changed_network_is_refused(opened, mnist_page, tmp_path):
    exact.save(freeze(random_net(0)), tmp_path / "net")
    content = list((tmp_path / "net").read_bytes())
    content[-1] ^= 1
    page = opened(mnist_page)
    with pytest.raises(Exception, match="the network is damaged: its sha256 is"):
        page.evaluate("(bytes) => { linfdist.read(Uint8Array.from(bytes)) }", content)


CHECK = """([image, text]) => { try { return linfdist.check(linfdist.network, Uint8Array.from(image), text).levels }
                               catch (error) { return error.message } }"""


def test_the_page_refuses_what_verify_refuses(opened, tmp_path):
    """Each entry changed, missing, twice, or of another type; another image; and both methods accepted as they are."""
    frozen = freeze(random_net(3, classes=3))
    exact.save(frozen, tmp_path / "net")
    some = images(20)
    image = max(some, key=lambda each: exact.certificates(frozen, each[None])[0].levels)
    page, pixels = opened(page_text((tmp_path / "net").read_bytes(), "small")), image.flatten().tolist()

    def check(text: str) -> int | str:
        return page.evaluate(CHECK, [pixels, text])

    for method in ("margin", "box"):
        (proof,) = exact.certificates(frozen, image[None], method)
        stated = proof.json()
        assert check(json.dumps(stated)) == stated["levels"]
        others = [exact.certificates(frozen, each[None])[0].json() for each in some[:2]]
        assert check("\n".join(json.dumps(each) for each in [*others, stated])) == stated["levels"]
        for key, value in stated.items():
            wrong = [f"{value}x", True, [value], 1.5]
            wrong += [value + 1, value - 1, float(value)] if isinstance(value, int) else []
            wrong += ["margin" if method == "box" else "box"] if key == "method" else []
            for changed in wrong:
                text = json.dumps({**stated, key: changed})
                assert isinstance(check(text), str), text
                with pytest.raises(ValueError, match=r"."):
                    exact.verify(json.loads(text), image.numpy(), tmp_path / "net")
            assert isinstance(check(json.dumps({each: stated[each] for each in stated if each != key})), str)
        assert "unknown entry" in check(json.dumps({**stated, "more": 1}))
        assert "appears twice" in check('{"levels": 200, ' + json.dumps(stated)[1:])
        assert "no certificate of the image" in check(json.dumps(others[0]))
        assert "not JSON" in check("no certificate")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ZOO)
def test_all_test_images(opened, mnist_page, tmp_path, name):
    """All 10,000 test images of each of the zoo's plain networks, and the certificates of 300 of them."""
    try:
        test = data.load(ZOO[name], "test")
    except data.DataError as error:
        pytest.skip(f"{ZOO[name]} cannot be had: {error}")
    network, page = freeze(load(name)), opened(mnist_page)
    for number, pixels in enumerate(test.images.split(1000)):
        assert_same(page, network, pixels, tmp_path, proofs=30)
        assert number < 10
