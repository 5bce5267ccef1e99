"""Files hold the whole network, and nothing that was changed is believed."""

import hashlib
import json

import pytest
import torch

from linfdist import exact
from linfdist.exact import twin
from linfdist.exact.file import contents, digest
from linfdist.files import load_tensors, save_tensors

from .nets import images, random_net


def test_a_file_holds_the_same_network(trained):
    again = exact.load(trained.file)
    assert again.sha256 == trained.frozen.sha256 == twin.read(trained.file)[2]
    assert again.facts == trained.frozen.facts
    x = torch.cat([trained.images, images(50, (1, 8, 8))])
    assert torch.equal(again(x), trained.frozen(x))
    for one, two in zip(again.layers, trained.frozen.layers, strict=True):
        assert one.weight.dtype == two.weight.dtype
        assert torch.equal(one.weight, two.weight)  # the dense form too, which is not in the file
        assert torch.equal(one.mask, two.mask)


def test_mixed_types_crop_and_domain(tmp_path):
    net = random_net(2, shape=(3, 4, 5), crop=3, width=9)
    with torch.no_grad():
        net.last.weight.mul_(300)
    x = images(30, (3, 4, 5)).clamp(10, 240)
    domain = (torch.full((3, 4, 5), 10, dtype=torch.uint8), torch.full((3, 4, 5), 240, dtype=torch.uint8))
    frozen = exact.freeze(net, k=5, domain=domain, facts={"recipe": "ä"})
    assert {layer.weight.dtype for layer in frozen.layers} == {torch.int16, torch.int32}
    exact.save(frozen, tmp_path / "net")
    again = exact.load(tmp_path / "net")
    assert torch.equal(again(x), frozen(x))
    assert again.facts["recipe"] == "ä"
    with pytest.raises(ValueError, match="outside the domain"):
        again(torch.zeros(1, 3, 4, 5, dtype=torch.uint8))


def test_the_file_is_small(tmp_path):
    """Kept weights take 2 bytes and each weight a bit, against 4 bytes in the float network."""
    net = random_net(0, shape=(1, 28, 28), width=128, classes=10)
    frozen = exact.freeze(net)
    exact.save(frozen, tmp_path / "net")
    weights, kept = frozen.facts["weights"], frozen.facts["kept"]
    names, biases, domain = 4000, 4 * (2 * 128 + 10), 2 * 784
    assert (tmp_path / "net").stat().st_size <= weights / 8 + 2 * kept + names + biases + domain


