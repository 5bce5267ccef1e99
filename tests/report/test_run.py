"""Reading a run: what is missing or wrong is said clearly."""

import json

import pytest

from linfdist.files import file_sha256, load_tensors, save_tensors
from linfdist.report.gallery import halves
from linfdist.runs.folder import Run, summary_digest
from linfdist.runs.rows import attack_names, read_rows, summarise


def read_run(folder):
    run = Run(folder)
    run.check_evaluated()
    return run


def edit_summary(run, **changes):
    """Another summary, with its digest."""
    path = run / "summary.json"
    summary = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(summary | {"summary_sha256": summary_digest(summary)}))


def edit_rows(run, change, **changes):
    """Other rows, with the summary that they give; changes: of the summary."""
    path = run / "rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    change(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    edit_summary(run, rows_sha256=file_sha256(path), **changes)
    eps = json.loads((run / "summary.json").read_text())["eps"]
    try:
        parsed = read_rows(path)
    except ValueError:
        return
    edit_summary(run, **summarise(parsed, eps, attack_names(parsed)))


def at_eps(eps, attacks=()):
    """Rows as they would be at another eps, where no attack succeeds."""

    def change(rows):
        for row in rows:
            correct = row["prediction"] == row["label"]
            row["certified"] = correct and row["radius"] >= float(eps)
            row["attacks"] = {name: attempt(row) for name in attacks} if correct else {}

    return change


def attempt(row, broken=False, size=0.01):
    return {"broken": broken, "prediction": (row["label"] + broken) % 10, "size": size}


def test_everything_is_read(run):
    content = read_run(run)
    assert len(content.rows) == 450
    assert content.classes == tuple("0123456789")
    assert content.stored_recipe["name"] == content.recipe.name == "digits-quick"
    assert len(content.metrics) == 8
    assert len(content.gallery.rows) == 6
    assert [len(half) for half in halves(content).values()] == [3, 3]


def test_rows_and_summary_are_enough(run):
    for name in ("recipe.json", "metrics.jsonl", "gallery.safetensors", "model.safetensors"):
        (run / name).unlink()
    content = read_run(run)
    assert (content.stored_recipe, content.metrics, content.gallery) == (None, (), None)


def test_class_names(run):
    """Those of the summary, else those of the gallery, else numbers."""
    tensors, header = load_tensors(run / "gallery.safetensors")
    save_tensors(run / "gallery.safetensors", tensors, header | {"classes": list("abcdefghij")})
    edit_summary(run, classes=["zero", "one"])
    assert read_run(run).classes == ("zero", "one", *"23456789")
    edit_summary(run, classes=None)
    assert read_run(run).classes == tuple("abcdefghij")
    (run / "gallery.safetensors").unlink()
    assert read_run(run).classes == tuple("0123456789")


@pytest.mark.parametrize("name", ["rows.jsonl", "summary.json"])
def test_missing(run, name):
    (run / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"has no {name}; `linfdist evaluate` writes it"):
        read_run(run)


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        read_run(tmp_path / "absent")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("radius", None, "line 3: radius must be a finite number"),
        ("radius", -0.1, "line 3: radius must be a finite number"),
        ("radius", float("nan"), "line 3: is not valid JSON .NaN"),
        ("certified", 1, "line 3: certified must be true or false"),
        ("label", True, "line 3: label must be a whole number"),
        ("prediction", -1, "line 3: prediction must be a whole number"),
        ("attacks", [], "line 3: attacks must be a JSON object"),
        (
            "attacks",
            {"pgd": {"broken": None, "prediction": 1, "size": 0.1}},
            "'pgd': broken must be true or false",
        ),
        ("index", 0, "2 rows of image 0"),
    ],
)
def test_a_damaged_row(run, key, value, message):
    edit_rows(run, lambda rows: rows[2].update({key: value}))
    with pytest.raises(ValueError, match=message):
        read_run(run)


def test_no_rows(run):
    edit_rows(run, lambda rows: rows.clear())
    with pytest.raises(ValueError, match="is empty"):
        read_run(run)


def first(rows, certified):
    return next(row for row in rows if row["certified"] is certified and row["prediction"] == row["label"])


def test_a_certified_error_is_refused(run):
    edit_rows(run, lambda rows: first(rows, True).update(label=9, prediction=8))
    with pytest.raises(ValueError, match="certified for class 9, but predicted 8"):
        read_run(run)


@pytest.mark.parametrize("certified", [True, False])
def test_an_attack_within_the_proof_is_refused(run, certified):
    """Whether it is within eps, or only within the radius."""

    def change(rows):
        at_eps("0.1", ["pgd"])(rows)
        victim = next(row for row in rows if row["certified"] is certified and row["attacks"] and row["radius"] > 0)
        victim["attacks"]["pgd"] = attempt(victim, True, 0.1 if certified else victim["radius"])

    edit_rows(run, change)
    with pytest.raises(ValueError, match="the certificate is wrong"):
        read_run(run)


