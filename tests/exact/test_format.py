"""docs/format.md says which files are exact networks. The loader and the twin, which share no code, both hold to it."""

import copy
import json
import random
import re
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from linfdist import exact
from linfdist.data import read_image
from linfdist.exact import file, twin

from ..fixtures import FIXTURES
from ..profiles import NIGHTLY
from .changes import ALWAYS, CHANGES, NEVER
from .nets import random_mlp, random_net
from .parts import Parts, accepted, deep, headed, narrow, outcome, plain, staged, staged_head


@pytest.fixture(scope="module", params=[plain, narrow, headed, staged, staged_head])
def parts(request, tmp_path_factory) -> Parts:
    path = tmp_path_factory.mktemp("format") / "net"
    exact.save(request.param(), path)
    return Parts.of(path)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_loader_and_the_twin_refuse_the_same_files(parts, change, tmp_path):
    rng, path, count = random.Random(change.__name__), tmp_path / "net", 0
    tries = CHANGES[change] if NIGHTLY else CHANGES[change] // 3
    for _ in range(tries):
        path.write_bytes(change(copy.deepcopy(parts), rng))
        count += accepted(path, prove=count < 3)
    assert count < tries or change in ALWAYS
    assert count > 0 or change in NEVER or not NIGHTLY  # a third of the files may have no intact one


def reasons(path: Path) -> tuple[str, str]:
    """Why the loader refuses a file, and why the twin does."""
    assert not accepted(path)
    return outcome(exact.load, path), outcome(twin.read, path)


@pytest.mark.parametrize("shape", [(-1, 1), (1, -1)])
@pytest.mark.parametrize("number", [0, 1])
def test_a_bias_is_not_broadcast(parts, number, shape, tmp_path):
    """It was by the twin, into a function that the format does not define."""
    path, other = tmp_path / "net", copy.deepcopy(parts)
    other.put(f"{number}.bias", other.array(f"{number}.bias").reshape(shape))
    path.write_bytes(other.file())
    loader, reader = reasons(path)
    assert f"layer {number}" in loader
    assert f"{number}.bias is I32" in reader


@pytest.mark.parametrize("key", ["format", "k", "shape", "crop", "layers", "stages", "facts", "sha256"])
def test_every_key_is_demanded(parts, key, tmp_path):
    path, other = tmp_path / "net", copy.deepcopy(parts)
    if key not in other.header:
        pytest.skip("a key of the other formats")
    del other.header[key]
    path.write_bytes(other.file())
    reasons(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("layers", {"0": {"outputs": 5, "inputs": 6}}), ("layers", []), ("layers", None), ("facts", None),
        ("facts", []), ("stages", []), ("stages", None), ("stages", {}), ("stages", [[]]), ("stages", [{"kind": []}]),
        ("stages", [{"kind": "clip", "low": 0, "high": 10**4000}, {"kind": "dist", "outputs": 5, "inputs": 6}]),
        ("k", True), ("k", 2.0), ("crop", False), ("crop", 0), ("shape", [1, 2, True]), ("shape", [2**11, 2**11, 1]),
        ("sha256", None), ("sha256", 0), ("format", []), ("format", {}), ("facts", deep(17)),
    ],
)  # fmt: skip
def test_values_of_other_types_are_refused(parts, key, value, tmp_path):
    path, other = tmp_path / "net", copy.deepcopy(parts)
    other.header[key] = value
    path.write_bytes(other.file(sign=key != "sha256"))
    reasons(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.1e100])
@pytest.mark.parametrize("name", twin.HEAD)
def test_heads_that_are_not_finite_are_refused(name, value, tmp_path):
    path = tmp_path / "net"
    exact.save(headed(), path)
    other = Parts.of(path)
    values = other.array(name)
    values.reshape(-1)[-1] = value
    other.put(name, values)
    path.write_bytes(other.file())
    loader, reader = reasons(path)
    assert "of the head reaches" in loader
    assert f"{name} is not finite, or larger than 1e100" in reader


def test_small_files_take_little_memory(parts, tmp_path):
    """Whatever sizes they claim, and however deep they are."""
    path = tmp_path / "net"
    claims = []
    for claim in (2**20, 2**20 + 1, 10**12):
        other = copy.deepcopy(parts)
        other.layers[0]["inputs"] = other.layers[0]["outputs"] = claim
        claims.append(other.file())
        other = copy.deepcopy(parts)
        other.header["shape"] = [1, claim, 1]
        claims.append(other.file())
        for name in ("0.mask", "0.weight", "upper"):
            other = copy.deepcopy(parts)
            other.tensors[name][1] = [claim] * len(other.tensors[name][1])
            claims.append(other.file())
    claims.append(b"\xf8" + b"\xff" * 7 + b"{}      ")
    for data in claims:
        path.write_bytes(data)
        for read in (exact.load, twin.read):
            tracemalloc.start()
            assert isinstance(outcome(read, path), str)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 2**20


def test_what_is_no_file_or_too_large_is_not_read(tmp_path):
    with open(tmp_path / "large", "wb") as large:
        large.truncate(2**31 + 1)
    (tmp_path / "folder").mkdir()
    for name in ("large", "folder"):
        for reason in reasons(tmp_path / name):
            assert re.search(r"is not a regular file|2,147,483,649 bytes, more than", reason)
    for read in (exact.load, twin.read):
        with pytest.raises(FileNotFoundError, match="nothing"):
            read(tmp_path / "nothing")


