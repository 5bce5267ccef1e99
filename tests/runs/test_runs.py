"""The folder of a run, read strictly: a hostile file gives a ValueError of one line that names file, line and value."""

import json
import re
import tracemalloc

import pytest
import torch

from linfdist import recipes
from linfdist.files import MOST_BYTES, MOST_LINE_BYTES, file_sha256, load_tensors, save_tensors
from linfdist.recipes import RecipeError
from linfdist.runs.folder import Gallery, Results, Run, summary_digest
from linfdist.runs.rows import Attempt, Row

ATTACKS = {"pgd": Attempt(False, 0, 0.1)}
ROWS = [
    Row(0, 0, 0, 0.25, True, 0.125, ATTACKS),
    Row(1, 1, 1, 0.05, False, 0.0, {"pgd": Attempt(True, 0, 0.0625)}),
    Row(2, 1, 0, 0.5, False, 0.5),
]
SETTINGS = {"eps": "0.1", "method": "box", "model_sha256": "m" * 64, "data": "digits", "split": "test"}
COUNTED = {"n": 3, "clean": 200 / 3, "robust": 100 / 3, "certified": 100 / 3, "mean_radius": 0.1, "attacks": {}}
EPOCH = {"epoch": 1, "step": 10, "p": 8.0, "loss": 0.5, "seconds": 1.5}


@pytest.fixture
def folder(tmp_path):
    counted = COUNTED | {"attacks": {"pgd": 100 / 3}}
    Results(tmp_path).write(ROWS, SETTINGS | counted | {"classes": ["a", "b"], "seconds": {"certify": 0.1}})
    images = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    gallery = Gallery(tuple(ROWS[:2]), images, images / 255 + 0.3, (0.3, 0.3), (1, 0), ("a", "b"))
    gallery.save(tmp_path / "gallery.safetensors")
    (tmp_path / "metrics.jsonl").write_text(json.dumps(EPOCH) + "\n" + json.dumps(EPOCH | {"p": None}) + "\n")
    (tmp_path / "recipe.json").write_text(recipes.load("digits-quick").model_dump_json())
    return tmp_path


def evaluated(folder):
    run = Run(folder)
    run.check_evaluated()
    return run


def test_a_whole_folder(folder):
    run = evaluated(folder)
    assert list(run.rows) == ROWS
    assert (run.classes, run.attacks, float(run.eps)) == (("a", "b"), ["pgd"], 0.1)
    assert run.recipe.name == run.stored_recipe["name"] == "digits-quick"
    assert [epoch["p"] for epoch in run.metrics] == [8.0, None]
    assert run.gallery.rows == tuple(ROWS[:2])
    assert run.name == folder.name


LONG = "9" * 401
DEEP = "[" * 100_000 + "]" * 100_000
NUMBERS = {  # JSON of a value, and what is said about it
    "401 digits": (LONG, LONG[:20]),
    "beyond all floats": ("1e999", "1e999"),
    "NaN": ("NaN", "NaN"),
    "infinity": ("Infinity", "Infinity"),
    "minus infinity": ("-Infinity", "-Infinity"),
    "negative": ("-1", "-1"),
    "text": ('"0.1"', "'0.1'"),
    "a lone surrogate": (r'"\ud800"', r"\ud800"),
    "null": ("null", "None"),
    "an object": ('{"a": 1}', "{'a': 1}"),
    "33 levels": ("[" * 33 + "]" * 33, "levels"),
}
CLASSES = NUMBERS | {
    "true": ("true", "True"),
    "a fraction": ("1.5", "1.5"),
    "a million million": ("1000000000000", "1000000000000"),
    "beyond the limit": ("100000", "100000"),
}


def with_value(line, key, text):
    """A JSON line with the value of one key replaced by a text, wherever it is."""
    return re.sub(rf'("{key}": )("[^"]*"|[^,}}\]]+|\[[^\]]*\])', lambda match: match[1] + text, line, count=1)


def rewrite(folder, name, number, change):
    """Change a line of a file, and let the summary speak of the file as it is."""
    path = folder / name
    lines = path.read_bytes().split(b"\n")
    lines[number - 1] = change(lines[number - 1])
    path.write_bytes(b"\n".join(lines))
    if name == "rows.jsonl":
        summary = json.loads((folder / "summary.json").read_text()) | {"rows_sha256": file_sha256(path)}
        (folder / "summary.json").write_text(json.dumps(summary | {"summary_sha256": summary_digest(summary)}))


