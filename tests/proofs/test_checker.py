"""The proved checker and the numpy twin give the same verdict, on networks and certificates, changed ones above all."""

import copy
import json
import random
import subprocess

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from linfdist import exact
from linfdist.cli import app
from linfdist.data import read_image
from linfdist.exact import proved, twin

from ..exact.changes import ANYTHING, CHANGES
from ..exact.nets import images, random_net
from ..exact.parts import Parts, narrow, plain, staged
from ..fixtures import FIXTURES

pytestmark = pytest.mark.usefixtures("checker")
FAST, SLOW = 20, 400  # files of each kind of change


def verdict_on_network(path) -> str:
    """What the program says about a network alone: "valid", or "refused: " and the reason."""
    return subprocess.run([proved.find(), path], capture_output=True, text=True, check=False).stdout.splitlines()[0]


def twin_reads(path) -> bool:
    try:
        twin.read(path)
    except ValueError:
        return False
    return True


def twin_verifies(certificate, image, path) -> bool:
    try:
        twin.verify(certificate, image, path)
    except ValueError:
        return False
    return True


def same_verdicts(build, count: int, seed: str, path) -> tuple[int, int]:
    """Change files of one network in every way; how many were accepted, and refused, by both."""
    exact.save(build(), path)
    parts, accepted, total = Parts.of(path), 0, 0
    for change in CHANGES:
        rng = random.Random(f"{seed} {change.__name__}")
        for _ in range(count):
            path.write_bytes(change(copy.deepcopy(parts), rng))
            said, reads = verdict_on_network(path), twin_reads(path)
            if not (reads and "it has a head" in said):  # which the checker refuses on principle
                assert (said == "valid") == reads, f"{change.__name__}: {said}, the twin accepts it: {reads}"
            assert len(said) < 600
            accepted, total = accepted + reads, total + 1
    return accepted, total - accepted


@pytest.mark.parametrize("build", [plain, narrow, staged])
def test_changed_networks_get_the_same_verdict(build, tmp_path):
    accepted, refused = same_verdicts(build, FAST, "fast", tmp_path / "net")
    assert accepted > FAST
    assert refused > FAST


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("build", [plain, narrow, staged])
def test_thousands_of_changed_networks_get_the_same_verdict(build, tmp_path):
    accepted, refused = same_verdicts(build, SLOW, "slow", tmp_path / "net")
    assert min(accepted, refused) > SLOW


def _type(parts: Parts) -> None:
    parts.tensors["lower"][0] = LONG


def _name(parts: Parts) -> None:
    parts.tensors[LONG] = ["U8", [2], b""]


def _format(parts: Parts) -> None:
    parts.header["format"] = LONG


def _stage(parts: Parts) -> None:
    parts.header["stages"][-1]["kind"] = LONG


LONG = "\\" * 5000


@pytest.mark.parametrize("lengthen", [_type, _name, _format, _stage])
def test_long_names_are_cut_in_messages(lengthen, tmp_path):
    exact.save(staged(), tmp_path / "net")
    parts = Parts.of(tmp_path / "net")
    lengthen(parts)
    (tmp_path / "net").write_bytes(parts.file())
    said = verdict_on_network(tmp_path / "net")
    assert said.startswith("refused: ")
    assert "..." in said
    assert len(said) < 600


def changed(proof: dict, rng: random.Random) -> dict:
    """A certificate with an entry more, less, or another value."""
    other, key = dict(proof), rng.choice(list(proof))
    action = rng.choice(["near", "near", "near", "anything", "remove", "add"])
    if action == "remove":
        del other[key]
    elif action == "add":
        other[rng.choice(["more", "Class", ""])] = rng.choice([0, None, "a"])
    elif action == "anything":
        other[key] = rng.choice(ANYTHING)
    elif type(other[key]) is int:
        other[key] += rng.choice([-2, -1, 1, 2])
    else:
        value = str(other[key])
        near = [value + "0", value + "/1", value + "/2", " " + value, value[::-1], "box", "margin", "open", "closed"]
        other[key] = rng.choice([*near, "0", "1", "2", "3/2", "-1", "01", None])
    return other


