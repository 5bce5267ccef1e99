"""Samples, labels and radii as a practitioner has them: the same answer from whatever holds them, or a refusal."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data import Dataset as TorchDataset

import linfdist as ld
from linfdist.attacks import attack, smallest
from linfdist.data import Dataset
from linfdist.data.samples import arranged, as_samples
from linfdist.exact import freeze

NAMES = ("cat", "dog", "emu", "fox")
SHORT = {"width": 8, "batch_size": 16, "epochs": 1}


def net(shape, seed=0):
    torch.manual_seed(seed)
    network = ld.models.DistNet(shape, 4, 9, 2, [0.3] * shape[0], 0.31).eval()
    network.class_names = NAMES
    return network


@pytest.fixture(scope="module")
def gray():
    """A network, 8-bit images that it decides at various radii, and labels of which it gets some wrong."""
    network = net((1, 6, 5))
    images = torch.randint(256, (30, 1, 6, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    labels = network(images.float() / 255).argmax(1)
    labels[::5] = (labels[::5] + 1) % 4
    return network, images, labels


def same(one, other):
    columns = ("prediction", "radius", "certified")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in columns)


class Pairs(TorchDataset):
    """What torch asks of a data set, and no more: an index, and a length. Images are Pillow's, labels are names."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __getitem__(self, index):
        return Image.fromarray(self.images[index, 0].numpy()), NAMES[int(self.labels[index])]

    def __len__(self):
        return len(self.images)


# --- one image, and where its axes are ------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 6, 5), (3, 6, 5), (3, 3, 4), (7, 1, 1), (1, 4, 4)])
def test_one_image_or_several_in_every_arrangement(shape):
    network = net(shape)
    x = torch.rand(6, *shape, generator=torch.Generator().manual_seed(2))
    expected = ld.certify(network, x, "0.01")
    several, single = [x, x.permute(0, 2, 3, 1)], [x[4], x[4].permute(1, 2, 0)]
    if shape[0] == 1:
        several, single = [*several, x[:, 0]], [*single, x[4, 0]]
    if shape[1:] == (1, 1):
        several, single = [*several, x[:, :, 0, 0]], [*single, x[4, :, 0, 0]]
    certifier = ld.Certifier(network)
    for given, right in ((several, expected), (single, expected[4])):
        for samples in given:
            for each in (samples, samples.numpy()):
                assert same(ld.certify(network, each, "0.01"), right)
                assert same(certifier(each, "0.01"), right)
                assert torch.equal(ld.predict(network, each, "0.01") >= 0, right.certified)
    assert len(ld.certify(network, x[4], "0.01")) == 1
    found = attack("pgd")(network, x[4], [int(expected.prediction[4])], "0.01")
    assert found.images.shape == (1, *shape)


def test_channels_come_first_where_both_fit():
    cube = torch.rand(2, 3, 3, 3)
    assert arranged(cube, [(3, 3, 3)]) is cube
    assert torch.equal(arranged(cube[0], [(3, 3, 3)]), cube[:1])


def test_layers_that_do_not_know_their_shape_guess_no_order_of_axes():
    """An array (N, 16, 3, 3) was taken for images 16 x 3 with three channels, and the pixels of each were permuted."""
    layers = torch.nn.Sequential(ld.nn.Flatten(), ld.nn.DistLinear(144, 4)).eval()
    x = torch.rand(2, 16, 3, 3)
    assert len(ld.certify(layers, x, "0.01")) == 2
    for refuses in (lambda: ld.certify(layers, x.numpy(), "0.01"), lambda: as_samples(x.numpy())):
        with pytest.raises(ValueError, match=r"in an array of shape \(2, 16, 3, 3\) channels may come first or last"):
            refuses()
    rows = as_samples(np.zeros((2, 7), np.float32))
    assert as_samples(rows.numpy()).shape == rows.shape


def test_what_fits_no_arrangement_is_refused_with_its_own_shape():
    network = net((3, 6, 5))
    for shape in ((6, 5), (2, 6, 5), (5, 6, 3), (4, 3, 5, 6), (1, 1, 3, 6, 5), ()):
        with pytest.raises(ValueError, match=r"need images \(B, 3, 6, 5\), got"):
            ld.certify(network, torch.rand(shape), "0.01")
    layers = ld.nn.Stack(ld.nn.Flatten(), ld.nn.DistLinear(30, 4)).eval()
    with pytest.raises(ValueError, match=r"a Stack does not know the shape of its images.*\(6, 5\)"):
        ld.certify(layers, torch.rand(1, 6, 5), "0.01")