def refused(call, *told):
    with pytest.raises(ValueError, match=re.escape(told[0])) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) in (ValueError, RecipeError)
    assert "\n" not in message
    assert len(message) < 1000
    for each in told:
        assert each in message


@pytest.mark.parametrize("key", ["index", "label", "prediction"])
@pytest.mark.parametrize("kind", CLASSES)
def test_hostile_classes(folder, key, kind):
    text, told = CLASSES[kind]
    text = "2000000" if (key, kind) == ("index", "beyond the limit") else text
    told = text if kind == "beyond the limit" else told
    rewrite(folder, "rows.jsonl", 2, lambda line: with_value(line.decode(), key, text).encode())
    refused(lambda: evaluated(folder), "rows.jsonl, line 2", told)


@pytest.mark.parametrize("key", ["radius", "margin_radius", "size"])
@pytest.mark.parametrize("kind", NUMBERS)
def test_hostile_numbers(folder, key, kind):
    text, told = NUMBERS[kind]
    if (key, kind) == ("margin_radius", "null"):
        return  # it need not be known
    rewrite(folder, "rows.jsonl", 2, lambda line: with_value(line.decode(), key, text).encode())
    refused(lambda: evaluated(folder), "rows.jsonl, line 2", told)


LINES = {
    "no JSON": (b"{", "not valid JSON"),
    "empty": (b"", "not valid JSON"),
    "not UTF-8": (b'{"index": "\xff"}', "UTF-8"),
    "UTF-16": ('{"index": 0}'.encode("utf-16"), "UTF-8"),
    "a list": (b"[]", "[]"),
    "a number": (b"3", "3"),
    "deep": (DEEP[:60_000].encode(), "not valid JSON"),
    "too long": (b" " * (MOST_LINE_BYTES + 1), "more than 65,536 bytes"),
    "a key twice": (b'{"index": 1, "index": 2}', "'index' twice"),
    "another key": (b'{"index": 1, "radii": 2}', "index, label"),
}


@pytest.mark.parametrize("name", ["rows.jsonl", "metrics.jsonl"])
@pytest.mark.parametrize("kind", LINES)
def test_hostile_lines(folder, name, kind):
    content, told = LINES[kind]
    told = {"rows.jsonl": told, "metrics.jsonl": "epoch, step and seconds" if kind == "another key" else told}[name]
    told = "levels" if kind == "deep" else told
    rewrite(folder, name, 2, lambda line: content)
    refused(lambda: evaluated(folder), f"{name}, line 2", told)


@pytest.mark.parametrize("key", ["epoch", "step", "seconds", "loss"])
@pytest.mark.parametrize("kind", NUMBERS)
def test_hostile_metrics(folder, key, kind):
    if key == "loss" and kind in ("null", "negative"):
        return
    text, told = NUMBERS[kind]
    rewrite(folder, "metrics.jsonl", 2, lambda line: with_value(line.decode(), key, text).encode())
    refused(lambda: evaluated(folder), "metrics.jsonl, line 2", told)


def test_metrics_that_were_cut_off(folder):
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert len(evaluated(folder).metrics) == 1
    (folder / "model.safetensors").touch()
    refused(Run(folder).check_trained, "metrics.jsonl is damaged", "cut off")
    path.write_bytes(b"")
    Run(folder).check_trained()


def test_an_unfinished_run(folder):
    with pytest.raises(FileNotFoundError, match=r"not the folder of a finished run: it holds no model\.safetensors"):
        Run(folder).check_trained()


OBJECTS = {
    "no JSON": ("{", "not valid JSON"),
    "a list": ("[]", "[]"),
    "deep": (DEEP, "levels"),
    "33 levels": ('{"a": ' + "[" * 33 + "]" * 33 + "}", "levels"),
    "401 digits": ('{"eps": ' + LONG + "}", LONG[:20]),
    "NaN": ('{"eps": NaN}', "NaN"),
    "a key twice": ('{"eps": "0.1", "eps": "0.9"}', "'eps' twice"),
    "a lone surrogate": (r'{"eps": "\udfff"}', r"\udfff"),
    "too large": (" " * (MOST_BYTES + 1), "more than 8,388,608 bytes"),
}


