"""Files of exact networks in pieces, and what the loader and the twin, which share no code, say of them."""

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from linfdist import exact
from linfdist.exact import twin

from .nets import images, random_mlp, random_net

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

    @property
    def layers(self) -> list[dict]:
        """The sizes of its layers, whatever the format calls them."""
        stages = self.header.get("stages")
        return self.header["layers"] if stages is None else [each for each in stages if each["kind"] == "dist"]

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


def staged() -> exact.FrozenNet:
    """With every kind of stage but a head."""
    own = {"per_class": 2, "pool": [2, 1], "clip": (0.25, 0.75), "crop": 3}
    return exact.freeze(random_net(2, shape=(1, 3, 4), width=4, depth=2, classes=3, **own), k=2)


def staged_head() -> exact.FrozenNet:
    return exact.freeze(random_mlp(1, shape=(1, 2, 3), width=4, depth=2, classes=3, head=3, clip=(0.1, 0.6)), k=1)


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
    outputs = network.summed(features).to(torch.int32)
    for number, image in enumerate(x.numpy()):
        assert twin.bounds(header, tensors, image, image)[0].tolist() == outputs[number].tolist()
        if network.head is None:
            assert torch.equal(logits[number], -outputs[number])
        else:
            again = twin.head_logits([tensors[name] for name in twin.HEAD], features[number].numpy())
            assert np.abs(again - logits[number].numpy()).max() <= 2 * network.head.error(features[number][None]).max()


def verified(network: exact.FrozenNet, path: Path) -> None:
    image = some(network)[:1]
    try:
        proof = exact.certificates(network, image)[0].json()
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