def test_images_of_the_size_after_a_crop_too():
    torch.manual_seed(0)
    network = ld.models.DistNet((1, 8, 8), 4, 9, 2, [0.3], 0.31, crop=6).eval()
    for side in (6, 8):
        x = torch.rand(side, side)
        assert same(ld.certify(network, x, "0.01"), ld.certify(network, x[None, None], "0.01"))
    with pytest.raises(ValueError, match=r"need images \(B, 1, 8, 8\) or \(B, 1, 6, 6\), got \(7, 7\)"):
        ld.certify(network, torch.rand(7, 7), "0.01")


def test_a_radius_for_each_pixel_of_one_image(gray):
    network, images, _ = gray
    x, eps = images[3].float() / 255, torch.rand(6, 5, dtype=torch.float64) * 0.02
    expected = ld.certify(network, x[None], eps[None, None])
    for given, radii in ((x, eps), (x[0], eps), (x[0].numpy(), eps.numpy()), (x.permute(1, 2, 0), eps[..., None])):
        assert same(ld.certify(network, given, radii), expected)
    with pytest.raises(ValueError, match=r"eps of shape \(5, 6\) does not broadcast to x \(6, 5\)"):
        ld.certify(network, x[0], eps.T)


# --- data sets ------------------------------------------------------------------------------------


def holders(images, labels, floats=None):
    """The same images and labels, in all that may hold them."""
    floats = images.float() / 255 if floats is None else floats
    yield "arrays", (images.numpy(), labels.numpy())
    yield "channels last", (images.permute(0, 2, 3, 1).numpy(), labels.tolist())
    yield "names", (floats, [NAMES[label] for label in labels.tolist()])
    yield "ours", Dataset("mine", images, labels, NAMES)
    yield "TensorDataset", TensorDataset(floats, labels)
    yield "pairs", [(image, int(label)) for image, label in zip(images.numpy(), labels, strict=True)]
    yield "Pillow and names", Pairs(images, labels)
    yield "DataLoader", DataLoader(TensorDataset(images, labels), batch_size=7)
    yield "unbatched", DataLoader(TensorDataset(images, labels), batch_size=None)
    pillow = Pairs(images, labels)
    yield "names in batches", DataLoader(pillow, batch_size=4, collate_fn=lambda some: _stacked(some))
    yield "a generator of batches", ((images[k : k + 8], labels[k : k + 8]) for k in range(0, len(images), 8))


def _stacked(pairs):
    return torch.stack([torch.tensor(np.array(image)) for image, _ in pairs]), tuple(name for _, name in pairs)


@pytest.mark.parametrize("mode", ["P", "HSV", "YCbCr", "LAB", "CMYK", "1", "I"])
def test_images_of_pillow_whose_numbers_are_no_brightness_are_refused(mode):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)
    image = Image.fromarray(pixels).convert("L" if mode == "I" else "RGB").convert(mode)
    with pytest.raises(TypeError, match=f"x: entry 1 is an image of Pillow in mode {mode}: convert it to L or RGB"):
        ld.certify(net((1 if mode == "P" else 3, 6, 5)), [(image.convert("RGB"), 0), (image, 1)], "0.01")


def test_samples_of_two_types_are_refused(gray):
    network, images, _ = gray
    byte, pixels = torch.ones(1, 6, 5, dtype=torch.uint8), images[0].float() / 255  # as a float, 1 would be white
    for one, other in ((byte, pixels), (pixels, byte.long()), (byte.numpy(), pixels.numpy()), (pixels.numpy(), pixels)):
        with pytest.raises(TypeError, match=r"x: all must have one type, but that of image 1 is .*, that of image 0"):
            ld.certify(network, [(one, 0), (other, 1)], "0.01")


def test_a_data_set_is_certified_with_its_labels_and_predicted_without(gray):
    network, images, labels = gray
    x = images.float() / 255
    expected, bare = ld.certify(network, x, "10/255", y=labels), ld.certify(network, x, "10/255")
    assert 0 < expected.certified.sum() < bare.certified.sum() < len(x)
    for name, data in holders(images, labels):
        assert same(ld.certify(network, data, "10/255"), expected), name
    for name, data in holders(images, labels):
        assert torch.equal(ld.predict(network, data, "10/255"), bare.prediction.where(bare.certified, -1)), name
    unlabelled = DataLoader(TensorDataset(x), batch_size=4)
    assert same(ld.certify(network, unlabelled, "10/255"), bare)
    assert same(ld.certify(network, list(x), "10/255"), bare)
    assert same(ld.certify(network, unlabelled, "10/255", y=labels.tolist()), expected)


