"""docs/format.md says which files are exact networks. The loader and the twin, which share no code, both hold to it."""

import copy
import hashlib
import json
import random
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from linfdist import exact
from linfdist.data import read_image
from linfdist.exact import file, twin

from .nets import images, random_mlp, random_net

OLD = Path(__file__).parents[1] / "fixtures" / "v0.1"
TYPES = {"U8": "u1", "I16": "<i2", "I32": "<i4", "F64": "<f8", "F32": "<f4", "I64": "<i8", "I8": "i1", "BOOL": "?"}


@dataclass
class Parts:
    """A file in pieces. `tensors`: [dtype, shape, bytes] each, in the order of the file."""

    header: dict
    tensors: dict[str, list]

    @classmethod
    def of(cls, path: Path) -> "Parts":
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        entries = json.loads(data[8:start])
        header = json.loads(entries.pop("__metadata__")["linfdist"])
        tensors = {}
        for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            tensors[name] = [entry["dtype"], entry["shape"], data[start + begin : start + end]]
        return cls(header, tensors)

    def array(self, name: str) -> np.ndarray:
        kind, shape, data = self.tensors[name]
        return np.frombuffer(data, TYPES[kind]).reshape(shape).copy()

    def put(self, name: str, values: np.ndarray, kind: str | None = None) -> None:
        kind = kind or self.tensors[name][0]
        with np.errstate(all="ignore"):
            values = values.astype(TYPES[kind])
        self.tensors[name] = [kind, list(values.shape), values.tobytes()]

    def sha256(self) -> str:
        """As docs/format.md says."""
        header = {key: value for key, value in self.header.items() if key != "sha256"}
        total = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
        for name, (kind, shape, data) in sorted(self.tensors.items()):
            total.update(json.dumps([name, kind, shape]).encode() + data)
        return total.hexdigest()

    def entries(self) -> dict:
        entries, place = {}, 0
        for name, (kind, shape, data) in self.tensors.items():
            entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [place, place + len(data)]}
            place += len(data)
        return entries

    def file(
        self,
        sign: bool = True,
        inner: Callable[[str], str] = str,
        outer: Callable[[dict], None] = lambda entries: None,
        text: Callable[[str], str] = str,
        pad: int = 0,
    ) -> bytes:
        """The file, its hash made to fit if `sign`, with changes of its JSON texts and of its entries of tensors."""
        header = {**self.header, "sha256": self.sha256()} if sign and "sha256" in self.header else self.header
        entries = {"__metadata__": {"linfdist": inner(json.dumps(header))}, **self.entries()}
        outer(entries)
        whole = text(json.dumps(entries, separators=(",", ":"))).encode("utf-8", "surrogatepass")
        whole += b" " * (-len(whole) % 8 + pad)
        return struct.pack("<Q", len(whole)) + whole + b"".join(data for _, _, data in self.tensors.values())


def plain() -> exact.FrozenNet:
    return exact.freeze(
        random_net(0, shape=(1, 2, 3), width=5, depth=2, classes=3), k=2, facts={"recipe": "ä", "x": [1]}
    )


def narrow() -> exact.FrozenNet:
    """With a crop, a domain, int32 and entries that were left out."""
    net = random_net(3, shape=(2, 3, 4), crop=2, width=5, depth=3, classes=3)
    with torch.no_grad():
        net.last.weight.mul_(300)
    ends = torch.full((2, 3, 4), 90, dtype=torch.uint8), torch.full((2, 3, 4), 120, dtype=torch.uint8)
    return exact.freeze(net, k=5, domain=ends)


def headed() -> exact.FrozenNet:
    return exact.freeze(random_mlp(1, shape=(1, 2, 3), width=4, depth=2, classes=3, head=3), k=3)


@pytest.fixture(scope="module", params=[plain, narrow, headed])
def parts(request, tmp_path_factory) -> Parts:
    path = tmp_path_factory.mktemp("format") / "net"
    exact.save(request.param(), path)
    return Parts.of(path)