def test_an_image_that_was_not_attacked_is_refused(run):
    def change(rows):
        at_eps("0.1", ["pgd"])(rows)
        first(rows, True)["attacks"] = {}

    edit_rows(run, lambda rows: at_eps("0.1", ["pgd"])(rows))
    attacks = json.loads((run / "summary.json").read_text())["attacks"]
    with pytest.raises(ValueError, match="has no result of attack 'pgd'"):
        edit_rows(run, change)
    edit_summary(run, attacks=attacks)
    with pytest.raises(ValueError, match="has attacks 'none', not pgd"):
        read_run(run)


@pytest.mark.parametrize(
    ("key", "value"),
    [("n", 449), ("clean", 100.0), ("certified", 99.0), ("certified", None), ("mean_radius", 0.9), ("robust", 99.0)],
)
def test_summary_of_other_rows(run, key, value):
    edit_summary(run, **{key: value})
    with pytest.raises(ValueError, match=r"but rows\.jsonl gives"):
        read_run(run)


def test_summary_without_eps(run):
    path = run / "summary.json"
    summary = json.loads(path.read_text())
    del summary["eps"], summary["method"]
    path.write_text(json.dumps(summary | {"summary_sha256": summary_digest(summary)}))
    with pytest.raises(ValueError, match="has no eps, method"):
        read_run(run)


def test_eps_as_a_number_is_refused(run):
    edit_summary(run, eps=0.1)
    with pytest.raises(ValueError, match="must be text"):
        read_run(run)


def test_metrics_end_where_they_were_cut_off(run):
    path = run / "metrics.jsonl"
    path.write_text(path.read_text()[:-30])
    assert len(read_run(run).metrics) == 7


def change_gallery(run, **changes):
    tensors, header = load_tensors(run / "gallery.safetensors")
    save_tensors(run / "gallery.safetensors", tensors, header | changes)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("radius", 0.123, "another evaluation"),
        ("index", 10**6, "another evaluation"),
        ("size", -1.0, "size -1.0 must be"),
        ("size", "large", "size 'large' must be"),
        ("prediction", 10**12, "prediction 1000000000000 must be"),
        ("label", -1, "label -1,"),
    ],
)
def test_a_gallery_of_another_evaluation(run, key, value, message):
    header = load_tensors(run / "gallery.safetensors")[1]
    change_gallery(run, **{key: [value, *header[key][1:]]})
    with pytest.raises(ValueError, match=message):
        read_run(run)


def test_a_gallery_that_breaks_a_proof(run):
    header = load_tensors(run / "gallery.safetensors")[1]
    change_gallery(run, size=[*header["size"][:-1], header["radius"][-1]])
    with pytest.raises(ValueError, match="the certificate is wrong"):
        read_run(run)


def test_halves_when_images_were_left_out(run):
    """Images that no attack broke are not in the file; the others must not change sides."""
    tensors, header = load_tensors(run / "gallery.safetensors")
    kept = {key: values[2:] if key != "classes" else values for key, values in header.items()}
    save_tensors(run / "gallery.safetensors", {name: tensor[2:] for name, tensor in tensors.items()}, kept)
    assert [len(half) for half in halves(read_run(run)).values()] == [1, 3]


def test_a_damaged_gallery(run):
    (run / "gallery.safetensors").write_bytes(b"not tensors")
    with pytest.raises(ValueError, match="not a safetensors file"):
        read_run(run)


def test_another_eps_is_refused(run):
    """By the digest; and of a folder without one, by the rows: what is proved at 0.1 is not at 0.9, nor at 0.01."""
    path = run / "summary.json"
    before = path.read_text()
    for eps, told in (("0.9", "it is certified, but its radius is 0"), ("0.01", "it is not certified, but its radius")):
        path.write_text(before.replace('"eps": "0.1"', f'"eps": "{eps}"'))
        with pytest.raises(ValueError, match="was changed after it was written"):
            read_run(run)
        edit_summary(run)
        with pytest.raises(ValueError, match=rf"not of an evaluation at eps = {eps}: {told}"):
            read_run(run)


@pytest.mark.parametrize("key", ["method", "model_sha256", "data", "data_sha256", "split", "classes", "attacks"])
def test_settings_are_bound_to_the_rows(run, key):
    path = run / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: "other"}))
    with pytest.raises(ValueError, match="was changed after it was written"):
        read_run(run)


def test_an_attack_outside_the_ball_is_of_another_evaluation(run):
    edit_rows(run, at_eps("0.1", ["pgd"]))
    read_run(run)
    edit_rows(run, lambda rows: first(rows, True)["attacks"]["pgd"].update(size=0.11))
    with pytest.raises(ValueError, match=r"attack 'pgd' changed it by 0\.11"):
        read_run(run)