def test_a_data_set_is_attacked(gray):
    network, images, labels = gray
    expected = attack("pgd")(network, images.float() / 255, labels, "4/255")
    assert 0 < expected.broken.sum() < 30
    for name, data in holders(images, labels):
        assert torch.equal(attack("pgd")(network, data, None, "4/255").images, expected.images), name
    few = images[:2].numpy(), labels[:2].numpy()
    assert len(smallest(network, few, None, rounds=1).images) == 2
    with pytest.raises(TypeError, match="has no labels, which an attack needs"):
        attack("pgd")(network, images.float() / 255, None, "4/255")


def test_an_exact_network_takes_bytes_alone(gray):
    network, images, labels = gray
    exact = freeze(network)
    bare = ld.certify(exact, images, "1/255")
    assert same(ld.certify(exact, images[:, 0].numpy(), "1/255"), bare)
    assert len(ld.certify(exact, DataLoader(TensorDataset(images, labels), batch_size=7), "1/255")) == 30
    assert same(ld.certify(exact, images[5, 0], "1/255"), bare[5])
    with pytest.raises(TypeError, match="8-bit pixels"):
        ld.certify(exact, TensorDataset(images.float() / 255, labels), "1/255")


def test_layers_take_data_sets_too(gray):
    network, images, labels = gray
    layers = torch.nn.Sequential(*network.body, network.readout).eval()
    expected = ld.certify(network, images.float() / 255, "1/255", y=labels)
    for data in (images.permute(0, 2, 3, 1).numpy(), images[:, 0].numpy()):
        assert same(ld.certify(layers, data, "1/255", y=labels), expected)
    batches = ((images[k : k + 8], labels[k : k + 8]) for k in range(0, 30, 8))  # can be read but once
    assert same(ld.certify(layers, batches, "1/255"), expected)
    found = attack("pgd")(layers, images.float() / 255, labels, "4/255")
    assert torch.equal(found.images, attack("pgd")(network, images.float() / 255, labels, "4/255").images)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ("mnist", TypeError, "the text 'mnist'; linfdist.data.load"),
        (7, TypeError, "got int"),
        (None, TypeError, "got NoneType"),
        ({"x": 1}, TypeError, "got dict"),
        ([], ValueError, "there are none"),
        ([0.1, 0.2], TypeError, "entry 0 is neither"),
        ([[[0.1] * 5] * 6], TypeError, "entry 0 is neither"),
        ([{"image": 1}], TypeError, "entry 0 is neither"),
        ([np.zeros((6, 5)), (np.zeros((6, 5)), 1)], ValueError, "entry 1 does not have one label"),
        ([(np.zeros((6, 5)), 1), np.zeros((6, 5))], ValueError, "entry 1 does not have one label"),
        ([(np.zeros((2, 6, 5)), [1, 2, 3])], ValueError, "entry 0 does not have one label"),
        ([np.zeros((6, 5)), np.zeros((5, 6))], ValueError, r"image 1 is \(5, 6\), that of image 0 is \(6, 5\)"),
        ([(np.zeros((6, 5)), 0.7)], TypeError, "whole numbers or names of classes, got float64"),
        ([(np.zeros((6, 5)), True)], TypeError, "got bool"),
        ([(np.ma.masked_array(np.zeros((6, 5))), 1)], TypeError, "masked"),
        ([(np.zeros((6, 5)), "cow")], ValueError, "'cow' is not one of the classes, cat, dog, emu, fox"),
        ([(np.zeros((6, 5)), "foxx")], ValueError, "did you mean fox"),
        ([(np.zeros((6, 5)), 4)], ValueError, "classes 0 to 3, got 4 to 4"),
        ([(np.zeros((6, 5)), 1), (np.zeros((6, 5)), "cat")], TypeError, "got both"),
        ([(np.zeros((6, 5), np.int64), 1)], TypeError, r"bytes \(uint8\) or floats"),
        ([(np.full((6, 5), 1.5), 1)], ValueError, r"\[0, 1\]"),
    ],
)
def test_what_is_no_data_set_is_named(gray, data, error, words):
    for door in (ld.certify, ld.evaluate):
        with pytest.raises(error, match=words):
            door(gray[0], data, "1/255")