@pytest.mark.parametrize("method", ["margin", "box"])
@pytest.mark.parametrize("build", [plain, narrow, staged])
def test_changed_certificates_get_the_same_verdict(build, method, tmp_path):
    """All genuine ones are accepted. What the twin refuses is refused: the network and its images are the same."""
    path, rng, frozen = tmp_path / "net", random.Random(method), build()
    exact.save(frozen, path)
    some = torch.maximum(torch.minimum(images(20, frozen.shape), frozen.upper), frozen.lower)
    genuine = [each.json() for each in exact.certificates(frozen, some, method)]
    pairs = [(proof, image.numpy()) for proof, image in zip(genuine, some, strict=True)]
    assert set(proved.judge(genuine, [image for _, image in pairs], path)) == {"proved"}
    pairs = [(changed(proof, rng), image) for proof, image in pairs * 10]
    verdicts = proved.judge([proof for proof, _ in pairs], [image for _, image in pairs], path)
    for (proof, image), verdict in zip(pairs, verdicts, strict=True):
        assert (verdict == "proved") == twin_verifies(proof, image, path), (proof, verdict)


def test_ties_levels_and_closeness_to_the_edge(tmp_path):
    """Tiny networks with many ties, on every image of a small domain: the certificates of the producer are accepted,
    and one more level never is.
    """
    path = tmp_path / "net"
    for seed in range(3):
        ends = torch.full((1, 1, 2), 4, dtype=torch.uint8), torch.full((1, 1, 2), 9, dtype=torch.uint8)
        frozen = exact.freeze(random_net(seed, shape=(1, 1, 2), width=3, depth=2, classes=2), k=0, domain=ends)
        exact.save(frozen, path)
        grid = torch.cartesian_prod(torch.arange(4, 10), torch.arange(4, 10)).to(torch.uint8).reshape(-1, 1, 1, 2)
        for method in ("margin", "box"):
            proofs = [each.json() for each in exact.certificates(frozen, grid, method)]
            assert set(proved.judge(proofs, list(grid.numpy()), path)) == {"proved"}
            more = [{**each, "levels": each["levels"] + 1} for each in proofs]
            assert "proved" not in proved.judge(more, list(grid.numpy()), path)


def test_numbers_are_written_as_python_writes_them(tmp_path):
    """The reader hashes JSON as it stands, and so must know the one form that a number has."""
    rng, path = random.Random(0), tmp_path / "net"
    floats = [float(np.frombuffer(rng.randbytes(8), "<f8")[0]) for _ in range(400)]
    floats = [x for x in floats if np.isfinite(x)] + [2.0**n for n in range(-1074, 1024)] + [0.1, 1e16, 1e15, 1e-5]
    frozen = random_net(0, shape=(1, 2, 3), width=5, depth=2, classes=3)
    exact.save(exact.freeze(frozen, k=2, facts={"x": floats, "s": 'é"\\\x7f\U0001f600', "ä": 1, "￿": 2, "😀": 3}), path)
    assert verdict_on_network(path) == "valid"


@pytest.mark.parametrize("name", ["certificate", "certificate-margin", "certificate-head"])
def test_verify_proved(name):
    """As a user meets it; networks with a head are refused in words."""
    model = FIXTURES / ("exact-head.safetensors" if "head" in name else "exact.safetensors")
    result = CliRunner().invoke(
        app, ["verify", str(FIXTURES / f"{name}.json"), str(FIXTURES / "image.png"), str(model), "--proved"]
    )
    if "head" in name:
        assert result.exit_code == 1
        assert "it has a head, whose float64 arithmetic is outside what is proved" in result.stderr
    else:
        assert result.exit_code == 0
        assert "verified, also by the proved checker: class 3" in result.stdout


def test_what_the_program_prints(tmp_path):
    """It can be run by itself, on files that no Python has touched but to write them."""
    image = read_image(FIXTURES / "image.png", 1).numpy()
    proof = json.loads((FIXTURES / "certificate.json").read_text())
    (tmp_path / "image").write_bytes(proved.as_hashed(image) * 2)
    (tmp_path / "proofs").write_text(json.dumps(proof) + "\n" + json.dumps({**proof, "class": 4}) + "\n")
    arguments = [proved.find(), FIXTURES / "exact.safetensors", tmp_path / "proofs", tmp_path / "image"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["valid", "proved", "refused: class: it is 3"]
    assert done.returncode == 1
    (tmp_path / "image").write_bytes(proved.as_hashed(image.transpose(0, 2, 1)[:, :4]))
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("refused: the images do not have the shape 1,8,8: of the network\n", 1)