@pytest.mark.parametrize("kind", ["trained", "trained_mlp"])
def test_changed_bytes_are_noticed(kind, request, tmp_path):
    data = bytearray(request.getfixturevalue(kind).file.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    places = [0, 3, 9, start // 2, start - 1, start, (start + len(data)) // 2, len(data) - 1]
    places += [data.index(word) for word in (b'\\"k\\"', b"distance", b"sha256", b"I16", b"crop")]
    places += [data.index(word) for word in (b"F64", b"head.w1", b"exact-head") if kind == "trained_mlp"]
    places += range(start, len(data), len(data) // 50)
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1
        (tmp_path / "net").write_bytes(changed)
        for read in (exact.load, twin.read):
            with pytest.raises(ValueError, match="net"):
                read(tmp_path / "net")
    for other in (data[:-1], data + b"\0", data[:100], b""):
        (tmp_path / "net").write_bytes(other)
        for read in (exact.load, twin.read):
            with pytest.raises(ValueError, match="net"):
                read(tmp_path / "net")


def forged(frozen, path, change) -> None:
    """A file whose hash is right again after a change."""
    header, tensors = contents(frozen)
    header = json.loads(json.dumps(header))
    change(header, tensors)
    save_tensors(path, tensors, {**header, "sha256": digest(header, tensors)})


def test_another_network_is_not_the_one_certified(trained, tmp_path):
    """One weight of the last layer moved by one unit, and the hash made to fit: it loads, but has another name."""
    (proof,) = exact.certificates(trained.frozen, trained.images[:1])

    def change(header, tensors):
        tensors["2.bias"] = tensors["2.bias"].clone()
        tensors["2.bias"][(proof.prediction + 1) % 10] += 1

    forged(trained.frozen, tmp_path / "net", change)
    assert exact.load(tmp_path / "net").sha256 != proof.model
    with pytest.raises(ValueError, match="certificate says"):
        exact.verify(proof.json(), trained.images[0].numpy(), tmp_path / "net")


def weights_beyond_int16(header, tensors):
    tensors["1.weight"] = torch.full_like(tensors["1.weight"], 32767)
    tensors["0.weight"] = torch.full_like(tensors["0.weight"], -32000)


def no_entries(header, tensors):
    tensors["2.mask"] = torch.zeros_like(tensors["2.mask"])
    tensors["2.weight"] = tensors["2.weight"][:0]


def losing_entries_only(header, tensors):
    """One entry a neuron, which can be 0: what is left out could win."""
    mask = torch.zeros_like(tensors["0.mask"])
    mask[:, 0] = 128
    tensors["0.mask"], tensors["0.weight"] = mask, torch.full((len(mask),), 100, dtype=torch.int16)


def bits_beyond_the_inputs(header, tensors):
    tensors["2.mask"] = tensors["2.mask"].clone()
    tensors["2.mask"][0, -1] |= 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (weights_beyond_int16, "which torch.int16 cannot hold"),
        (no_entries, "a neuron has no entries"),
        (losing_entries_only, "an entry that was left out could win"),
        (lambda header, tensors: header.update(k=8), "k = 8, expected 0 ... 7"),
        (lambda header, tensors: header.update(k=True), "k = True"),
        (lambda header, tensors: header.update(crop=9), "crop = 9"),
        (lambda header, tensors: header.update(shape=[1, 4, 16]), r"not uint8 \(1, 4, 16\)"),
        (lambda header, tensors: header.pop("layers"), "layers"),
        (lambda header, tensors: header["layers"].pop(), r"needless tensors: \['2.bias', '2.mask', '2.weight'\]"),
        (lambda header, tensors: header["layers"][0].update(inputs=10**12), "layer 0 has"),
        (lambda header, tensors: tensors.update(lower=tensors["upper"], upper=tensors["lower"]), "domain is empty"),
        (lambda header, tensors: tensors.update({"0.weight": tensors["0.weight"][1:]}), "weights for"),
        (lambda header, tensors: tensors.update({"0.bias": tensors["0.bias"].to(torch.int16)}), "layer 0 has"),
        (lambda header, tensors: header.update(format="linfdist-exact-2"), "not an exact network"),
    ],
)
def test_whatever_could_not_be_trusted_is_refused(trained, tmp_path, change, complaint):
    forged(trained.frozen, tmp_path / "net", change)
    with pytest.raises(ValueError, match=complaint):
        exact.load(tmp_path / "net")


@pytest.mark.parametrize(
    "change",
    [
        no_entries,
        bits_beyond_the_inputs,
        lambda header, tensors: header.update(k=8),
        lambda header, tensors: header.update(k=3.0),
        lambda header, tensors: header.update(crop=8.0),
        lambda header, tensors: header.update(crop=9),
        lambda header, tensors: header.pop("shape"),
        lambda header, tensors: header.update(shape=[1, 4, 16]),
        lambda header, tensors: header.update(layers="abc"),
        lambda header, tensors: header["layers"].pop(),
        lambda header, tensors: header["layers"][0].update(inputs=10**12),
        lambda header, tensors: tensors.update({"0.weight": tensors["0.weight"][1:]}),
        lambda header, tensors: tensors.update({"0.bias": tensors["0.bias"].to(torch.int16)}),
        lambda header, tensors: tensors.update(lower=tensors["lower"].to(torch.int16)),
    ],
)
def test_the_twin_refuses_what_does_not_fit_together(change, tmp_path):
    forged(exact.freeze(random_net(0)), tmp_path / "net", change)
    with pytest.raises(ValueError, match="net is not an exact network: "):
        twin.read(tmp_path / "net")


def rewritten(data: bytes, change) -> bytes:
    """A file with other entries in its JSON, its hash made to fit."""
    start = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:start])
    header = json.loads(entries.pop("__metadata__")["linfdist"])
    header.pop("sha256")
    change(entries)
    sha256 = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, entry in sorted(entries.items()):
        begin, end = (start + offset for offset in entry["data_offsets"])
        sha256.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode() + data[begin:end])
    entries["__metadata__"] = {"linfdist": json.dumps({**header, "sha256": sha256.hexdigest()})}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[start:]


