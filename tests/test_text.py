"""Names that others have chosen are shown, and nothing in them is obeyed by a terminal or a browser."""

import io
import json

import numpy as np
import pytest
from PIL import Image
from rich.table import Table
from typer.testing import CliRunner

from linfdist import models
from linfdist.cli import app
from linfdist.errors import cell, console, printable
from linfdist.export.html import page
from linfdist.models import DistNet

EVIL = "\x1b[2J\x9b31m\u202eseY\u2066\r\n\u2028certified\x07\x08\ud800"


def obeyed(text):
    return [each for each in EVIL if each in text and not each.isprintable() and each != "\n"]


def test_what_is_written_out_and_what_stays():
    assert printable("cat") == "cat"
    assert printable("Käse ﷽ 日本 👩\u200d🔬") == "Käse ﷽ 日本 👩\u200d🔬"
    assert printable("\x1b[2J\n") == r"\x1b[2J\n"
    assert printable("a\nb\r", breaks=True) == "a\nb\\r"
    assert obeyed(printable(EVIL)) == []
    assert "\n" not in printable(EVIL)
    printable(EVIL).encode()


def test_a_console_prints_none_of_it():
    file = io.StringIO()
    screen = console(file=file, force_terminal=True, width=200)
    table = Table(title=EVIL[:-1])
    table.add_column(EVIL[:-1])
    table.add_row(cell(EVIL), "[green]yes[/]")
    screen.print(table)
    screen.print(EVIL[:-1], markup=False)
    text = file.getvalue()
    assert "\x1b[32m" in text  # its own colours
    for wrong in ("\x1b[2J", "\x9b", "\u202e", "\u2066", "\u2028", "\x07", "\x08"):
        assert wrong not in text


@pytest.fixture
def hostile(tmp_path):
    network = DistNet((1, 2, 2), 2, 3, 2, [0.3], 0.31).eval()
    network.class_names = (EVIL[:-1], EVIL[:-1] + "2")
    models.save(network, tmp_path / "network.safetensors")
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / "\x1b[2J\nverified.png")
    return tmp_path


def test_a_network_cannot_redraw_the_table_of_verdicts(hostile):
    command = ["certify", str(hostile / "network.safetensors"), str(hostile / "\x1b[2J\nverified.png"), "--eps", "0.1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert obeyed(result.output) == []
    assert r"\x1b[2J" in result.output.replace("\n", "").replace("│", "").replace(" ", "")
    lines = CliRunner().invoke(app, [*command, "--json", "-"]).stdout
    assert obeyed(lines) == []
    assert json.loads(lines)["class"].startswith("\x1b[2J")


def test_a_file_cannot_add_a_line_to_an_error(hostile):
    command = ["certify", str(hostile / "network.safetensors"), str(hostile / "\x1b[2J\nverified: all.png")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert obeyed(result.stderr) == []
    assert result.stderr.count("\n") == 1


def test_a_page_shows_names_as_they_are(hostile):
    from linfdist.exact import freeze

    network = models.load_floats(hostile / "network.safetensors")
    text = page(freeze(network), EVIL[:-1], network.class_names)
    for wrong in ("\x1b", "\u202e", r"\u202e" + "seY\u2066"):
        assert wrong not in text
