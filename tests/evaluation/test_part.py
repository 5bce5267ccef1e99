"""The file of an evaluation under way: cut off anywhere, it can be resumed; changed by others, it cannot."""

import dataclasses
import json
import re

import pytest

from linfdist.evaluation.settings import Done, Part

from .files import names, row
from .test_settings import SETTINGS

BATCHES = {1: range(2, 4), 3: range(6, 7)}
ATTACKS = {"pgd": (False, 1, 0.25), "strong": (True, 0, 0.25)}
FIRST = Done([row(2, attacks=ATTACKS), row(3, prediction=0)], {"certify": 1.0, "pgd": 0.5})
SECOND = Done([row(6, attacks=ATTACKS)], {"certify": 2.0})


def part(path, settings=SETTINGS):
    return Part(path / "rows.jsonl.part", settings, BATCHES)


@pytest.fixture
def content(tmp_path):
    """A finished part."""
    writer = part(tmp_path)
    writer.start()
    writer.add(1, FIRST)
    assert writer.missing == [3]
    writer.add(3, SECOND)
    assert writer.missing == []
    assert names(tmp_path) == {"rows.jsonl.part"}
    return writer.path.read_bytes()


def resumed(path, content):
    (path / "rows.jsonl.part").write_bytes(content)
    reader = part(path)
    reader.resume()
    return reader


def test_round_trip(content, tmp_path):
    reader = resumed(tmp_path, content)
    assert reader.missing == []
    assert reader.rows() == FIRST.rows + SECOND.rows
    assert reader.seconds() == {"certify": 3.0, "pgd": 0.5}


def test_cut_off_anywhere(content, tmp_path):
    """After the first line, which is written whole or not at all."""
    ends = [match.end() for match in re.finditer(b"\n", content)]
    near_ends = {end + offset for end in ends for offset in (-2, -1, 0, 1, 2)}
    for length in sorted({*range(ends[0], len(content), 50), *near_ends} & {*range(ends[0], len(content) + 1)}):
        reader = resumed(tmp_path, content[:length])
        expected = sum(length >= end for end in ends[1:])
        assert reader.missing == [1, 3][expected:]
        for batch, done in ((1, FIRST), (3, SECOND)):
            if batch in reader.missing:
                reader.add(batch, done)
        assert reader.path.read_bytes() == content


def test_in_any_order(content, tmp_path):
    header, one, two, _ = content.split(b"\n")
    assert resumed(tmp_path, b"\n".join([header, two, one, b""])).rows() == FIRST.rows + SECOND.rows


def test_other_settings_are_refused(content, tmp_path):
    reader = part(tmp_path, dataclasses.replace(SETTINGS, eps="0.2", attacks=("pgd",)))
    with pytest.raises(
        ValueError, match=r"eps: 0\.3 there, 0\.2 now; attacks: pgd\+strong there, pgd now\): .*--fresh"
    ):
        reader.resume()
    assert reader.path.read_bytes() == content


def changed(line, **changes):
    return lambda lines: lines.__setitem__(line, json.dumps({**json.loads(lines[line]), **changes}).encode())


def json_rows(*rows):
    return [row.as_json() for row in rows]


def changed_row(**changes):
    one, other = json_rows(*FIRST.rows)
    return changed(1, rows=[{**one, **changes}, other])


DAMAGE = {
    "empty": (lambda lines: lines.clear(), "line 1"),
    "no header": (lambda lines: lines.pop(0), "line 1"),
    "another format": (changed(0, format="other"), "line 1"),
    "header is a list": (lambda lines: lines.__setitem__(0, b"[]"), "line 1"),
    "garbage": (lambda lines: lines.__setitem__(1, b"\xff\x00"), "line 2"),
    "deep": (lambda lines: lines.__setitem__(1, b"[" * 100_000), "line 2"),
    "a number": (lambda lines: lines.__setitem__(1, b"3"), "line 2: must be a batch with its rows and seconds, got 3"),
    "a batch twice": (lambda lines: lines.insert(3, lines[1]), "line 4: batch 1 does not belong"),
    "a batch of another shard": (changed(1, batch=0), "batch 0 does not belong to this file"),
    "rows missing": (changed(1, rows=json_rows(*FIRST.rows[:1])), "batch 1 must have 2 rows"),
    "rows swapped": (changed(1, rows=json_rows(*FIRST.rows[::-1])), "the row of image 3 is where that of image 2"),
    "no seconds": (changed(1, seconds=None), "seconds must be numbers, got None"),
    "a key more": (changed_row(code="x"), "line 2, row 1: must be a JSON object with the keys"),
    "radius is text": (changed_row(radius="0.3"), "row 1: radius must be a finite number from 0 on, got '0.3'"),
    "radius is NaN": (changed_row(radius=float("nan")), "NaN"),
    "radius is negative": (changed_row(radius=-0.5), "got -0.5"),
    "certified is 1": (changed_row(certified=1), "certified must be true or false, got 1"),
    "label is true": (changed_row(label=True), "label must be a whole number from 0 to 99999, got True"),
    "attack missing": (changed_row(attacks={}), "image 2 has attacks 'none', not pgd, strong"),
    "attack without size": (changed_row(attacks={"pgd": {}, "strong": {}}), "attack 'pgd': must be a JSON object"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "told"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_refused(content, tmp_path, damage, told):
    lines = content.split(b"\n")[:-1]
    damage(lines)
    damaged = b"".join(line + b"\n" for line in lines)
    with pytest.raises(ValueError, match=rf"rows\.jsonl\.part is damaged.*{re.escape(told)}.*--fresh"):
        resumed(tmp_path, damaged)
    assert (tmp_path / "rows.jsonl.part").read_bytes() == damaged


def test_numbers_that_are_none_are_never_written(tmp_path):
    writer = part(tmp_path)
    writer.start()
    before = writer.path.read_bytes()
    with pytest.raises(ValueError, match="JSON compliant"):
        writer.add(3, Done([row(6, radius=float("nan"), attacks=ATTACKS)], {}))
    assert writer.path.read_bytes() == before