def test_a_hash_names_one_network(tmp_path):
    """Shapes say where a tensor ends, and so what was hashed: -1, or bytes used twice, would allow two networks."""
    exact.save(exact.freeze(random_net(0)), tmp_path / "net")
    whole = (tmp_path / "net").read_bytes()

    def twice(entries):
        entries["upper"]["data_offsets"] = entries["lower"]["data_offsets"]

    (tmp_path / "net").write_bytes(rewritten(whole, lambda entries: None))
    twin.read(tmp_path / "net")
    for change in (lambda entries: entries["0.weight"].update(shape=[-1]), twice):
        (tmp_path / "net").write_bytes(rewritten(whole, change))
        for read in (exact.load, twin.read):
            with pytest.raises(ValueError, match="net"):
                read(tmp_path / "net")


def one_class(header, tensors):
    tensors["head.w2"], tensors["head.b2"] = tensors["head.w2"][:1], tensors["head.b2"][:1]


def not_a_number(header, tensors):
    tensors["head.b2"] = tensors["head.b2"].clone()
    tensors["head.b2"][3] = torch.nan


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (one_class, "one class"),
        (not_a_number, "b2 of the head reaches nan"),
        (lambda header, tensors: header.update(format="linfdist-exact-1"), "needless tensors: .*head.w2"),
        (lambda header, tensors: tensors.pop("head.b1"), "head.b1"),
        (
            lambda header, tensors: tensors.update({"head.w3": tensors["head.w2"] + 1}),
            r"needless tensors: \['head.w3'\]",
        ),
        (lambda header, tensors: tensors.update({"head.w1": tensors["head.w1"][:, 1:]}), "head takes 47 features"),
        (
            lambda header, tensors: tensors.update({"head.w1": tensors["head.w1"].int()}),
            "w1 of the head is torch.int32",
        ),
        (lambda header, tensors: tensors.update({"head.w2": tensors["head.w2"].T}), "do not fit together"),
        (lambda header, tensors: tensors.update({"1.weight": tensors["1.weight"].double()}), "weights of layer 1 are"),
        (lambda header, tensors: tensors.update({"1.bias": tensors["1.bias"].double()}), "layer 1 has"),
    ],
)
def test_whatever_could_not_be_trusted_of_a_head_is_refused(trained_mlp, tmp_path, change, complaint):
    """By the twin too, whose word counts."""
    forged(trained_mlp.frozen, tmp_path / "net", change)
    with pytest.raises(ValueError, match=complaint):
        exact.load(tmp_path / "net")
    (proof,) = exact.certificates(trained_mlp.frozen, trained_mlp.images[:1])
    with pytest.raises(ValueError, match="is not an exact network: ") as caught:
        exact.verify(proof.json(), trained_mlp.images[0].numpy(), tmp_path / "net")
    assert "model_sha256" not in str(caught.value)  # it did not come that far


def test_a_plain_network_with_a_head_format_is_refused(trained, tmp_path):
    forged(trained.frozen, tmp_path / "net", lambda header, tensors: header.update(format="linfdist-exact-head-1"))
    with pytest.raises(ValueError, match="head"):
        exact.load(tmp_path / "net")
    with pytest.raises(ValueError, match="do not belong to its format"):
        twin.read(tmp_path / "net")


def test_bits_beyond_the_inputs(tmp_path):
    forged(exact.freeze(random_net(0)), tmp_path / "net", bits_beyond_the_inputs)  # 7 inputs
    with pytest.raises(ValueError, match="layer 2 has"):
        exact.load(tmp_path / "net")


def test_other_files_are_refused(trained, tmp_path):
    with pytest.raises(FileNotFoundError, match="linfdist export MODEL --format exact"):
        exact.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="is not an exact network: its format is None"):
        exact.load(trained.run / "model.safetensors")
    with pytest.raises(ValueError, match="is not an exact network: its format is None"):
        twin.read(trained.run / "model.safetensors")
    tensors, header = load_tensors(trained.file)
    save_tensors(tmp_path / "floats", {**tensors, "0.weight": tensors["0.weight"].float()}, header)
    with pytest.raises(ValueError, match="not of U8, I16, I32"):
        exact.load(tmp_path / "floats")
