"""Evaluations in shards: put together by whoever ends last, and refused when something does not fit."""

import dataclasses

import pytest

from linfdist.evaluation import Shard, Violated
from linfdist.runs.folder import Results

from .files import names, same_results


@pytest.mark.parametrize("count", [2, 3, 7])  # of four batches
def test_shards(whole, call, tmp_path, count):
    order = [*range(2, count + 1), 1]
    for number in order[:-1]:
        result = call(tmp_path, shard=Shard(number, count))
        assert result.summary["shard"] == f"{number}/{count}"
        assert f"{number}/{count}" not in result.waiting
        assert "1/" + str(count) in result.waiting
        assert (tmp_path / f"rows-{number}-of-{count}.jsonl").exists()
        assert call(tmp_path, shard=Shard(number, count)).before
    assert not (tmp_path / "summary.json").exists()
    result = call(tmp_path, shard=Shard(1, count))
    assert result.waiting == ()
    assert "shard" not in result.summary
    same_results(tmp_path, whole)
    for shard in (Shard(2, count), Shard(1, 1), Shard(3, 4)):
        assert call(tmp_path, shard=shard).before


def test_two_shards_are_finished_at_once(whole, call, tmp_path, monkeypatch):
    """Both before either looks for the other: one of them puts them together, the other finds that done."""
    write = Results.write

    def overtaken(self, *arguments):
        summary = write(self, *arguments)
        if self.suffix == "-2-of-2":
            assert call(tmp_path, shard=Shard(1, 2)).waiting == ()
        return summary

    monkeypatch.setattr(Results, "write", overtaken)
    result = call(tmp_path, shard=Shard(2, 2))
    assert result.summary["shard"] == "2/2"
    assert result.waiting == ()
    same_results(tmp_path, whole)


def test_what_is_left_of_shards_does_not_hide_the_whole(whole, call, tmp_path):
    """Killed while it removed the shards' files."""
    for number in (1, 2):
        call(tmp_path / str(number), shard=Shard(number, 2))
    shard, out = tmp_path / "2", tmp_path / "1"
    left = {path.name: path.read_bytes() for path in shard.iterdir() if path.suffix in (".json", ".jsonl")}
    for name, content in left.items():
        (out / name).write_bytes(content)
    assert call(out, shard=Shard(1, 2)).waiting == ()  # copied by hand: put together here
    same_results(out, whole)
    for name, content in left.items():
        (out / name).write_bytes(content)
    result = call(out, shard=Shard(2, 2))
    assert result.before
    assert "shard" not in result.summary


def test_a_shard_of_other_settings_is_not_put_together(whole, call, tmp_path):
    call(tmp_path, shard=Shard(1, 2), eps="0.2")
    result = call(tmp_path, shard=Shard(2, 2))
    assert result.waiting == ("1/2 (there with other settings: eps: 0.2 there, 0.1 now)",)
    with pytest.raises(ValueError, match=r"summary-1-of-2\.json is of .*eps: 0\.2 there, 0\.1 now"):
        call(tmp_path, shard=Shard(1, 2))
    call(tmp_path, shard=Shard(1, 2), fresh=True)
    same_results(tmp_path, whole)


def test_a_shard_that_was_changed_is_refused(call, tmp_path):
    call(tmp_path, shard=Shard(1, 2))
    rows = tmp_path / "rows-1-of-2.jsonl"
    rows.write_text(rows.read_text().replace('"certified": false', '"certified": true', 1))
    with pytest.raises(ValueError, match=r"rows-1-of-2\.jsonl is damaged \(summary-1-of-2\.json was not made from it"):
        call(tmp_path, shard=Shard(2, 2))
    with pytest.raises(ValueError, match=r"rows-1-of-2\.jsonl is damaged"):
        call(tmp_path, shard=Shard(1, 2))
    assert not (tmp_path / "summary.json").exists()


def test_a_wrong_row_is_found_when_shards_are_put_together(call, tmp_path):
    """Even by a process that saw nothing of it."""
    call(tmp_path, shard=Shard(1, 2))
    place = Results(tmp_path, "-1-of-2")
    rows = place.rows(place.summary(), None, ["pgd"])
    wrong = next(row for row in rows if row.correct and row.attacks["pgd"].broken)
    place.write([dataclasses.replace(row, radius=0.9) if row is wrong else row for row in rows], place.summary())
    with pytest.raises(Violated, match=rf"image {wrong.index}: radius 0\.9, but pgd makes it class"):
        call(tmp_path, shard=Shard(2, 2))
    assert {f"violation-{wrong.index}.{end}" for end in ("png", "json")} <= names(tmp_path)
    assert not (tmp_path / "summary.json").exists()