def outcome(read: Callable, path: Path):
    """What was read, or the reason why not: one line that names the file. No error but ValueError is expected."""
    try:
        return read(path)
    except ValueError as error:
        text = str(error)
        assert path.name in text
        assert len(text.splitlines()) == 1
        assert len(text) < 600
        return text


def accepted(path: Path, prove: bool = False) -> bool:
    """Whether the file is accepted: by both, or by none; and if so, that both compute the same, and if `prove`, that
    the twin verifies a certificate.
    """
    network, content = outcome(exact.load, path), outcome(twin.read, path)
    refused = isinstance(network, str)
    assert refused == isinstance(content, str), f"the loader says: {network}, the twin says: {content}"
    if not refused:
        same(network, *content)
        if prove:
            verified(network, path)
    return not refused


def same(network: exact.FrozenNet, header: dict, tensors: dict, sha256: str) -> None:
    assert network.sha256 == sha256
    x = some(network)
    features, logits = network.features(x), network(x)
    for number, image in enumerate(x.numpy()):
        assert twin.bounds(header, tensors, image, image)[0].tolist() == features[number].tolist()
        if network.head is None:
            assert torch.equal(logits[number], -features[number])
        else:
            again = twin.head_logits([tensors[name] for name in twin.HEAD], features[number].numpy())
            assert np.abs(again - logits[number].numpy()).max() <= 2 * network.head.error(features[number][None]).max()


def verified(network: exact.FrozenNet, path: Path) -> None:
    image = some(network)[:1]
    try:
        proof = exact.certify(network, image)[0].json()
    except exact.Undecided:
        return
    exact.verify(proof, image[0].numpy(), path)
    more = proof["levels"] + 1 if network.head is None else 256  # the twin's slack for a head is smaller
    with pytest.raises(ValueError, match="levels"):
        exact.verify({**proof, "levels": more}, image[0].numpy(), path)


def some(network: exact.FrozenNet) -> torch.Tensor:
    """Two images of the domain."""
    return torch.maximum(torch.minimum(images(1, network.shape)[:2], network.upper), network.lower)


def deep(levels: int) -> dict:
    return {"a": deep(levels - 1)} if levels > 1 else {}


ANYTHING = [
    None, True, False, 0, 1, -1, 2, 3, 4, 5, 6, 7, 8, 255, 256, 1.0, 3.0, 0.5, -0.0, 1e400, float("nan"), 2**15, 2**20,
    2**20 + 1, 10**12, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**30, 10**4000, "", "1", "abc", "U8", "F64", "I64",
    "ä\n", [], [1], [1, 1], [1, 2, 3], [6], [[6]], {}, {"a": 1}, {"outputs": 3, "inputs": 5}, [{}], deep(15), deep(16),
    deep(17), "linfdist-exact-1", "linfdist-exact-head-1", "x" * 5000,
]  # fmt: skip