def test_both_have_the_limits_of_the_page():
    ours = (file.LARGEST_FILE, file.LONGEST_TEXT, file.LONGEST_HEADER, file.MOST_LAYERS, file.WIDEST, file.DEEPEST)
    twins = (twin.MOST_BYTES, twin.MOST_TEXT, twin.MOST_HEADER, twin.MOST_LAYERS, twin.MOST_WIDTH, twin.MOST_NESTING)
    assert ours == twins == (2**31, 2**20, 2**18, 1000, 2**20, 16)


def test_nothing_is_written_that_could_not_be_read(tmp_path):
    net = random_net(0, shape=(1, 2, 3), width=5, depth=2, classes=3)
    for facts in ({"a": float("nan")}, {"a": "\ud800"}, deep(17), {"a": "x" * 2**18}):
        with pytest.raises(ValueError, match="was not written, because it could not be loaded"):
            exact.save(exact.freeze(net, facts=facts), tmp_path / "net")
        assert not (tmp_path / "net").exists()
    exact.save(exact.freeze(net, facts={**deep(16), "b": "x" * 200_000, "c": 'ä\n"', "d": 1e-7}), tmp_path / "net")
    assert accepted(tmp_path / "net", prove=True)


def test_memory_of_verify_is_bounded(tmp_path):
    """As docs/format.md and the twin say: 3 times the file, and 128 bytes times 2^18 or the widest layer."""
    path = tmp_path / "net"
    for net in (
        random_net(0, shape=(1, 28, 28), width=1200, depth=3, classes=10),
        random_mlp(0, shape=(1, 28, 28), width=300, depth=2, classes=10, head=2000),
    ):
        frozen = exact.freeze(net, k=3)
        exact.save(frozen, path)
        image = torch.zeros(1, 1, 28, 28, dtype=torch.uint8)
        proof = exact.certificates(frozen, image, method="margin" if frozen.head is None else "box")[0].json()
        tracemalloc.start()
        exact.verify(proof, image[0].numpy(), path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        size = path.stat().st_size
        assert peak <= 3 * size + 128 * 2**18, (peak, size)


@pytest.mark.parametrize(
    ("network", "certificate"),
    [
        ("exact", "certificate"),
        ("exact", "certificate-margin"),
        ("exact-head", "certificate-head"),
    ],
)
def test_fixed_files_load_and_verify(network, certificate):
    path = FIXTURES / f"{network}.safetensors"
    image = read_image(FIXTURES / "image.png", 1)
    proof = json.loads((FIXTURES / f"{certificate}.json").read_text())
    assert accepted(path, prove=True)
    exact.verify(proof, image.numpy(), path)
    frozen = exact.load(path)
    assert exact.certificates(frozen, image[None], method=proof["method"])[0].json() == proof
    assert frozen.facts["recipe"] == "digits-quick"


@pytest.mark.parametrize("name", ["certificate", "certificate-margin", "certificate-head"])
def test_every_entry_of_a_certificate_counts(name):
    """Other values, and equal ones of another type, and what nests deeply, are refused in one line."""
    path = FIXTURES / ("exact-head.safetensors" if "head" in name else "exact.safetensors")
    image = read_image(FIXTURES / "image.png", 1).numpy()
    proof = json.loads((FIXTURES / f"{name}.json").read_text())
    nested: list = []
    for _ in range(5000):
        nested = [nested]
    values = [None, True, 1, 3.0, 125.0, float("nan"), 10**4000, "", "margin", "box", [1.0, 8, 8], [True, 8, 8], {}]
    wrong = [{**proof, key: value} for key in proof for value in values if repr(value) != repr(proof[key])]
    wrong += [{**proof, key: nested} for key in proof]
    wrong += [{key: proof[key] for key in proof if key != missing} for missing in proof]
    wrong += [{**proof, "more": 1}, [], None, "certificate", [proof]]
    for other in wrong:
        with pytest.raises(ValueError, match="certificate") as caught:
            exact.verify(other, image, path)
        assert len(str(caught.value).splitlines()) == 1
        assert len(str(caught.value)) < 400


def test_a_fixed_file_is_written_again_as_it_is(tmp_path):
    for name in ("exact", "exact-head"):
        old = FIXTURES / f"{name}.safetensors"
        exact.save(exact.load(old), tmp_path / "net")
        assert Parts.of(tmp_path / "net") == Parts.of(old)


def test_the_verifier_checks_the_file_that_it_has_opened(tmp_path):
    """What takes the file's name just before it is opened is checked as well: here a folder."""
    path = tmp_path / "net.safetensors"
    path.touch()
    swapped = []

    def swap(event, arguments):  # hooks stay for good: this one does nothing any more after once
        if event == "open" and not swapped and str(arguments[0]) == str(path):
            swapped.append(True)
            path.unlink()
            path.mkdir()

    sys.addaudithook(swap)
    with pytest.raises(ValueError, match="is not a regular file"):
        twin.read(path)
    assert swapped