def test_names_of_classes(gray):
    network, images, labels = gray
    x, names = images.float() / 255, [NAMES[label] for label in labels.tolist()]
    expected = ld.certify(network, x, "1/255", y=labels)
    for y in (names, tuple(names), np.array(names), np.array(names, dtype=object)):
        assert same(ld.certify(network, x, "1/255", y=y), expected)
    assert expected.names == [NAMES[each] for each in expected.prediction.tolist()]
    assert expected[3].names == expected.names[3:4] == expected.to_dict()["class"][3:4]
    assert f"1 image of class {expected.names[3]}," in repr(expected[3])
    assert "class" not in repr(expected)
    other = net((1, 6, 5))
    other.class_names = None
    assert ld.certify(other, x, "1/255").names is None
    with pytest.raises(ValueError, match="y are names, but those of the network's classes are not known"):
        ld.certify(other, x, "1/255", y=names)
    other.class_names = ("cat", "dog", "cat", "fox")
    with pytest.raises(ValueError, match="two classes have the same one"):
        ld.certify(other, x, "1/255", y=["dog"] * 30)


# --- evaluate -------------------------------------------------------------------------------------


def test_every_holder_is_evaluated_alike(gray, tmp_path, monkeypatch):
    """Floats that are bytes over 255 count as these bytes, and so may resume what bytes began."""
    network, images, labels = gray
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = Dataset("mine", images, labels, NAMES)
    expected = ld.evaluate(network, mine, "2/255", tmp_path / "out", attacks=["pgd"])
    for name, data in holders(images, labels):
        found = ld.evaluate(network, data, "2/255", attacks=["pgd"])
        assert found.rows == expected.rows, name
        assert found.summary["data_sha256"] == expected.summary["data_sha256"], name
        assert found.summary["classes"] == list(NAMES)
    again = ld.evaluate(network, (images.float() / 255, labels), "2/255", str(tmp_path / "out"), attacks=["pgd"])
    assert again.before
    assert again.rows == expected.rows
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # without a folder nothing is left


def test_floats_that_are_no_bytes(gray, tmp_path):
    network, images, labels = gray
    x = images.float() / 255 * 0.99
    found = ld.evaluate(network, (x, labels), "2/255", tmp_path, attacks=["pgd"])
    proof = ld.certify(network, x, "2/255", y=labels)
    assert [row.radius for row in found.rows] == proof.radius.tolist()
    assert [row.certified for row in found.rows] == proof.certified.tolist()
    assert ld.evaluate(network, (x.double(), labels), "2/255").rows != ()
    assert not (tmp_path / "gallery.safetensors").exists()
    with pytest.raises(ValueError, match="data_sha256"):
        ld.evaluate(network, (x.half(), labels), "2/255", tmp_path, attacks=["pgd"])
    with pytest.raises(ValueError, match=r"data: floats must be in \[0, 1\], got -1\.\d+ … 1\.\d+.* Normalize"):
        ld.evaluate(network, ((x - 0.5) / 0.4, labels), "2/255")
    with pytest.raises(TypeError, match=r"Tensor of shape .* has no labels"):
        ld.evaluate(network, x, "2/255")
    with pytest.raises(ValueError, match=r"labels must have shape \(30,\)"):
        ld.evaluate(network, (x, labels[:7]), "2/255")


def test_several_radii_from_one_evaluation(gray):
    network, images, labels = gray
    result = ld.evaluate(network, (images, labels), "2/255")
    assert result.certified("2/255") == result.summary["certified"]
    for eps in ("0", "1/255", Fraction(3, 255), "10/255"):
        other = ld.evaluate(network, (images, labels), eps)
        assert result.certified(eps) == pytest.approx(other.summary["certified"], abs=100 / 30)
        assert result.certified(eps) <= other.summary["certified"]
    assert result.certified("1/255") > result.certified("10/255")


# --- radii ----------------------------------------------------------------------------------------


def says_of_radius(eps, gray):
    """What each door makes of a radius: its exact value, or its words."""
    network, images, labels = gray
    x = images.float() / 255
    found = []
    for door in (
        lambda: ld.certify(network, x[:2], eps).eps,
        lambda: ld.Certifier(network)(x[:2], eps).eps,
        lambda: Fraction(ld.evaluate(network, (images[:2], labels[:2]), eps).summary["eps"]),
        lambda: attack("pgd")(network, x[:2], labels[:2], eps) and None,
    ):
        try:
            found.append(door())
        except (TypeError, ValueError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize(
    "eps",
    [
        *("8/255", "0.1", " 1e-2 ", 0.1, 0, 1, Fraction(8, 255), Decimal("0.1"), np.float32(0.1), np.float64(0.1)),
        *("8", 8, 1.5, -0.1, "eight", "", math.nan, math.inf, "1/0", 0.1j, True),
    ],
)
def test_a_radius_means_the_same_at_every_door(eps, gray):
    certify, certifier, evaluate, attacked = says_of_radius(eps, gray)
    assert certify == certifier == evaluate
    if isinstance(certify, str):
        assert "eps = " in certify
        assert (
            attacked.replace(", or a list with one of these for each image", f", not {type(eps).__name__}") == certify
        )
    else:
        assert attacked is None
        assert certify == Fraction(*eps.as_integer_ratio()) if not isinstance(eps, str) else Fraction(eps)


@pytest.mark.parametrize("eps", [0.1, Fraction(1, 10), Decimal("0.1"), np.float32(0.1)])
def test_a_recipe_is_given_a_radius_of_any_type(eps, gray):
    _, images, labels = gray
    network = ld.train("digits-quick", images, labels, settings={**SHORT, "eps": eps})
    expected = ld.train(
        "digits-quick", images, labels, settings={**SHORT, "eps": str(Fraction(*eps.as_integer_ratio()))}
    )
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), expected.parameters(), strict=True))
    with pytest.raises(ValueError, match="eps = 8: is more than 1"):
        ld.train("digits-quick", images, labels, settings={"eps": 8})


