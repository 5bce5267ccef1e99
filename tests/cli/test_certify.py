import json
from fractions import Fraction

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import linfdist as ld
from linfdist import data, models, recipes
from linfdist.cli import app
from linfdist.training import train


@pytest.fixture(scope="module")
def run_folder(digits, tmp_path_factory):
    """A net of 12 neurons a layer that has learned the digits somewhat."""
    folder = tmp_path_factory.mktemp("run")
    recipe = recipes.load("digits-quick").override({"width": 12, "batch_size": 128, "epochs": 15})
    train(recipe, folder, data_dir=digits, quiet=True)
    return folder


@pytest.fixture
def certify(run_folder, digits, monkeypatch, tmp_path):
    """The command on a folder `few` with four digits as PNG files."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    test = data.load("digits", split="test", data_dir=digits)
    (tmp_path / "few").mkdir()
    for k in range(4):
        Image.fromarray(test.images[k, 0].numpy()).save(tmp_path / "few" / f"{k}.png")
    Image.fromarray(test.images[0, 0].numpy()).convert("RGB").save(tmp_path / "gray as rgb.png")
    Image.new("RGB", (8, 8), (9, 8, 7)).save(tmp_path / "colour.png")
    Image.new("L", (9, 8)).save(tmp_path / "wide.png")
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "empty").mkdir()
    return lambda *arguments: CliRunner().invoke(
        app, ["certify", str(run_folder), *map(str, arguments), "--data-dir", str(digits)]
    )


@pytest.fixture
def expected(run_folder, digits):
    test = data.load("digits", split="test", data_dir=digits)
    return ld.certify(models.load(run_folder), test.images[:4].float() / 255, "8/255")


def test_table(certify, expected):
    result = certify("few", "--eps", "8/255")
    assert result.exit_code == 0, result.output
    assert "certified at 8/255" in result.output
    lines = [line for line in result.output.splitlines() if ".png" in line]
    assert len(lines) == 4
    for k, line in enumerate(lines):
        image, name, radius, levels, certified = line.strip("│ ").replace("│", " ").split()
        assert image == f"few/{k}.png"
        assert name == str(int(expected.prediction[k]))  # digits are named after themselves
        exact = Fraction(float(expected.radius[k]))
        assert Fraction(radius) <= exact < Fraction(radius) + Fraction(1, 10**4)  # rounded down
        assert Fraction(levels) <= 255 * exact < Fraction(levels) + Fraction(1, 10)
        assert certified == ("yes" if expected.certified[k] else "no")


def test_json_lines_to_the_output_and_to_a_file(certify, expected, tmp_path):
    result = certify("few/3.png", "few/1.png", "--eps", "8/255", "--json", "-")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["image"] for row in rows] == ["few/3.png", "few/1.png"]  # in the order given
    for row, k in zip(rows, (3, 1), strict=True):
        assert row["prediction"] == expected.prediction[k]
        assert row["class"] == str(row["prediction"])
        assert row["radius"] == expected.radius[k]
        assert row["certified"] == bool(expected.certified[k])
        assert row["eps"] == "8/255"
        assert len(row["model_sha256"]) == 64
    result = certify("few/3.png", "few/1.png", "--eps", "8/255", "--json", "out.jsonl")
    assert result.exit_code == 0, result.output
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == rows


def test_the_recipes_eps_unless_there_is_none(certify, run_folder, tmp_path):
    assert "certified at 0.1" in certify("few").output
    alone = tmp_path / "alone.safetensors"
    alone.write_bytes((run_folder / "model.safetensors").read_bytes())
    result = CliRunner().invoke(app, ["certify", str(alone), "few/0.png", "--json", "-"])
    row = json.loads(result.stdout)
    assert row["certified"] is row["eps"] is None
    assert row["class"] == str(row["prediction"])  # names are in the network's file
    assert row["radius"] >= 0


def test_methods(certify):
    pytest.importorskip("highspy", reason="HiGHS solves the programs")
    found = {}
    for method in ("margin", "box", "milp"):
        result = certify("few/0.png", "few/1.png", "--method", method, "--json", "-")
        assert result.exit_code == 0, result.output
        found[method] = torch.tensor([json.loads(line)["radius"] for line in result.stdout.splitlines()])
        assert {json.loads(line)["method"] for line in result.stdout.splitlines()} == {method}
    assert (found["margin"] <= found["box"]).all()
    assert (found["box"] <= found["milp"] + 1e-4).all()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere.png"], "nowhere.png does not exist"),
        (["empty"], "empty holds no images"),
        (["text.png"], "text.png is not an intact image"),
        (["colour.png"], "colour.png is in colour, but must be gray: convert it first"),
        (["few/0.png", "wide.png"], "wide.png has 9 × 8 pixels, but the network takes 8 × 8"),
        (["few", "--eps", "-1"], "is negative"),
        (["few", "--eps", "8/0"], "divides by zero"),
        (["few", "--json", "nowhere/out.jsonl"], "the folder nowhere does not exist"),
    ],
)
def test_errors_are_told_without_a_traceback(certify, arguments, complaint):
    result = certify(*arguments)
    assert result.exit_code == 1, result.output
    assert complaint in result.output
    assert isinstance(result.exception, SystemExit)


def test_a_model_that_is_none(certify, tmp_path):
    result = CliRunner().invoke(app, ["certify", str(tmp_path / "few"), "few/0.png"])
    assert result.exit_code == 1
    assert "has no network to load" in result.output


def test_gray_stored_as_rgb_is_gray(certify):
    one, other = (json.loads(certify(name, "--json", "-").output) for name in ("few/0.png", "gray as rgb.png"))
    assert (one["prediction"], one["radius"]) == (other["prediction"], other["radius"])


def test_eight_means_eight_of_255(certify):
    result = certify("few", "--eps", "8")
    assert result.exit_code == 1
    assert "more than 1" in result.output
    assert "8/255" in result.output


def test_a_run_of_resized_photographs_travels(tmp_path, monkeypatch):
    """Photographs of mixed sizes; the run is moved and the images are gone, yet names and sizes are known."""
    monkeypatch.chdir(tmp_path)
    for number in range(30):
        for name, paint in (("dark", 30), ("light", 200)):
            path = tmp_path / "shapes" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (20 + number, 33 - number // 2), paint + number).save(path)
    settings = {"data": "shapes", "resize": 6, "width": 8, "batch_size": 16, "epochs": 3}
    train(recipes.load("digits-quick").override(settings), "run", quiet=True)
    (tmp_path / "shapes" / "dark" / "3.png").rename(tmp_path / "photo.png")
    (tmp_path / "shapes").rename(tmp_path / "gone")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").rename(tmp_path / "elsewhere" / "moved")
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("COLUMNS", "200")
    network = ld.load("moved")
    assert (network.class_names, network.resize, network.shape) == (("dark", "light"), 6, (1, 6, 6))
    result = CliRunner().invoke(app, ["certify", "moved", "../photo.png", "--eps", "1/255"])
    assert result.exit_code == 0, result.output
    assert "dark" in result.output
    assert "resized to 6 × 6: radii are about the resized pixels, not the files" in result.output
    assert CliRunner().invoke(app, ["evaluate", "moved", "--data", "../gone", "--limit", "4"]).exit_code == 0


def test_what_is_read_is_not_written_over(certify, run_folder, tmp_path):
    image, network = tmp_path / "few" / "0.png", run_folder / "model.safetensors"
    exact = tmp_path / "exact.safetensors"
    ld.exact.save(ld.exact.freeze(models.load(run_folder)), exact)
    before = [path.read_bytes() for path in (image, network, exact)]
    run = CliRunner()
    results = [
        certify(image, "--json", image),
        run.invoke(app, ["certify", str(exact), str(image), "--exact", "--json", str(exact)]),
        run.invoke(app, ["certify", str(exact), str(image), "--exact", "--json", str(image)]),
        run.invoke(
            app, ["export", str(network), "--format", "exact", "--domain", *[str(image)] * 2, "--out", str(image)]
        ),
    ]
    for result in results:
        assert result.exit_code == 1
        assert "choose another file to write to" in result.stderr
    assert [path.read_bytes() for path in (image, network, exact)] == before


def test_one_bad_file_does_not_end_the_batch(certify, tmp_path):
    """The good ones are certified and written, the others are listed with their reasons, and the exit code says so."""
    result = certify("few", "wide.png", "text.png", "--json", "out.jsonl")
    assert result.exit_code == 1
    assert sum("few/" in line for line in result.output.splitlines()) == 4
    assert "2 of 6 images are not certified" in result.output
    assert "wide.png has 9 × 8 pixels" in result.output
    assert "text.png is not an intact image" in result.output
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["image"] for row in rows] == [f"few/{k}.png" for k in range(4)]
    alone = certify("text.png", "--json", "none.jsonl")
    assert alone.exit_code == 1
    assert not (tmp_path / "none.jsonl").exists()
    before = (tmp_path / "out.jsonl").read_bytes()
    for files in (["text.png"], ["text.png", "wide.png"]):
        again = certify(*files, "--json", "out.jsonl")
        assert again.exit_code == 1
        assert "out.jsonl is as it was before: its certificates are of an earlier call" in again.output
        assert (tmp_path / "out.jsonl").read_bytes() == before


def test_other_sizes_are_resized_on_request(certify, run_folder, tmp_path):
    image = Image.open(tmp_path / "few" / "0.png")
    image.resize((40, 30)).save(tmp_path / "large.png")
    assert certify("large.png").exit_code == 1
    result = certify("large.png", "--resize", "--json", "-")
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout)
    assert row["resized_to"] == 8
    seen = data.read_images([tmp_path / "large.png"], (1, 8, 8), 8)
    proof = ld.certify(models.load(run_folder), seen / 255, None, method="box")
    assert (row["prediction"], row["radius"]) == (int(proof.prediction), float(proof.radius))
    assert "resized to 8 × 8" in certify("large.png", "--resize").output
