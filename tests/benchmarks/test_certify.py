"""What certificates cost: `python -m benchmarks.certify`."""

import io
import sys

import pytest
from rich.console import Console

from benchmarks import certify as bench
from benchmarks import seconds_by_turn

from ..ops.processes import python


def test_contenders_take_turns_and_the_first_turn_does_not_count():
    order = []
    seconds = seconds_by_turn({name: lambda name=name: order.append(name) for name in "ab"}, turns=2)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert {name: len(each) for name, each in seconds.items()} == {"a": 2, "b": 2}


def test_ratios_are_formed_within_a_turn():
    cost = bench.cost({"a": [1.0, 40.0, 3.0], "b": [1.0, 20.0, 1.0]}, "a", "b", 1.5)
    assert cost == bench.Ratio("a", "b", 3000.0, 2.0, 1.5)


def test_the_table_says_it_all():
    costs = [bench.Ratio("margin", bench.FORWARD, 12.0, 1.04, 1.1), bench.Ratio("box", bench.FORWARD, 90.0, 20.0, None)]
    for large, line in (
        (bench.Large(10_000, 31.5, 48.2), "margin of 10000 images, width 5120, depth 5: 31.5 s, 48 MB more memory"),
        (bench.Large(10_000, 31.5, None), "31.5 s, memory unknown here"),
        (None, "1.04"),
    ):
        console = Console(width=120, file=io.StringIO())
        console.print(bench.terminal(costs, large))
        text = console.file.getvalue()
        assert line in text
        assert "1.1" in text


@pytest.mark.slow
def test_the_command():
    result = python("-m", "benchmarks.certify", "--quick")
    assert result.returncode == 0, result.stderr
    for what in ("margin", "box, one radius", "box, largest radius", "one image, margin", "PGD, 20 steps"):
        assert what in result.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
def test_images_on_the_papers_network_stay_within_their_share_of_a_gigabyte():
    """A tenth of what ten thousand images may take, for a quarter of them: memory does not grow with their number."""
    run = python("-c", "from benchmarks.certify import measure_large\nprint(measure_large(2500).megabytes)")
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < bench.LARGE_MEMORY / 10
