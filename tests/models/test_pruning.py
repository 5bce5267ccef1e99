"""Pruned networks have the bits of the whole ones: on images of [0, 1], on boxes, in proofs, from small files."""

import hashlib
import json
import math
import random
import zlib
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linfdist import certify
from linfdist.files import header_in, load_tensors, save_tensors
from linfdist.models import Composed, ConvDistNet, ConvDistNetMLP, DistNet, DistNetMLP, Mean, load, prune, save
from linfdist.models.base import flush_error, rounding_error
from linfdist.models.packing import PACKED, pack, unpack
from linfdist.nn import Box, DistLinear, Flatten, NearestClass, Stack
from tools.soak_files import REFUSED, change


def trained_a_little(net, scale=1.0):
    """Weights of several sizes: a few reach far, so that many others never count."""
    with torch.no_grad():
        for each in net.parameters():
            if each.dim() == 2:
                each.copy_(each * scale * torch.where(torch.rand_like(each) < 0.1, 3.0, 0.3))
    for _ in range(3):
        net(torch.rand(8, *net.shape), 8.0)
    return net.eval()


def members():
    return [trained_a_little(DistNet((3, 4, 5), 3, 9, 3, [0.4] * 3, 0.3, per_class=k)) for k in (1, 2)]


NETS = {
    "plain": lambda: DistNet((3, 4, 5), 3, 17, 3, [0.4] * 3, 0.3),
    "bias, no shift": lambda: DistNet((1, 4, 5), 3, 17, 3, [0.5], 0.3, mean_shift=False),
    "all in front": lambda: DistNet(
        (3, 7, 7), 3, 11, 3, [0.4] * 3, 0.3, crop=6, clip=[0.2, 0.9], pool=[1, 2, 3], per_class=3, mirror_pairs=True
    ),
    "head": lambda: DistNetMLP((1, 4, 5), 3, 20, 2, [0.5], 0.3, head=6),
    "plain convolutions": lambda: ConvDistNet((3, 8, 8), 3, 4, 5, [0.5] * 3, 0.3, dense=9, per_class=2),
    "convolutions": lambda: ConvDistNetMLP((3, 8, 8), 3, 4, 4, [0.5] * 3, 0.3, head=6),
    "mean": lambda: Mean(members(), views=("same", "mirror", "shift:1,0")),
}


def images_of(net, count=24):
    """Inside of [0, 1], at its corners, and next to these."""
    inside = torch.rand(count, *net.shape)
    corner = torch.randint(2, inside.shape).float()
    beside = (corner - torch.finfo(torch.float32).eps * torch.rand_like(corner).round()).abs()
    return torch.cat([inside, corner, beside, inside.round(decimals=1), corner[:1] * 0, corner[:1] * 0 + 1])


def boxes_of(net):
    x = images_of(net)
    radius = torch.tensor([0.0, 1e-6, 0.05, 0.4, 1.0])[torch.randint(5, (len(x), 1, 1, 1))]
    return Box((x - radius).clamp(0, 1), (x + radius).clamp(0, 1))


def assert_same_bits(one, two):
    """Of logits, gradients, bounds of boxes, of the rounding, and of all that is proved."""
    images, box = images_of(one), boxes_of(one)
    results = []
    for net in (one, two):
        x = images.clone().requires_grad_()
        logits = net(x)
        (slope,) = torch.autograd.grad(logits.square().sum(), x)
        found = [logits.detach(), slope, *net.features_box(box)]
        if not isinstance(net, Mean | DistNetMLP | ConvDistNetMLP):
            found += net.readout.forward_box(Box(*found[-2:]))
        error = rounding_error(net)
        found += [torch.tensor([error, flush_error(net, error), net.lipschitz])]
        for method in ("margin", "box"):
            proof = certify(net, images[::4], "0.05", method=method)
            found += [proof.radius, proof.certified]
        results.append(found)
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def idle(one, two):
    """Count the weights that differ."""
    return sum(int((a != b).sum()) for a, b in zip(one.parameters(), two.parameters(), strict=True))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(sorted(NETS)), scale=st.sampled_from([0.1, 1.0, 1.0, 30.0]))
