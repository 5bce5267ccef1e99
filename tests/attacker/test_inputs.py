"""Samples, labels and radii that do not say what they are: each is refused at every door, and none is guessed at."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

import linfdist as ld
from linfdist.attacks import attack, smallest
from linfdist.baselines import smoothed
from linfdist.certificates.milp import true_radius
from linfdist.data import Dataset
from linfdist.eps import as_text, parse_eps
from linfdist.evaluation import evaluate
from linfdist.exact import freeze
from tests.certificates.nets import random_net

SHAPE = (6, 1, 3, 3)


@pytest.fixture(scope="module")
def net():
    return random_net(0)


@pytest.fixture(scope="module")
def exact(net):
    return freeze(net)


@pytest.fixture
def doors(net, exact, tmp_path):
    """Every function that takes samples, by name."""
    y = torch.zeros(6, dtype=torch.int64)
    return {
        "certify": lambda x: ld.certify(net, x, "0.1"),
        "certify exact": lambda x: ld.certify(exact, x, "0.1"),
        "certify on a device": lambda x: ld.certify(net, x, "0.1", device="cpu"),
        "predict": lambda x: ld.certificates.predict(net, x, "0.1"),
        "Certifier": lambda x: ld.Certifier(net)(x, None),
        "attack": lambda x: attack("pgd")(net, x, y, "0.1"),
        "attack exact": lambda x: attack("pgd")(exact, x, y, "0.1"),
        "smallest": lambda x: smallest(net, x, y),
        "smoothed": lambda x: smoothed(net, x, "0.1", sigma=0.1, samples=4),
        "milp": lambda x: true_radius(net, x),
        "exact": exact,
        "evaluate": lambda x: evaluate(net, Dataset("mine", x, y, ("a", "b", "c", "d")), "0.1", tmp_path),
        "train": lambda x: ld.train("digits-quick", x, y, settings={"epochs": 1}),
    }


def tensors():
    ones = torch.ones(SHAPE)
    yield "masked", torch.masked.masked_tensor(ones, ones > 0), "MaskedTensor"
    yield "sparse", ones.to_sparse(), "sparse"
    yield "quantised", torch.quantize_per_tensor(ones, 1.0, 0, torch.quint8), "quantised|floating-point|8-bit"
    yield "complex", ones.to(torch.complex64), "complex"
    yield "nested", torch.nested.nested_tensor(list(ones)), "nested|NestedTensor"
    yield "without values", ones.to("meta"), "without values"
    yield "a subclass", ones.as_subclass(type("Other", (torch.Tensor,), {})), "Other"
    for dtype in (torch.bool, torch.int8, torch.int16, torch.int32, torch.int64):
        yield str(dtype), ones.to(dtype), str(dtype).removeprefix("torch.")


def arrays():
    ones = np.ones(SHAPE)
    yield "masked", np.ma.masked_array(ones, mask=ones > 0), "MaskedArray"
    yield "object", ones.astype(object), "object"
    yield "matrix", np.ones((6, 9)).view(np.matrix), "matrix"
    for name in ("bool", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "longdouble", "complex128"):
        yield name, ones.astype(name), np.dtype(name).name


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_of_every_kind_at_every_door(doors):
    wrong = []
    for kind, x, _ in tensors():
        for name, door in doors.items():
            try:
                door(x)
            except (TypeError, ValueError):
                continue
            wrong.append((kind, name))
    assert wrong == []


@pytest.mark.parametrize("door", ["certify", "certify exact", "predict", "Certifier", "train", "certify on a device"])
@pytest.mark.parametrize(("kind", "x", "reason"), list(arrays()))
def test_arrays_of_every_kind(doors, door, kind, x, reason):
    with pytest.raises(TypeError, match=reason):
        doors[door](x)


def test_whole_numbers_are_no_intensities(net):
    """0 and 1 as int64 were taken for black and white, and as uint8 for two shades of black."""
    bits = np.random.default_rng(0).integers(0, 2, SHAPE)
    ld.certify(net, bits.astype(np.uint8), None)
    ld.certify(net, bits.astype(np.float16), None)
    with pytest.raises(TypeError, match=r"x: must be bytes \(uint8\) or floats in \[0, 1\], got int64.* uint8"):
        ld.certify(net, bits, None)


def test_arrays_in_another_byte_order_or_on_the_disk(net, tmp_path):
    x = np.random.default_rng(0).random(SHAPE, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    expected = ld.certify(net, torch.tensor(x), None).radius
    for same in (x.astype(">f4"), np.load(tmp_path / "x.npy", mmap_mode="r"), x[::-1][::-1]):
        assert torch.equal(ld.certify(net, same, None).radius, expected)


@pytest.mark.parametrize("shape", [(), (3,), SHAPE])
def test_radii_that_hide_some(net, shape):
    eps = np.full(shape, 0.1)
    x = np.full(SHAPE, 0.5, dtype=np.float32)
    for images in (x, torch.tensor(x)):
        with pytest.raises(TypeError, match="MaskedArray"):
            ld.certify(net, images, np.ma.masked_array(eps, mask=eps > 0))
        with pytest.raises(TypeError, match=r"eps: .*float128|eps: .*longdouble"):
            ld.certify(net, images, np.broadcast_to(eps, SHAPE).astype(np.longdouble))
        with pytest.raises(TypeError, match="Other"):
            ld.certify(net, images, torch.tensor(eps).as_subclass(type("Other", (torch.Tensor,), {})))


def test_labels_that_hide_some(net):
    x = torch.full(SHAPE, 0.5)
    with pytest.raises(TypeError, match="MaskedArray"):
        ld.certify(net, x, "0.1", y=np.ma.masked_array([0] * 6, mask=[True] * 6))
    proof = ld.certify(net, x, "0.1")
    with pytest.raises(TypeError, match="MaskedArray"):
        proof[np.ma.masked_array([0, 1], mask=[True, False])]


@pytest.mark.parametrize(
    "y", [torch.tensor(0), torch.zeros(1, dtype=torch.int64), torch.zeros(6), [0.0] * 6, [True] * 6, 0]
)
def test_labels_that_would_be_repeated_or_rounded(net, y):
    """`smoothed` compared whatever broadcasts to its predictions."""
    x = torch.full(SHAPE, 0.5)
    for door in (
        lambda: smoothed(net, x, "0.1", sigma=0.1, y=y, samples=4),
        lambda: ld.certify(net, x, "0.1", y=y),
        lambda: attack("pgd")(net, x, y, "0.1"),
        lambda: smallest(net, x, y),
    ):
        with pytest.raises((TypeError, ValueError), match=r"y must (be|have shape \(6,\))"):
            door()


@pytest.mark.parametrize(
    ("eps", "exact"),
    [
        (np.longdouble("0.3"), Fraction(*np.longdouble("0.3").as_integer_ratio())),
        (np.nextafter(np.longdouble(0.25), 1), Fraction(*np.nextafter(np.longdouble(0.25), 1).as_integer_ratio())),
        (np.float16(0.3), Fraction(1229, 4096)),
        (np.float32(0.3), Fraction(10066330, 2**25)),
        (np.float64(0.3), Fraction(0.3)),
        (np.int64(1), Fraction(1)),
        (np.uint8(0), Fraction(0)),
        (Decimal("0.3"), Fraction(3, 10)),
        (Decimal("1e-30"), Fraction(1, 10**30)),
        (Fraction(8, 255), Fraction(8, 255)),
    ],
)
def test_a_radius_is_its_exact_value(eps, exact):
    assert parse_eps(eps) == exact
    assert type(parse_eps(eps).numerator) is int
    assert parse_eps(as_text(eps)) == exact


@pytest.mark.parametrize(
    "eps",
    [
        *(True, np.True_, np.longdouble("nan"), Decimal("inf"), Decimal("sNaN"), Decimal("1e-999999999")),
        *(torch.tensor(0.3), np.array(0.3), 0.3j, np.complex64(0.3), None, [0.3]),
    ],
)
def test_what_is_no_radius(eps):
    with pytest.raises((TypeError, ValueError), match="eps = "):
        parse_eps(eps)


def test_a_long_double_is_not_rounded_down(net):
    """A ball whose radius is one bit more than a float64 reaches further than that float64."""
    eps = np.nextafter(np.longdouble(0.25), 1)
    if eps == float(eps):
        pytest.skip("long double is float64 here")
    assert ld.certify(net, torch.full(SHAPE, 0.5), eps).eps > Fraction(1, 4)
