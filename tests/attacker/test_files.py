"""Files as nobody means them: domains that are none, outputs that are links, a report whose folder is one."""

import json
import os
import shutil
import stat
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from linfdist import models
from linfdist.cli import app
from linfdist.exact import load
from linfdist.models import DistNet

DOMAINS = {
    "reversed": ("white.png", "black.png"),
    "too high": ("black.png", "high.png"),
    "two of different sizes": ("high.png", "white.png"),
    "16 bits": ("black.png", "deep.png"),
    "colour": ("black.png", "colour.png"),
    "colour with a veil": ("veil.png", "white.png"),
    "text": ("black.png", "text.png"),
    "nothing": ("black.png", "empty.png"),
    "half an image": ("black.png", "half.png"),
    "a folder": ("black.png", "folder"),
    "no file": ("black.png", "missing.png"),
    "a link to nowhere": ("black.png", "link.png"),
    "a network": ("black.png", "model.safetensors"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("domains")
    models.save(DistNet((1, 4, 4), 3, 5, 2, [0.3], 0.31, identity_init=False).eval(), place / "model.safetensors", {})
    arrays = {
        "black": np.zeros((4, 4), np.uint8), "white": np.full((4, 4), 255, np.uint8),
        "high": np.full((5, 4), 255, np.uint8), "deep": np.full((4, 4), 40000, np.uint16),
        "colour": np.full((4, 4, 3), (255, 128, 0), np.uint8), "veil": np.zeros((4, 4, 4), np.uint8),
    }  # fmt: skip
    for name, array in arrays.items():
        Image.fromarray(array).save(place / f"{name}.png")
    (place / "text.png").write_text("an image")
    (place / "empty.png").touch()
    (place / "half.png").write_bytes((place / "white.png").read_bytes()[:40])
    (place / "folder").mkdir()
    (place / "link.png").symlink_to("nowhere.png")
    return place


def export(folder, domain, out):
    paths = [str(folder / name) for name in domain]
    command = ["export", str(folder / "model.safetensors"), "--format", "exact", "--out", str(out), "--domain", *paths]
    return CliRunner().invoke(app, command)


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_what_is_no_domain_is_refused_on_one_line(folder, tmp_path, domain):
    out = tmp_path / "exact.safetensors"
    out.write_bytes(b"what was there before")
    result = export(folder, domain, out)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert out.read_bytes() == b"what was there before"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_a_domain_of_one_image_and_of_all(folder, tmp_path):
    for domain in (("black.png", "black.png"), ("black.png", "white.png")):
        result = export(folder, domain, tmp_path / "exact.safetensors")
        assert result.exit_code == 0, result.output
        frozen = load(tmp_path / "exact.safetensors")
        assert frozen.whole_cube == (domain[1] == "white.png")


def test_an_output_that_is_a_link(folder, tmp_path):
    """It is written whole, to where the link leads or in its place, and nothing else is touched."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "real.safetensors").write_bytes(b"before")
    out = tmp_path / "exact.safetensors"
    out.symlink_to(tmp_path / "elsewhere" / "real.safetensors")
    assert export(folder, ("black.png", "white.png"), out).exit_code == 0
    assert load(out).classes == 3
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["elsewhere", "exact.safetensors", "real.safetensors"]


def test_an_output_that_links_to_its_own_model(folder, tmp_path):
    """`--out` leads to the network that is read: the network is not destroyed by a failure half-way."""
    model = shutil.copy(folder / "model.safetensors", tmp_path / "model.safetensors")
    before = (tmp_path / "model.safetensors").read_bytes()
    command = ["export", str(model), "--format", "exact", "--out", str(model), "--domain"]
    result = CliRunner().invoke(app, [*command, str(folder / "white.png"), str(folder / "black.png")])
    assert result.exit_code == 1
    assert (tmp_path / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("place", ["nowhere/exact.safetensors", "loop"])
def test_an_output_that_cannot_be(folder, tmp_path, place):
    os.symlink("loop", tmp_path / "loop")
    result = export(folder, ("black.png", "white.png"), tmp_path / place)
    if result.exit_code == 0:  # the loop is replaced by the file
        assert load(tmp_path / place).classes == 3
    else:
        assert result.exit_code == 1
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1


@pytest.fixture(params=["pipe", "device"])
def special(request, tmp_path):
    """What root could replace by a file."""
    path = tmp_path / "special"
    if request.param == "pipe":
        os.mkfifo(path)
    else:
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes devices")
    return path


@pytest.mark.parametrize("way", ["itself", "through a link"])
def test_an_output_that_is_no_regular_file(folder, special, tmp_path, way):
    out, before = special, special.lstat()
    if way != "itself":
        out = tmp_path / "link"
        out.symlink_to(special)
    certify = ["certify", str(folder / "model.safetensors"), str(folder / "black.png"), "--json", str(out)]
    for result in (export(folder, ("black.png", "white.png"), out), CliRunner().invoke(app, certify)):
        assert result.exit_code == 1
        assert result.stderr == f"error: cannot write {special}: it is a pipe or a device, not a regular file; " + (
            "remove it, or choose another\n"
        )
    assert (special.lstat().st_ino, special.lstat().st_mode) == (before.st_ino, before.st_mode)


def test_dev_stdout_is_the_output(folder, tmp_path):
    """Also where a shell has redirected it to a file, which must not be replaced by another one."""
    command = ["-m", "linfdist", "certify", str(folder / "model.safetensors"), str(folder / "black.png"), "--json"]
    texts = []
    for place in ("-", "/dev/stdout"):
        with open(tmp_path / "out", "wb") as file:
            subprocess.run([sys.executable, *command, place], stdout=file, check=True)
        texts.append((tmp_path / "out").read_text())
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["image"] == str(folder / "black.png")


def deep(opening: str) -> str:
    return opening * 100_000


HOSTILE = {
    "certificate": (["verify", "FILE", "black.png", "model.safetensors"], deep("[")),
    "recipe.toml": (["train", "FILE"], "a = " + deep("[")),
    "recipe.json": (["train", "FILE"], deep("[")),
    "recipe.toml, tables": (["train", "FILE"], f"[{'.'.join(['a'] * 50_000)}]"),
    "network": (["certify", "FILE", "black.png"], deep("[")),
    "image": (["certify", "model.safetensors", "FILE"], deep("[")),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("pipe", [False, True], ids=["deep", "pipe"])
def test_what_is_read_is_a_regular_file_of_few_levels(folder, tmp_path, kind, pipe):
    command, content = HOSTILE[kind]
    file = tmp_path / kind.partition(",")[0]
    os.mkfifo(file) if pipe else file.write_text(content)
    places = [str(file) if part == "FILE" else str(folder / part) if "." in part else part for part in command]
    result = CliRunner().invoke(app, places)
    assert result.exit_code in (1, 2), result.exception
    assert result.stderr.startswith(("error: ", "refused: "))
    assert str(file) in result.stderr or kind == "certificate"
    assert len(result.stderr) < 1000