def places(value, path=()) -> list[tuple]:
    """The paths to everything in a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, part in inside for each in places(part, (*path, key)))]


def mangle(value, rng: random.Random) -> None:
    """Change something in a JSON object: a value, a key, or what is there at all."""
    *path, last = rng.choice([path for path in places(value) if path])
    for key in path:
        value = value[key]
    action = rng.choice(["set", "set", "set", "nudge", "remove", "add", "swap"])
    if action == "remove":
        del value[last]
    elif action == "add":
        if isinstance(value, dict):
            value[rng.choice(["a", "", "facts", "inputs", "k", "shape", "3.bias", "linfdist"])] = rng.choice(ANYTHING)
        else:
            value.insert(last, rng.choice(ANYTHING))
    elif action == "nudge" and type(value[last]) is int:
        value[last] += rng.choice([-8, -1, 1, 8])
    elif action == "swap" and isinstance(value, dict):
        value[last], value[rng.choice(list(value))] = value[rng.choice(list(value))], value[last]
    else:
        value[last] = rng.choice(ANYTHING)


def change_header(parts: Parts, rng: random.Random) -> bytes:
    mangle(parts.header, rng)
    return parts.file()


def change_entries(parts: Parts, rng: random.Random) -> bytes:
    return parts.file(outer=lambda entries: mangle(entries, rng))


def change_type_and_entry(parts: Parts, rng: random.Random) -> bytes:
    """Entries that say something else about the same bytes, with a hash that says so too."""
    name = rng.choice(list(parts.tensors))
    _, shape, data = parts.tensors[name]
    other = rng.choice(list(TYPES))
    count = len(data) // np.dtype(TYPES[other]).itemsize
    shapes = [
        [count],
        [count, 1],
        [1, count],
        [1, 1, count],
        [],
        [-1],
        [count, 0],
        [2**62, 4],
        [1] * 70,
        [count, 2**64],
    ]
    parts.tensors[name] = [other, rng.choice([shape, *shapes]), data]
    return parts.file()


def change_shape(parts: Parts, rng: random.Random) -> bytes:
    name = rng.choice(list(parts.tensors))
    values = parts.array(name)
    ways = [
        lambda: values[..., None], lambda: values[None], lambda: values.ravel(), lambda: values.T, lambda: values[:0],
        lambda: values[:-1], lambda: values[:1], lambda: values[..., :-1], lambda: values[..., :1],
        lambda: np.concatenate([values, values]), lambda: np.concatenate([values, values[:1]]),
        lambda: np.concatenate([values, values[..., :1]], -1), lambda: values.ravel()[0],
    ]  # fmt: skip
    parts.put(name, np.asarray(rng.choice(ways)()))
    return parts.file()


def change_type(parts: Parts, rng: random.Random) -> bytes:
    name = rng.choice(list(parts.tensors))
    parts.put(name, parts.array(name), rng.choice(list(TYPES)))
    return parts.file()


def change_values(parts: Parts, rng: random.Random) -> bytes:
    """A few values, a little or very much."""
    name = rng.choice(list(parts.tensors))
    values = parts.array(name)
    flat = values.reshape(-1)
    for _ in range(rng.choice([1, 1, 1, 4])):
        place = rng.randrange(len(flat))
        if values.dtype.kind == "f":
            flat[place] = rng.choice([0.0, -0.0, 1.0, 5e-324, 1e100, -1e100, 1.0000001e100, np.inf, -np.inf, np.nan])
        else:
            ends = np.iinfo(values.dtype)
            near = [min(max(int(flat[place]) + step, ends.min), ends.max) for step in (-40, -1, 1, 2, 40)]
            flat[place] = rng.choice([*near, *near, ends.min, ends.max, ends.min // 2, ends.max // 2, 0])
    parts.put(name, values)
    return parts.file()


def change_values_of_layers(parts: Parts, rng: random.Random) -> bytes:
    """A bias or a weight by a little: mostly allowed."""
    name = f"{rng.randrange(len(parts.header['layers']))}.{rng.choice(['bias', 'weight'])}"
    values = parts.array(name)
    values[rng.randrange(len(values))] += rng.choice([-3, -1, 1, 3])
    parts.put(name, values)
    return parts.file()


def change_mask(parts: Parts, rng: random.Random) -> bytes:
    """An entry more or less, its weight with it, in a layer that stays whole otherwise."""
    number = rng.randrange(len(parts.header["layers"]))
    inputs = parts.header["layers"][number]["inputs"]
    bits = np.unpackbits(parts.array(f"{number}.mask"), axis=1)[:, :inputs]
    full = np.zeros(bits.shape, np.int64)
    full[bits == 1] = parts.array(f"{number}.weight")
    row, column = rng.randrange(len(bits)), rng.randrange(inputs)
    bits[row, column] ^= 1
    full[row, column] = rng.choice([0, 50, 1000, -1000, 32767, int(full.max())])
    if rng.random() < 0.1:
        bits[row] = 0
    parts.put(f"{number}.mask", np.packbits(bits, axis=1))
    parts.put(f"{number}.weight", full[bits == 1])
    return parts.file()


def change_domain(parts: Parts, rng: random.Random) -> bytes:
    for name in ("lower", "upper"):
        values = parts.array(name)
        values.reshape(-1)[rng.randrange(values.size)] = rng.choice([0, 1, 89, 91, 119, 121, 254, 255])
        parts.put(name, values)
    return parts.file()


def change_tensors(parts: Parts, rng: random.Random) -> bytes:
    """Another order is allowed; other names are not."""
    names = list(parts.tensors)
    one, two = rng.sample(names, 2)
    action = rng.choice(["shuffle", "remove", "rename", "add", "swap"])
    if action == "shuffle":
        rng.shuffle(names)
        parts.tensors = {name: parts.tensors[name] for name in names}
    elif action == "swap":
        parts.tensors[one], parts.tensors[two] = parts.tensors[two], parts.tensors[one]
    else:
        new = rng.choice(["", "a", "9.bias", "00.bias", "lower ", "head.w3", "head.w1", "__metadata__", "ä"])
        tensor = parts.tensors[one] if action == "add" else parts.tensors.pop(one)
        if action != "remove":
            parts.tensors[new] = tensor
    return parts.file()


FACTS = [
    "1.0", "1.00", "1E5", "1e5", "100000.0", "1e-05", "0.00001", "-0", "-0.0", "NaN", "-Infinity", "1e999",
    '"\\ud800"', '"ä"', '"\\u00e4"', '"\\u00E4"', '"\\ud83d\\ude00"', '"\\/"', '"\\u007f"', '"\\n"', "[" * 99999,
    "[" * 15 + "]" * 15, "[" * 16 + "]" * 16, "9" * 4000, "9" * 5000, '"' + "9" * 2**18 + '"', "[ ]", "[1,2]", "[1, 2]",
    "true", "True", "'a'",
]  # fmt: skip
INNER = [
    *(('"facts": {', f'"facts": {{"a": {fact}, ') for fact in FACTS),
    ('"k": ', '"k": 1, "k": '), ('"k": ', '"k":'), ('"k": ', '"k":  '), ('"k": ', '"k": 0'), ('"k": ', '"k": -'),
    ('"k"', '"\\u006b"'), ('"outputs"', '"outputs": 3, "outputs"'), ('"crop": ', '"crop": 0, "crop": '),
    ("{", " {"), ("{", "\ufeff{"), ('"k"', '\n"k"'), ('"k"', '/**/"k"'),
]  # fmt: skip
OUTER = [
    ('"lower"', '"\\u006cower"'), ('"lower":', '"lower": '), ('"lower":{', '"lower":{"dtype":"I16",'),
    ('"lower":{', '"upper":{},"lower":{'), ('"shape":[', '"shape":[ '), ('"shape":[', '"shape":[0'),
    ('"shape":[', '"shape":[1.0,'), ('"shape":[', '"shape":[NaN,'), ('"shape":[', '"shape":[1,'),
    ("{", " {"), ("{", "\ufeff{"), ("{", "[" * 99999 + "{"), ("{", '{"a":' * 99999 + "{"),
    ("{", '{"a":' + "9" * 2**20 + ","),
    ("{", '{"__metadata__":{"linfdist":"{}"},'), ('"linfdist"', '"format":"pt","linfdist"'),
    ('"linfdist"', '"linfdist":"{}","linfdist"'), ('"linfdist"', '"linfdist\\u0000"'),
]  # fmt: skip


def change_text(parts: Parts, rng: random.Random) -> bytes:
    """What a lenient reader of JSON takes for the same, and what one reader takes so, and another one so."""
    if rng.random() < 0.05:
        return parts.file(pad=rng.choice([1, 4, 7, 8, 16]))
    old, new = rng.choice(INNER + OUTER)
    if (old, new) in OUTER:
        return parts.file(text=lambda text: text.replace(old, new, 1))
    text = json.dumps({key: value for key, value in parts.header.items() if key != "sha256"}).replace(old, new, 1)
    try:
        sha256 = Parts(json.loads(text), parts.tensors).sha256()  # of what Python reads
    except (ValueError, RecursionError):
        sha256 = parts.sha256()
    return parts.file(inner=lambda _: f'{text[:-1]}, "sha256": "{sha256}"}}')


def change_bytes(parts: Parts, rng: random.Random) -> bytes:
    data = bytearray(parts.file())
    start = 8 + int.from_bytes(data[:8], "little")
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(min(len(data), rng.choice([8, start, len(data)])))
        action = rng.choice(["flip", "set", "cut", "insert", "drop"])
        if action == "flip":
            data[place] ^= 1 << rng.randrange(8)
        elif action == "set":
            data[place] = rng.choice(b'\0 "{}[],:0129eE-+.\\\xff')
        elif action == "cut":
            del data[place:]
        elif action == "insert":
            data[place:place] = rng.choice([b"\0", b" ", b"0", b'"', b"\0" * 8])
        elif action == "drop":
            del data[place]
        if len(data) < 8:
            break
    return bytes(data)


CHANGES = {
    change_header: 180, change_entries: 180, change_type_and_entry: 70, change_shape: 90, change_type: 60,
    change_values: 60, change_values_of_layers: 20, change_mask: 50, change_domain: 30, change_tensors: 50,
    change_text: 150, change_bytes: 150,
}  # fmt: skip


ALWAYS, NEVER = (change_values_of_layers,), (change_type_and_entry, change_entries, change_bytes)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_loader_and_the_twin_refuse_the_same_files(parts, change, tmp_path):
    rng, path, count = random.Random(change.__name__), tmp_path / "net", 0
    for _ in range(CHANGES[change]):
        path.write_bytes(change(copy.deepcopy(parts), rng))
        count += accepted(path, prove=count < 3)
    assert count < CHANGES[change] or change in ALWAYS
    assert count > 0 or change in NEVER


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


@pytest.mark.parametrize("key", ["format", "k", "shape", "crop", "layers", "facts", "sha256"])
def test_every_key_is_demanded(parts, key, tmp_path):
    path, other = tmp_path / "net", copy.deepcopy(parts)
    del other.header[key]
    path.write_bytes(other.file())
    reasons(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("layers", {"0": {"outputs": 5, "inputs": 6}}), ("layers", []), ("layers", None), ("facts", None),
        ("facts", []),
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
        other.header["layers"][0]["inputs"] = other.header["layers"][0]["outputs"] = claim
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
            assert "is not a regular file of at most 2147483648 bytes" in reason
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
        proof = exact.certify(frozen, image, method="margin" if frozen.head is None else "box")[0].json()
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
def test_files_of_version_0_1_load_and_verify(network, certificate):
    path = OLD / f"{network}.safetensors"
    image = read_image(OLD / "image.png", 1)
    proof = json.loads((OLD / f"{certificate}.json").read_text())
    assert accepted(path, prove=True)
    exact.verify(proof, image.numpy(), path)
    frozen = exact.load(path)
    assert exact.certify(frozen, image[None], method=proof["method"])[0].json() == proof
    assert frozen.facts["recipe"] == "digits-quick"


@pytest.mark.parametrize("name", ["certificate", "certificate-margin", "certificate-head"])
def test_every_entry_of_a_certificate_counts(name):
    """Other values, and equal ones of another type, and what nests deeply, are refused in one line."""
    path = OLD / ("exact-head.safetensors" if "head" in name else "exact.safetensors")
    image = read_image(OLD / "image.png", 1).numpy()
    proof = json.loads((OLD / f"{name}.json").read_text())
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


def test_a_file_is_written_as_version_0_1_wrote_it(tmp_path):
    for name in ("exact", "exact-head"):
        old = OLD / f"{name}.safetensors"
        exact.save(exact.load(old), tmp_path / "net")
        assert Parts.of(tmp_path / "net") == Parts.of(old)