@pytest.mark.parametrize("name", ["summary.json", "recipe.json"])
@pytest.mark.parametrize("kind", OBJECTS)
def test_hostile_objects(folder, name, kind):
    content, told = OBJECTS[kind]
    (folder / name).write_text(content)
    refused(lambda: evaluated(folder), name, told)
    if name == "recipe.json":
        refused(lambda: Run(folder).recipe, name, told)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("eps", 0.1, "eps = 0.1"),
        ("eps", "9" * 401, "longer than 100"),
        ("eps", "1e-999999999", "out of range"),
        ("eps", "2", "more than 1"),
        ("method", None, "method = None"),
        ("model_sha256", [], "model_sha256 = []"),
        ("attacks", [], "attacks = []"),
        ("attacks", {"pgd": 0.0}, "attacks = {'pgd': 0.0}"),
        ("attacks", {}, "has attacks 'pgd', not none"),
        ("seconds", {"certify": "long"}, "'long'"),
        ("classes", ["a", 3], "['a', 3]"),
        ("classes", "ab", "'ab'"),
        ("classes", ["a"] * 100_001, "100001"),
        ("n", 2**60, str(2**60)),
        ("clean", True, "clean = True"),
        ("mean_radius", "0.1", "mean_radius = '0.1'"),
    ],
)
def test_hostile_summaries(folder, key, value, told):
    path = folder / "summary.json"
    summary = json.loads(path.read_text()) | {key: value}
    path.write_text(json.dumps(summary | {"summary_sha256": summary_digest(summary)}))
    refused(lambda: evaluated(folder), told)


@pytest.mark.parametrize("key", ["summary_sha256", "rows_sha256"])
def test_a_digest_that_is_none(folder, key):
    path = folder / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: 3}))
    refused(lambda: evaluated(folder), "was changed after it was written")


GALLERIES = {
    "no images": ({"images": None}, {}, "['attacked']"),
    "0 dimensions": ({"images": torch.tensor(3, dtype=torch.uint8)}, {}, "()"),
    "attacked has 0 dimensions": ({"attacked": torch.tensor(0.5)}, {}, "()"),
    "floats": ({"images": torch.zeros(2, 1, 4, 4)}, {}, "torch.float32"),
    "two channels": ({"images": torch.zeros(2, 2, 4, 4, dtype=torch.uint8)}, {}, "(2, 2, 4, 4)"),
    "empty": ({"images": torch.zeros(2, 1, 0, 4, dtype=torch.uint8)}, {}, "(2, 1, 0, 4)"),
    "not finite": ({"attacked": torch.full((2, 1, 4, 4), float("nan"))}, {}, "finite"),
    "a size too few": ({}, {"size": [0.3]}, "[0.3]"),
    "no list": ({}, {"label": 0}, "got 0"),
    "index is text": ({}, {"index": ["0", 1]}, "'0'"),
    "index of no row": ({}, {"index": [10**12, 1]}, "1000000000000"),
    "an image that is misclassified": ({}, {"index": [0, 2]}, "index 2"),
    "another radius": ({}, {"radius": [0.25, 0.06]}, "0.06"),
    "size is 0": ({}, {"size": [0, 0.3]}, "size 0"),
    "size is true": ({}, {"size": [True, 0.3]}, "size True"),
    "a negative class": ({}, {"prediction": [-1, 0]}, "prediction -1"),
    "a huge class": ({}, {"prediction": [10**12, 0]}, "prediction 1000000000000"),
    "classes": ({}, {"classes": [1, 2]}, "[1, 2]"),
    "within the proof": ({}, {"size": [0.25, 0.3]}, "the certificate is wrong"),
}


@pytest.mark.parametrize("kind", GALLERIES)
def test_hostile_galleries(folder, kind):
    tensors, header, told = GALLERIES[kind]
    path = folder / "gallery.safetensors"
    good, kept = load_tensors(path)
    save_tensors(path, {key: tensor for key, tensor in (good | tensors).items() if tensor is not None}, kept | header)
    refused(lambda: evaluated(folder), "gallery.safetensors", told)


def test_one_long_line_does_not_fill_the_memory(folder):
    """A line is refused before it is read to its end, and rows are read one by one."""
    with open(folder / "rows.jsonl", "wb") as file:
        file.truncate(2**28)  # of zeros, which take no room on the disk
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="line 1: has more than 65,536 bytes"):
            evaluated(folder)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


def test_a_name_that_is_no_text(folder):
    (folder / "gallery.safetensors").unlink()  # such names are beyond the library that reads it
    odd = folder.rename(folder.with_name("run-\udcff"))
    assert evaluated(odd).name == "run-?"