# --- training -------------------------------------------------------------------------------------


def test_every_holder_trains_alike(gray):
    _, images, labels = gray
    expected = ld.train("digits-quick", images, labels, classes=NAMES, settings=SHORT)
    for name, data in holders(images, labels, images):
        network = ld.train("digits-quick", data, classes=NAMES, settings=SHORT)
        pairs = zip(network.state_dict().values(), expected.state_dict().values(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs), name
        assert network.class_names == NAMES
    with pytest.raises(ValueError, match="labels: the data set has its own"):
        ld.train("digits-quick", TensorDataset(images, labels), labels, settings=SHORT)


def test_labels_that_are_names_are_sorted_and_come_back(gray, tmp_path):
    _, images, labels = gray
    names = [("zebra", "ant", "newt", "bee")[label] for label in labels.tolist()]
    network = ld.train("digits-quick", images, names, settings=SHORT)
    assert network.class_names == ("ant", "bee", "newt", "zebra")
    proof = ld.certify(network, images.numpy(), "0", y=names)
    assert torch.equal(proof.certified, torch.tensor([a == b for a, b in zip(proof.names, names, strict=True)]))
    ld.save(network, tmp_path / "mine.safetensors")
    assert ld.certify(ld.load(tmp_path / "mine.safetensors"), images[0].numpy(), None).names == proof.names[:1]
    with pytest.raises(ValueError, match="labels: 'ant' is not one of the classes, bee, newt"):
        ld.train("digits-quick", images, ["ant"] * 30, classes=["bee", "newt"], settings=SHORT)


# --- what comes first -----------------------------------------------------------------------------


def test_a_wrong_first_argument_is_named(gray, tmp_path):
    network, images, labels = gray
    x = images.float() / 255
    for door in (
        lambda first: ld.certify(first, x, "0.1"),
        lambda first: ld.predict(first, x, "0.1"),
        lambda first: ld.Certifier(first, shape=(1, 6, 5)),
        lambda first: ld.evaluate(first, (x, labels), "0.1"),
        lambda first: attack("pgd")(first, x, labels, "0.1"),
        lambda first: smallest(first, x, labels),
    ):
        with pytest.raises(TypeError, match=r"first argument must be a network.* got Tensor of shape \(30, 1, 6, 5\)"):
            door(x)
        with pytest.raises(TypeError, match=r"first argument must be a network.* got ndarray of shape \(30,\)"):
            door(labels.numpy())
        with pytest.raises(TypeError, match=r"'mnist-0\.3' is the name of a network: load it first"):
            door("mnist-0.3")
        with pytest.raises(TypeError, match="a Linear cannot be certified"):
            door(torch.nn.Linear(3, 4))
    with pytest.raises(TypeError, match=r"x must be samples.* got DistNet"):
        ld.certify(network, network, "0.1")
    with pytest.raises(TypeError, match=r"recipe must be the name of a recipe.* got Tensor of shape \(30, 1, 6, 5\)"):
        ld.train(x, labels)
    with pytest.raises(TypeError, match=r"source must be the name of a network or a path, got Tensor of shape"):
        ld.load(x)
    with pytest.raises(TypeError, match=r"network must be a network, got the text .*: ld\.save\(network, path\)"):
        ld.save(str(tmp_path / "a.safetensors"), network)


def test_exact_networks_are_saved_too(gray, tmp_path):
    exact = freeze(gray[0])
    ld.save(exact, tmp_path / "exact.safetensors")
    assert ld.load(tmp_path / "exact.safetensors").checksum() == exact.checksum()
    with pytest.raises(ValueError, match="header, compact"):
        ld.save(exact, tmp_path / "other.safetensors", compact=True)
