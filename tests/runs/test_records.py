"""Files of results: whatever editors and copies do to their ends, two results never share a line."""

import pytest

from linfdist.runs.records import Record, append_records, read_records


class Kept(Record):
    """A small result."""

    name: str
    value: float


ONE, TWO, THREE = ({"name": name, "value": float(k)} for k, name in enumerate(("one", "zwei ü", "three")))


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n", "\n \n"])
def test_results_start_on_a_line_of_their_own(end, tmp_path):
    path = tmp_path / "folder" / "rows.jsonl"
    append_records(path, [ONE])
    path.write_bytes(path.read_bytes().rstrip() + end.encode())
    append_records(path, [TWO, THREE])
    append_records(path, [])
    assert read_records(path, Kept) == [Kept(**each) for each in (ONE, TWO, THREE)]
    assert path.read_bytes().count(b"}\n") >= 2


def test_half_a_result_spoils_no_other(tmp_path):
    path = tmp_path / "rows.jsonl"
    append_records(path, [ONE, TWO])
    path.write_bytes(path.read_bytes()[:-9])  # as a full disk or a power cut may leave it
    append_records(path, [THREE])
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2: is not valid JSON .*: remove this line"):
        read_records(path, Kept)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text(lines[0] + lines[2], encoding="utf-8")
    assert read_records(path, Kept) == [Kept(**ONE), Kept(**THREE)]


def test_no_file_and_an_empty_one_have_no_results(tmp_path):
    assert read_records(tmp_path / "none.jsonl", Kept) == []
    append_records(tmp_path / "rows.jsonl", [])
    assert (tmp_path / "rows.jsonl").read_bytes() == b""
    assert read_records(tmp_path / "rows.jsonl", Kept) == []
