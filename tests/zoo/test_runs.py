"""What a run took, though it may have been stopped and resumed."""

import json
import shutil

import pytest

from linfdist.runs import read_run


def test_the_seconds_of_all_parts_are_added_up(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    seconds = [10.0, 20.0, 5.0, 15.0, 15.5, 1.0]  # resumed twice
    lines = [json.dumps({"step": k, "seconds": value}) for k, value in enumerate(seconds)]
    (copy / "metrics.jsonl").write_text("\n".join(lines))
    assert read_run(copy).seconds == 20 + 15.5 + 1
    assert 0 < read_run(run).seconds < 600
    assert read_run(run).recipe.width == 32


@pytest.mark.parametrize("text", ["{", "3", '{"step": 1}', '{"step": 1, "seconds": "long"}'])
def test_damaged_metrics_are_refused(run, tmp_path, text):
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "metrics.jsonl").write_text(text)
    with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged"):
        read_run(copy)
