"""What a certificate shows of itself, and its parts."""

import json
from fractions import Fraction

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
