"""Which work there is, and when two evaluations are the same."""

import dataclasses

import pytest
import torch

from linfdist.attacks import ATTACKS
from linfdist.data import Dataset
from linfdist.evaluation import Shard, parse_attacks
from linfdist.evaluation.settings import EvaluationSettings, checksum, first_images, parse_methods

SETTINGS = EvaluationSettings("m" * 64, "digits", "d" * 64, "test", None, "0.3", "box", ("pgd", "strong"), 256)


@pytest.mark.parametrize("text", ["0/8", "9/8", "1/0", "3", "3/8/2", "a/b", "-1/8", "1.5/8", "", "3/8x", "1/9999999"])
def test_shards_that_do_not_exist(text):
    with pytest.raises(ValueError, match=r"shard = '.*' *: .*3/8"):
        Shard.parse(text)


def test_shard():
    assert Shard.parse(" 3 / 8 ") == Shard.parse("3/8") == Shard(3, 8)
    assert Shard(3, 8).suffix == "-3-of-8"
    assert Shard(1, 1).suffix == ""
    assert [str(shard) for shard in Shard(2, 3).all] == ["1/3", "2/3", "3/3"]


def test_a_shard_for_each_process(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert Shard.of_this_process() == Shard(1, 1)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert Shard.of_this_process() == Shard(3, 4)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ()),
        (["none"], ()),
        (["strong", "pgd"], ("pgd", "strong")),
        (["strong, pgd", "pgd"], ("pgd", "strong")),
        (["pgd,auto,"], ("pgd", "auto")),
    ],
)
def test_attacks(given, expected):
    assert parse_attacks(given) == expected


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["pdg"], f"attack = 'pdg': must be one of none, {', '.join(ATTACKS)}"),
        (["pgd,PGD"], "attack = 'PGD': must be one of"),
        (["none", "pgd"], "'none' cannot be combined with other attacks"),
    ],
)
def test_attacks_that_do_not_exist(given, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse_attacks(given)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"eps": "0,3"}, "is not a number"),
        ({"batch": 0}, "batch = 0: must be at least 1"),
        ({"limit": 0}, "limit = 0: must be at least 1"),
    ],
)
def test_settings_that_cannot_be(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        dataclasses.replace(SETTINGS, **change)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"eps": "0.30000000000000001"}, ["eps: 0.3 there, 0.30000000000000001 now"]),
        ({"method": "margin"}, ["method: box there, margin now"]),
        ({"radii": False}, ["radii: True there, False now"]),
        ({"attacks": ("pgd",)}, ["attacks: pgd+strong there, pgd now"]),
        ({"attacks": ()}, ["attacks: pgd+strong there, none now"]),
        ({"batch": 7}, ["batch: 256 there, 7 now"]),
        ({"limit": 5, "data_sha256": "e" * 64}, ["limit: none there, 5 now"]),
        ({"data": "mnist", "data_sha256": "e" * 64}, ["data: digits there, mnist now"]),
        ({"data_sha256": "e" * 64}, [f"data_sha256: {'d' * 12}… there, {'e' * 12}… now"]),
        ({"split": "train", "data_sha256": "e" * 64}, ["split: test there, train now"]),
        ({"model_sha256": "n" * 64}, [f"model_sha256: {'m' * 12}… there, {'n' * 12}… now"]),
        ({}, []),
        ({"eps": "3/10"}, []),  # the same number
        ({"data": "/elsewhere/digits"}, []),  # the same images in another place
    ],
)
def test_differences(change, told):
    assert dataclasses.replace(SETTINGS, **change).differences(SETTINGS.as_json()) == told


def test_methods_by_name():
    assert parse_methods("box") == ("box",)
    assert parse_methods("crown, fast-lin") == ("crown", "fast-lin")
    for text, complaint in [("ibp", "'ibp': must be one of margin, box"), ("box,", "'': must"), ("milp", "'milp'")]:
        with pytest.raises(ValueError, match=complaint):
            parse_methods(text)


def test_what_says_nothing_differs():
    """The summary of another program, say."""
    told = [text.split(":")[0] for text in SETTINGS.differences({})]
    assert told == ["data", "split", "model_sha256", "eps", "method", "attacks", "batch"]


def test_images_count_by_content():
    images, labels = torch.arange(4 * 6, dtype=torch.uint8).view(4, 1, 2, 3), torch.tensor([0, 1, 0, 1])
    whole = Dataset("a", images, labels, ("x", "y"))
    assert first_images(whole, None) is first_images(whole, 4) is first_images(whole, 9) is whole
    few = first_images(whole, 3)
    assert len(few) == len(few.images) == 3
    others = [
        few,
        Dataset("a", images.view(4, 1, 3, 2), labels, ("x", "y")),
        Dataset("a", images.flip(0), labels, ("x", "y")),
        Dataset("a", images, 1 - labels, ("x", "y")),
    ]
    assert len({checksum(each) for each in (whole, *others)}) == 5
    assert checksum(Dataset("b", images.clone(), labels.clone(), ("x", "y"))) == checksum(whole)