def test_a_pruned_network_has_the_same_bits(seed, name, scale):
    torch.manual_seed(seed)
    net = NETS[name]() if name == "mean" else trained_a_little(NETS[name](), scale)
    whole = {key: each.clone() for key, each in net.state_dict().items()}
    pruned = prune(net)
    assert all(torch.equal(each, whole[key]) for key, each in net.state_dict().items())
    assert (net.pruned, pruned.pruned) == (False, True)
    assert_same_bits(net, pruned)
    assert idle(pruned, prune(pruned)) == 0


@pytest.mark.parametrize("name", [name for name in NETS if name != "convolutions"])
def test_much_is_pruned(name):
    torch.manual_seed(1)
    net = NETS[name]() if name == "mean" else trained_a_little(NETS[name]())
    distances = [each for each in net.modules() if isinstance(each, DistLinear | NearestClass)]
    assert idle(net, prune(net)) > 0.2 * sum(each.weight.numel() for each in distances)


def test_every_weight_that_is_left_out_is_idle_however_the_inputs_lie():
    """By hand: of |x − 3|, |x − 0.5| and |x + 0.2| for x of [0, 1] each, only the first is ever the largest."""
    net = Composed(Stack(Flatten()), NearestClass(3, 2), (3, 1, 1)).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.tensor([[3.0, 0.5, -0.2], [0.5, 0.7, -1.1]]))
    pruned = prune(net).last.weight
    assert pruned[0].tolist() == [3.0, 0.5, 0.5]  # 2 <= |x − 3| is more than all others; 0.5 is the middle
    assert pruned[1].tolist() == [0.5, 0.5, pytest.approx(-1.1)]  # 1.1 <= |x + 1.1|


def test_outside_of_the_images_and_at_finite_p_it_is_another_network():
    torch.manual_seed(2)
    net = trained_a_little(NETS["plain"]())
    pruned, x = prune(net), images_of(net)
    assert not torch.equal(net(x, 8.0), pruned(x, 8.0))
    assert not torch.equal(net(100 * x - 50), pruned(100 * x - 50))


def test_what_cannot_be_pruned_says_why():
    net = NETS["plain"]()
    with pytest.raises(ValueError, match=r"call network\.eval\(\) first"):
        prune(net.train())
    with pytest.raises(TypeError, match=r"this one is in torch\.float16"):
        prune(net.eval().half())
    layer = DistLinear(4, 4)
    with pytest.raises(ValueError, match="share weights"):
        prune(Composed(Stack(Flatten(), layer, layer), NearestClass(4, 2), (1, 2, 2)).eval())


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("compact", [False, True])
def test_a_pruned_file_holds_the_same_network_in_fewer_bytes(name, compact, tmp_path):
    torch.manual_seed(3)
    net = NETS[name]() if name == "mean" else trained_a_little(NETS[name]())
    whole, small = tmp_path / "whole.safetensors", tmp_path / "small.safetensors"
    save(net, whole, {"note": "kept"}, compact=compact)
    save(net, small, {"note": "kept"}, compact=compact, prune=True)
    one, two = load(whole), load(small)
    assert_same_bits(one, two)
    assert (one.pruned, two.pruned) == (False, True)
    header = header_in(small.read_bytes(), small)
    assert header["pruned"] is True
    assert header["note"] == "kept"
    assert two.class_names == net.class_names
    save(one, tmp_path / "again.safetensors", {"note": "kept"}, compact=compact, prune=True)
    assert (tmp_path / "again.safetensors").read_bytes() == small.read_bytes()


def test_a_large_file_becomes_much_smaller(tmp_path):
    torch.manual_seed(4)
    net = trained_a_little(DistNet((3, 8, 8), 10, 200, 3, [0.4] * 3, 0.3))
    save(net, tmp_path / "whole.safetensors", compact=True)
    save(net, tmp_path / "small.safetensors", compact=True, prune=True)
    sizes = [(tmp_path / f"{name}.safetensors").stat().st_size for name in ("whole", "small")]
    assert sizes[1] < 0.5 * sizes[0]


