"""What a certificate shows of itself, and its parts."""

import json
from fractions import Fraction

import numpy as np
import pytest
import torch

import linfdist as ld
from linfdist import Certificate
from linfdist.data import Dataset
from linfdist.models import DistNet

PROOF = Certificate(
    prediction=torch.tensor([7, 2, 1]),
    radius=torch.tensor([0.39999, 0.0, 0.25], dtype=torch.float64),
    certified=torch.tensor([True, False, False]),
    eps=Fraction(3, 10),
)


def test_a_short_summary_that_rounds_down():
    assert repr(PROOF) == "<Certificate: 3 images, 1 certified at 0.3, radius 0.0000 to 0.3999, median 0.2500>"
    assert PROOF[0].summary() == "1 image, 1 certified at 0.3, radius 0.3999"
    assert PROOF[:0].summary() == "0 images"
    bare = Certificate(PROOF.prediction, PROOF.radius, None, domain="0" * 64)
    assert bare.summary().startswith("3 images, radius 0.0000")
    assert bare.summary().endswith("within the domain of the network")


def test_parts():
    assert len(PROOF) == 3
    assert PROOF[-1].prediction.tolist() == PROOF[2].prediction.tolist() == [1]
    assert PROOF[1:].radius.tolist() == [0.0, 0.25]
    assert PROOF[PROOF.certified].prediction.tolist() == [7]
    assert PROOF[[2, 0]].certified.tolist() == [False, True]
    assert PROOF[1:].margin_radius is None
    assert PROOF[1:].eps == PROOF.eps
    assert [len(each) for each in PROOF] == [1, 1, 1]
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"image {index} of a certificate of 3 images"):
            PROOF[index]


def test_as_plain_lists():
    columns = json.loads(json.dumps(PROOF.to_dict()))
    assert columns["prediction"] == [7, 2, 1]
    assert columns["certified"] == [True, False, False]
    assert (columns["margin_radius"], columns["domain"], columns["eps"]) == (None, None, "3/10")


def test_a_certificate_knows_its_eps():
    torch.manual_seed(0)
    network, x = DistNet((1, 2, 2), 3, 5, 2, [0.5], 0.5).eval(), torch.rand(4, 1, 2, 2)
    assert ld.certify(network, x, "8/255").eps == Fraction(8, 255)
    assert "certified at 8/255" in ld.certify(network, x, "8/255").summary()
    assert ld.certify(network, x, None).eps is None
    assert ld.certify(network, x, torch.full((1, 1, 1, 1), 0.1)).eps is None


def test_a_data_set_shows_itself_briefly():
    images, labels = torch.zeros(1200, 1, 8, 8, dtype=torch.uint8), torch.zeros(1200, dtype=torch.int64)
    assert repr(Dataset("mine", images, labels, ("a", "b"))) == "<Dataset mine: 1,200 images of 1×8×8, 2 classes>"


def test_infinite_radii_and_long_fractions_are_never_rounded_up():
    proof = Certificate(torch.tensor([1]), torch.tensor([float("inf")]), None)
    assert proof.summary() == "1 image, radius ∞"
    for eps in (0.0299999999, 0.0699999999, 1e-9 / 3):
        said = Certificate(PROOF.prediction, PROOF.radius, PROOF.certified, eps=Fraction(eps)).summary()
        stated = said.split(" at ")[1].split(",")[0]
        assert Fraction(eps) * Fraction(99999, 100000) < Fraction(stated) <= Fraction(eps)


def test_every_kind_of_index():
    assert PROOF[np.int64(2)].prediction.tolist() == PROOF[torch.tensor(2)].prediction.tolist() == [1]
    assert PROOF[::-1].prediction.tolist() == [1, 2, 7]
    assert len(PROOF[[]]) == 0
    for index in (True, 2.5, "a", None, [0.5]):
        with pytest.raises(TypeError, match="an index must be"):
            PROOF[index]


def test_a_radius_for_each_number_of_an_array_goes_where_the_number_goes():
    """Channels last, gray, and rows: the array is moved, and its radii with it."""
    torch.manual_seed(0)
    network = DistNet((1, 6, 6), 3, 40, 2, [0.5], 0.5).eval()
    x, eps = np.random.default_rng(0).random((30, 6, 6, 1), dtype=np.float32), np.zeros((6, 1))
    eps[0] = eps[1] = 1.0  # columns
    whole = torch.zeros(1, 1, 1, 6, dtype=torch.float64)
    whole[..., :2] = 1.0
    expected = ld.certify(network, torch.tensor(x).permute(0, 3, 1, 2), whole)
    assert 0 < int(expected.certified.sum()) < 30
    for given, radii in ((x, eps), (x, np.broadcast_to(eps, x.shape)), (x[..., 0], eps[:, 0]), (x, torch.tensor(eps))):
        assert torch.equal(ld.certify(network, given, radii).certified, expected.certified)
    with pytest.raises(ValueError, match=r"eps of shape \(5, 1\) does not broadcast to x \(30, 6, 6, 1\)"):
        ld.certify(network, x, np.zeros((5, 1)))
