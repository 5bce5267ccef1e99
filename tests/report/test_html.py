"""The page: parses, stands alone, escapes what it shows. Charts are passed in, so most of this needs no matplotlib."""

import base64
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from linfdist import data, recipes
from linfdist.files import load_tensors
from linfdist.report.charts import Chart
from linfdist.report.gallery import halves, magnification, pictures, sheet
from linfdist.report.html import commands, page

from .test_run import at_eps, attempt, change_gallery, edit_rows, edit_summary, read_run

VOID = {"meta", "img", "br", "source"}


class Page(HTMLParser):
    """Tags must be closed in order; collects what they refer to, and the text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.references, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.words.append(text)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def picture():
    buffer = io.BytesIO()
    Image.new("L", (2, 2)).save(buffer, "PNG")
    return buffer.getvalue()


NAMES = ("certified_accuracy", "fates", "radius_by_class", "confusion", "training", "margin_vs_method")
CHARTS = {name: Chart(picture(), picture()) for name in NAMES}


def attack(rows):
    """pgd breaks the first image that is not proved; nothing else."""
    at_eps("0.1", ["pgd"])(rows)
    victim = next(row for row in rows if row["attacks"] and not row["certified"])
    victim["attacks"]["pgd"] = attempt(victim, True, 0.1)


def test_stands_alone(run):
    shown = Page(page(read_run(run), CHARTS))
    assert "script" not in shown.tags
    assert "link" not in shown.tags
    assert shown.tags.count("img") == len(CHARTS) - (read_run(run).summary["method"] == "margin") + 6 * 3
    for reference in shown.references:
        kind, _, content = reference.partition(",")
        assert kind == "data:image/png;base64"
        Image.open(io.BytesIO(base64.b64decode(content, validate=True))).load()
    assert "url(" not in page(read_run(run), {})
    assert "@import" not in page(read_run(run), {})


def test_numbers(run):
    summary = json.loads((run / "summary.json").read_text())
    text = Page(page(read_run(run), {})).text
    assert f"{summary['clean']:.2f} %" in text
    shown = float(re.search(r"([\d.]+) % proved robust at ε = 0.1", text).group(1))
    assert summary["certified"] - 0.01 < shown <= summary["certified"] + 1e-9
    assert summary["model_sha256"] in text
    assert "The paper has no result for digits at ε = 0.1" in text
    assert "No attack was run" in text


def test_attacks(run):
    edit_rows(run, attack)
    content = read_run(run)
    text = Page(page(content, {})).text
    undecided = sum(row.correct and not row.certified for row in content.rows) - 1
    assert f"{undecided:,} of 450 images are neither proved nor broken" in text
    assert "The attack that breaks most is pgd" in text


def test_beside_the_paper(run):
    edit_rows(run, at_eps("0.3"), data="mnist", eps="0.3")
    text = Page(page(read_run(run), {})).text
    assert "ℓ∞-dist Net+MLP Zhang et al., 2021, Table 1 98.56 95.28 93.09" in text
    assert "COLT Balunovic & Vechev, 2020, cited in Table 1 [2] 97.3 – 85.7" in text
    assert "Not quite comparable: this run was measured on 450 of 10,000 test images" in text
    edit_summary(run, split="train")
    assert "Not comparable: this run was measured on the train split" in Page(page(read_run(run), {})).text


def test_only_rows_and_summary(run):
    for name in ("recipe.json", "metrics.jsonl", "gallery.safetensors"):
        (run / name).unlink()
    shown = Page(page(read_run(run), {}))
    assert "img" not in shown.tags
    assert "linfdist train" not in shown.text


HOSTILE = '<script>alert("1")</script>&amp;\'"$title'


def test_hostile_names(run):
    recipe = json.loads((run / "recipe.json").read_text())
    (run / "recipe.json").write_text(json.dumps(recipe | {"source": HOSTILE, "name": HOSTILE}))
    names = dict.fromkeys(("data", "method", "split", "model_sha256"), HOSTILE)
    edit_summary(run, **names, seconds={HOSTILE: 1.0}, classes=[HOSTILE] * 10)
    run = run.rename(run.with_name("<b>'&\" run"))
    shown = Page(page(read_run(run), CHARTS))
    assert "script" not in shown.tags
    assert "<b>'&\" run" in shown.text
    assert shown.text.count(HOSTILE) >= 10 + 3


def test_hostile_attack_names(run):
    def change(rows):
        attack(rows)
        for row in rows:
            row["attacks"] = {HOSTILE: row["attacks"]["pgd"]} if row["attacks"] else {}

    edit_rows(run, change)
    shown = Page(page(read_run(run), {}))
    assert "script" not in shown.tags
    assert HOSTILE in shown.text


def test_same_run_same_bytes(run):
    content = read_run(run)
    assert page(content, CHARTS) == page(read_run(run), CHARTS)
    assert sheet(halves(content), content.classes) == sheet(halves(read_run(run)), content.classes)


def test_gallery_captions_never_promise_too_much(run):
    header = load_tensors(run / "gallery.safetensors")[1]
    text = Page(page(read_run(run), {})).text
    proved = [float(number) for number in re.findall(r"\d up to (\d\.\d{4})", text)]
    sizes = [float(number) for number in re.findall(r"\d at (\d\.\d{4})", text)]
    for shown, true in zip(sorted(proved), sorted(header["radius"]), strict=True):
        assert true - 1e-4 < shown <= true
    for shown, true in zip(sorted(sizes), sorted(header["size"]), strict=True):
        assert true <= shown < true + 1e-4


def test_gallery_pixels(run):
    """The pictures are the stored ones: image, attacked image, and a difference whose extreme is black or white."""
    exhibits = [exhibit for half in halves(read_run(run)).values() for exhibit in half]
    images = [
        Image.open(io.BytesIO(base64.b64decode(reference.partition(",")[2])))
        for reference in Page(page(read_run(run), {})).references
    ]
    assert len(images) == 18
    for k, exhibit in enumerate(exhibits):
        image, attacked, difference = (view.convert("RGB") for view in images[3 * k : 3 * k + 3])
        side = image.width // 8
        for i in range(8):
            for j in range(8):
                at = (j * side + side // 2, i * side + side // 2)
                assert image.getpixel(at) == tuple(int(v) for v in exhibit.image[i, j])
                shades = [255 * float(value) for value in exhibit.attacked[i, j]]
                assert attacked.getpixel(at) == pytest.approx(shades, abs=0.501)
        extremes = difference.convert("L").getextrema()
        largest = float(abs(exhibit.attacked - exhibit.image / 255).max())
        assert 0 in extremes or 255 in extremes
        assert float(magnification(exhibit)) == pytest.approx(max(1.0, 0.5 / largest), rel=0.05)


def test_large_differences_are_not_made_smaller(run):
    exhibit = halves(read_run(run))["Least robust"][0]
    far = replace(exhibit, image=np.zeros_like(exhibit.image), attacked=np.full_like(exhibit.attacked, 0.2))
    far.attacked[0, 0] = 0.9
    assert magnification(far) == "1"
    corner, rest = (pictures(far)[2].getpixel(at) for at in ((0, 0), (100, 100)))
    assert corner == (255, 255, 255)
    assert rest == pytest.approx([255 * 0.7] * 3, abs=0.501)


def test_no_attack_found(run):
    header = load_tensors(run / "gallery.safetensors")[1]
    change_gallery(run, size=[None, *header["size"][1:]])
    assert Page(page(read_run(run), {})).text.count("no attack found") == 1


def test_commands_repeat_the_run(run):
    content = read_run(run)
    train, evaluate, report = commands(content)
    settings = train.split(" --out ")[0].split(" --set ")[1:]
    assert settings
    again = recipes.override(recipes.load("digits-quick"), settings)
    kept = recipes.load(run / "recipe.json")
    assert again.model_dump(exclude={"source"}) == kept.model_dump(exclude={"source"})
    method = content.summary["method"]
    assert evaluate == f"linfdist evaluate runs/run --eps 0.1 --method {method}"
    assert report == "linfdist report runs/run"
    assert str(run.parent) not in page(content, {})  # nothing of this machine


def test_commands_of_a_recipe_of_ones_own(run):
    recipe = json.loads((run / "recipe.json").read_text())
    (run / "recipe.json").write_text(json.dumps(recipe | {"name": "mine"}))
    edit_rows(run, attack)
    edit_summary(run, split="train")
    train, evaluate, _ = commands(read_run(run))
    assert train == "linfdist train runs/run/recipe.json --out runs/run"
    images = data.info("digits").train
    assert images != 450
    assert evaluate.endswith("--attack pgd --split train --limit 450")


@pytest.mark.parametrize("name", ["a b", "it's; rm -rf x"])
def test_commands_are_quoted(run, name):
    commands_ = commands(read_run(run.rename(run.with_name(name))))
    assert all("'" in command for command in commands_)