def test_a_pruned_network_saved_whole_still_says_that_it_was_pruned(tmp_path):
    save(prune(trained_a_little(NETS["plain"]())), tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").pruned


# --- files ----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    shape=st.lists(st.integers(0, 19), max_size=3),
    dtype=st.sampled_from([torch.int16, torch.float32, torch.float64]),
    common=st.floats(0, 1),
)
def test_packing_keeps_every_bit(seed, shape, dtype, common, tmp_path_factory):
    torch.manual_seed(seed)
    values = torch.where(torch.rand(shape) < common, -0.0, torch.randn(shape) * 1000).to(dtype)
    if dtype.is_floating_point and values.numel():
        values.view(-1)[0] = math.nan
    tensors = {"one": values, "two": values.clone().flatten()[:1]}
    packed, described = pack(tensors)
    again = unpack({PACKED: packed}, json.loads(json.dumps(described)), tmp_path_factory.getbasetemp())
    for name, each in tensors.items():
        assert again[name].dtype == each.dtype
        assert again[name].shape == each.shape
        assert again[name].numpy().tobytes() == each.numpy().tobytes()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    torch.manual_seed(5)
    path = tmp_path_factory.mktemp("small") / "model.safetensors"
    save(trained_a_little(NETS["plain"]()), path, compact=True, prune=True)
    return path


MATRIX = "body.layers.2.weight"


def entry(header, **changes):
    header[PACKED][MATRIX].update(changes)


def stream(change):
    def changed(header, tensors):
        data = change(zlib.decompress(tensors[PACKED].numpy().tobytes()))
        tensors[PACKED] = torch.frombuffer(bytearray(data), dtype=torch.uint8)

    return changed


HOSTILE = {
    "not described": (lambda header, tensors: header.update(packed=[1]), "must be described by a JSON object"),
    "no bytes": (lambda header, tensors: tensors.update(packed=torch.zeros(3)), "its only tensor must be 'packed'"),
    "another tensor": (lambda header, tensors: tensors.update(more=torch.zeros(3)), "its only tensor must be"),
    "a shape below zero": (lambda header, tensors: entry(header, shape=[-1, 17]), "is described by"),
    "a shape of words": (lambda header, tensors: entry(header, shape="17"), "is described by"),
    "a shape of truth": (lambda header, tensors: entry(header, shape=[True, 17]), "is described by"),
    "no such type": (lambda header, tensors: entry(header, dtype="U8"), "is described by"),
    "another key": (lambda header, tensors: entry(header, more=1), "is described by"),
    "more than the mask has": (lambda header, tensors: entry(header, kept=10**6), "is described by"),
    "one more than the mask has": (
        lambda header, tensors: entry(header, kept=header[PACKED][MATRIX]["kept"] + 1), "are damaged"
    ),
    "a bomb": (lambda header, tensors: entry(header, shape=[2**30, 2**30]), "would unpack"),
    "a bomb of masks": (lambda header, tensors: entry(header, shape=[2**13, 2**13], kept=1), "would unpack"),
    "a long stream": (stream(lambda data: zlib.compress(data + bytes(10**7))), "are damaged"),
    "bytes after the stream": (stream(lambda data: zlib.compress(data) + b"more"), "are damaged"),
    "half a stream": (stream(lambda data: zlib.compress(data)[:-9]), "are damaged"),
    "no stream": (stream(lambda data: data), "are damaged"),
    "another checksum": (stream(lambda data: zlib.compress(data)[:-1] + b"\0"), "are damaged"),
    "masks of ones": (stream(lambda data: zlib.compress(b"\xff" * len(data))), "its mask does not fit"),
    "pruned by words": (lambda header, tensors: header.update(pruned="yes"), "must be true or false"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_packed_files_that_nobody_wrote_are_refused(case, small, tmp_path):
    path = tmp_path / "model.safetensors"
    tensors, header = load_tensors(small)
    change, message = HOSTILE[case]
    change(header, tensors)
    save_tensors(path, tensors, header)
    with pytest.raises(ValueError, match=r"model\.safetensors") as refused:
        load(path)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_changed_files_are_read_or_refused(small, tmp_path):
    path, draw = tmp_path / "model.safetensors", random.Random(6)
    for _ in range(300):
        path.write_bytes(change(small.read_bytes(), ".safetensors", draw))
        with suppress(*REFUSED):
            assert all(each.isfinite().all() for each in load(path).state_dict().values())


def test_what_would_look_like_a_bomb_is_saved_as_it_is(tmp_path):
    net = DistNet((1, 100, 100), 2, 3000, 2, [0.5], 0.3).eval()
    with torch.no_grad():
        for each in net.parameters():
            each.zero_()
    save(net, tmp_path / "model.safetensors", prune=True)
    assert torch.equal(load(tmp_path / "model.safetensors").last.weight, net.last.weight)


# --- members by name ------------------------------------------------------------------------------


@pytest.fixture
def mean(tmp_path):
    """A mean whose file names one member of two, which lies beside it."""
    torch.manual_seed(7)
    one, two = members()
    save(two, tmp_path / "two.safetensors", compact=True, prune=True)
    both = Mean([one, load(tmp_path / "two.safetensors")], views=("same", "mirror"))
    save(both, tmp_path / "whole.safetensors", compact=True)
    save(both, tmp_path / "mean.safetensors", compact=True, prune=True, members=("two",))
    return tmp_path / "mean.safetensors"


def test_a_mean_names_members(mean):
    whole, named = load(mean.with_name("whole.safetensors")), load(mean)
    assert_same_bits(whole, named)
    assert named.config == whole.config
    config = header_in(mean.read_bytes(), mean)["config"]
    sha256 = hashlib.sha256(mean.with_name("two.safetensors").read_bytes()).hexdigest()
    assert config["members"][1] == {"name": "two", "sha256": sha256}
    assert not any("mean.members.1" in name for name in header_in(mean.read_bytes(), mean)[PACKED])
    save(named, mean.with_name("alone.safetensors"))
    mean.with_name("two.safetensors").unlink()
    assert_same_bits(whole, load(mean.with_name("alone.safetensors")))


def test_a_member_that_is_missing_or_another_is_refused(mean):
    member = mean.with_name("two.safetensors")
    save(load(member), member)  # the same network in another file
    with pytest.raises(ValueError, match=r"mean with another 'two' than .*two\.safetensors: get the file with the sha"):
        load(mean)
    member.unlink()
    with pytest.raises(FileNotFoundError, match=r"mean with 'two', which is neither beside it nor in the zoo"):
        load(mean)


@pytest.mark.parametrize("name", ["../two", "/etc/passwd", "two.safetensors\0", "", "Two", 3, None, ["two"]])
def test_a_name_that_leads_elsewhere_is_refused(name, mean):
    tensors, header = load_tensors(mean)
    header["config"]["members"][1]["name"] = name
    save_tensors(mean, tensors, header)
    with pytest.raises(ValueError, match="a member by name is a network of the zoo, or beside this file"):
        load(mean)


def test_members_that_do_not_fit_are_refused(mean):
    tensors, header = load_tensors(mean)
    named = header["config"]["members"][1]
    for members, message in [
        ([named, named], "at most 16 different ones"),
        ([{"name": "mean", "sha256": hashlib.sha256(mean.read_bytes()).hexdigest()}, named], "name members of its own"),
    ]:
        header["config"]["members"] = members
        save_tensors(mean.with_name("other.safetensors"), tensors, header)
        with pytest.raises(ValueError, match=message):
            load(mean.with_name("other.safetensors"))


def test_what_load_would_refuse_is_not_saved(mean):
    path, inner = mean.with_name("outer.safetensors"), load(mean)
    with pytest.raises(ValueError, match="name members of its own"):
        save(Mean([inner, members()[0]]).eval(), path, members=("mean",))
    with pytest.raises(ValueError, match="at most 16 different ones"):
        save(inner, path, members=("two", "two"))
    assert not path.exists()


def test_a_mean_does_not_hold_what_it_names(mean):
    tensors, header = load_tensors(mean.with_name("whole.safetensors"))
    header["config"]["members"][1] = header_in(mean.read_bytes(), mean)["config"]["members"][1]
    save_tensors(mean, tensors, header)
    with pytest.raises(ValueError, match=r"holds 'mean\.members\.1\..*' of a member that it names"):
        load(mean)


def test_only_a_mean_names_members_and_only_its_own(mean):
    with pytest.raises(ValueError, match="a DistNet has none"):
        save(load(mean.with_name("two.safetensors")), mean.with_name("x.safetensors"), members=("two",))
    save(members()[0], mean.with_name("other.safetensors"))
    with pytest.raises(ValueError, match="no member of this mean is the network 'other'"):
        save(load(mean), mean.with_name("x.safetensors"), prune=True, members=("other",))
