"""`linfdist export` and `linfdist verify`, as a user meets them."""

import json

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from linfdist import exact, models
from linfdist.cli import app
from linfdist.eps import nearest, percent
from linfdist.models import ConvDistNetMLP

from .nets import random_mlp


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def save_image(pixels: torch.Tensor, path) -> None:
    Image.fromarray(pixels[0].numpy()).save(path)


def test_export_and_its_report(run, trained, tmp_path):
    out = tmp_path / "frozen"
    result = run("export", trained.run, "--format", "exact", "--out", out, "--data-dir", trained.data_dir)
    assert result.exit_code == 0, result.output
    frozen = exact.load(out)
    assert f"1/{255 * 2**frozen.k} pixel (k = {frozen.k})" in result.output
    assert "int16, int16, int16" in result.output
    assert frozen.sha256 in result.output
    assert "of 8,832 (" in result.output
    assert "digits test, 450 images, eps = 0.1, by the margin" in result.output
    measured = frozen.facts["accuracy"]
    right = int((frozen(trained.images).argmax(1) == trained.labels).sum())
    assert measured["clean"] == 100 * right / 450
    assert f"{nearest(percent(right, 450), 2)} %" in result.output
    assert frozen.facts["recipe"] == "digits-quick"


def test_export_pruned(run, trained, tmp_path):
    out = tmp_path / "small.safetensors"
    result = run("export", trained.run, "--format", "pruned", "--out", out)
    assert result.exit_code == 0, result.output
    assert f"written: {out} ({out.stat().st_size:,} bytes)" in result.output
    assert out.stat().st_size < 0.7 * (trained.run / "model.safetensors").stat().st_size
    whole, pruned = models.load(trained.run), models.load(out)
    x = trained.images / 255
    assert torch.equal(whole(x), pruned(x))
    assert (whole.pruned, pruned.pruned) == (False, True)
    wrong = run("export", out, "--format", "pruned", "--k", 3, "--out", tmp_path / "again")
    assert wrong.exit_code == 1
    assert "--k: only for" in wrong.output


def test_export_to_the_default_place_with_a_domain(run, trained, tmp_path):
    (tmp_path / "model.safetensors").write_bytes((trained.run / "model.safetensors").read_bytes())
    least, largest = torch.zeros(1, 8, 8, dtype=torch.uint8), torch.full((1, 8, 8), 255, dtype=torch.uint8)
    largest[:, :, 0] = 9
    save_image(least, tmp_path / "least.png")
    save_image(largest, tmp_path / "largest.png")
    domain = ["--domain", tmp_path / "least.png", tmp_path / "largest.png"]
    result = run("export", tmp_path, "--format", "exact", "--k", 2, *domain)
    assert result.exit_code == 0, result.output
    assert "accuracy not compared" in result.output
    assert "others are refused" in result.output
    frozen = exact.load(tmp_path / "exact.safetensors")
    assert frozen.k == 2
    assert torch.equal(frozen.upper, largest)
    save_image(torch.full((1, 8, 8), 200, dtype=torch.uint8), tmp_path / "outside.png")
    for option in (["--exact"], []):
        result = run(
            "certify", tmp_path / "exact.safetensors", tmp_path / "least.png", tmp_path / "outside.png", *option
        )
        assert result.exit_code == 1
        assert "outside.png: image 0 is outside the domain" in result.output.replace("\n", " ")


def test_errors_of_export_are_told_without_a_traceback(run, trained, tmp_path):
    models.save(ConvDistNetMLP((1, 8, 8), 10, 4, 4, [0.3], 0.3, head=4), tmp_path / "convolutions", {})
    bare = tmp_path / "bare"
    bare.write_bytes((trained.run / "model.safetensors").read_bytes())
    save_image(torch.zeros(1, 8, 9, dtype=torch.uint8), tmp_path / "wide.png")
    wide = tmp_path / "wide.png"
    for arguments, complaint in [
        ([tmp_path / "convolutions", "--format", "exact"], "a DistConv2d has no form in integers"),
        ([tmp_path / "none", "--format", "exact"], "does not exist"),
        ([trained.file, "--format", "exact"], "exact already"),
        ([bare, "--format", "exact", "--data", "digits"], "give --data and --eps"),
        ([bare, "--format", "exact", "--domain", wide, wide], "must be uint8 (1, 8, 8), got torch.uint8 (1, 8, 9)"),
        ([bare, "--format", "onnx", "--k", "3"], "--k: only for --format exact, onnx-exact and html, not for onnx"),
        ([trained.run, "--format", "exact", "--eps", "2"], "more than 1"),
        ([bare, "--format", "exact", "--out", bare / "file"], "bare"),
    ]:
        result = run("export", *arguments)
        assert result.exit_code == 1, result.output
        assert complaint in result.output
        assert isinstance(result.exception, SystemExit)
    assert not (tmp_path / "exact.safetensors").exists()


def test_a_head(run, trained_mlp, tmp_path):
    """From a trained network to a verified certificate."""
    out, image = tmp_path / "frozen", tmp_path / "0.png"
    save_image(trained_mlp.images[0], image)
    result = run("export", trained_mlp.run, "--format", "exact", "--out", out, "--data-dir", trained_mlp.data_dir)
    assert result.exit_code == 0, result.output
    frozen = exact.load(out)
    assert "int16, int16, and a head of 16 hidden neurons in float64" in result.output
    assert "digits test, 450 images, eps = 0.1, by boxes" in result.output
    assert "pixels (" not in result.output  # the distance is one of logits
    measured = frozen.facts["accuracy"]
    right = int((frozen(trained_mlp.images).argmax(1) == trained_mlp.labels).sum())
    assert measured["clean"] == 100 * right / 450
    assert 0 < measured["certified"] <= measured["clean"]

    result = run("certify", "--exact", out, image, "--json", tmp_path / "0.json")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "0.json").read_text()) == exact.certificates(frozen, trained_mlp.images[:1])[0].json()
    result = run("verify", tmp_path / "0.json", image, out)
    assert result.exit_code == 0, result.output
    result = run("verify", tmp_path / "0.json", image, trained_mlp.file)  # the same without the measured accuracy
    assert result.exit_code == 1
    assert "model_sha256: the certificate says" in result.output
    result = run("certify", "--exact", out, image, "--method", "margin")
    assert result.exit_code == 1
    assert "this exact network is certified by box" in result.output


def test_an_image_without_a_class_is_named(run, tmp_path):
    net = random_mlp(0)
    with torch.no_grad():
        net.head.output.weight[1], net.head.output.bias[1] = net.head.output.weight[0], net.head.output.bias[0]
        net.head.output.bias[:2] += 100
    exact.save(exact.freeze(net), tmp_path / "net")
    save_image(torch.zeros(1, 3, 3, dtype=torch.uint8), tmp_path / "black.png")
    result = run("certify", "--exact", tmp_path / "net", tmp_path / "black.png")
    assert result.exit_code == 1
    assert "black.png: image 0: its two best logits are closer than rounding" in result.output


@pytest.mark.parametrize("method", ["margin", "box"])
def test_certify_then_verify(run, trained, tmp_path, method):
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path, image in zip(paths, trained.images, strict=False):
        save_image(image, path)
    result = run("certify", "--exact", trained.file, *paths, "--method", method, "--json", tmp_path / "all.json")
    assert result.exit_code == 0, result.output
    expected = exact.certificates(trained.frozen, trained.images[:3], method)
    written = [json.loads(line) for line in (tmp_path / "all.json").read_text().splitlines()]
    assert written == [proof.json() for proof in expected]
    for path in paths:
        assert run("verify", tmp_path / "all.json", path, trained.file).exit_code == 0
    result = run("certify", "--exact", trained.file, paths[0], "--method", method)
    assert json.loads(result.stdout) == expected[0].json()


def test_errors_of_certify(run, trained, tmp_path):
    save_image(torch.zeros(1, 8, 9, dtype=torch.uint8), tmp_path / "wide.png")
    save_image(trained.images[0], tmp_path / "image.png")
    for arguments, complaint in [
        ([trained.run / "model.safetensors", tmp_path / "image.png"], "is not an exact network"),
        ([trained.file, tmp_path / "wide.png"], "wide.png has 9 × 8 pixels, but the network takes 8 × 8"),
        ([trained.file, tmp_path / "image.png", "--method", "milp"], "certified by margin or box"),
        ([trained.file, tmp_path / "image.png", "--eps", "0.1"], "--eps: not with --exact"),
    ]:
        result = run("certify", "--exact", *arguments)
        assert result.exit_code == 1, result.output
        assert complaint in result.output


def test_verify(run, trained, tmp_path):
    image, other = tmp_path / "image.png", tmp_path / "other.png"
    save_image(trained.images[0], image)
    save_image(trained.images[1], other)
    both = [proof.json() for proof in exact.certificates(trained.frozen, trained.images[:2])]
    (tmp_path / "one.json").write_text(json.dumps(both[0]))
    (tmp_path / "pretty.json").write_text(json.dumps(both[0], indent=2))
    (tmp_path / "both.json").write_text("".join(json.dumps(proof) + "\n" for proof in both))
    for name, picture in (("one", image), ("pretty", image), ("both", image), ("both", other)):
        result = run("verify", tmp_path / f"{name}.json", picture, trained.file)
        assert result.exit_code == 0, result.output
        assert result.output.startswith("verified: class ")
    (tmp_path / "wrong.json").write_text(json.dumps({**both[0], "levels": both[0]["levels"] + 1}))
    (tmp_path / "text.json").write_text("certified!")
    (tmp_path / "list.json").write_text(json.dumps(both))
    (tmp_path / "others.json").write_text("".join(json.dumps(both[1]) + "\n" for _ in range(2)))
    forged = {**both[0], "class": 3}
    (tmp_path / "twice.json").write_text(json.dumps(both[0]) + "\n" + json.dumps(forged) + "\n")
    (tmp_path / "keys.json").write_text(json.dumps(forged)[:-1] + ", " + json.dumps(both[0])[1:])
    damaged = bytearray(trained.file.read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    for certificate, picture, model, complaint in [
        ("twice", image, trained.file, "holds 2 certificates of this image"),
        ("keys", image, trained.file, "has the key 'format' twice"),
        ("wrong", image, trained.file, "levels: the certificate says"),
        ("one", other, trained.file, "holds no certificate of this image"),
        ("one", image, tmp_path / "damaged", "is damaged or was changed"),
        ("one", image, trained.run / "model.safetensors", "is not an exact network"),
        ("one", image, "mnist-0.3", "mnist-0.3 does not exist: give a file that `linfdist export --format exact` has"),
        ("one", tmp_path / "text.json", trained.file, "is not an intact image"),
        ("none", image, trained.file, "No such file"),
        ("text", image, trained.file, "is not valid JSON"),
        ("list", image, trained.file, "a JSON object is expected, or one per line"),
        ("others", image, trained.file, "holds no certificate of this image"),
    ]:
        result = run("verify", tmp_path / f"{certificate}.json", picture, model)
        assert result.exit_code == 1, result.output
        assert result.output.startswith("refused: ")
        assert complaint in result.output
        assert isinstance(result.exception, SystemExit)


def test_a_network_of_the_zoo_gets_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["export", "mnist-0.3", "--format", "onnx"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "runs" / "mnist-0.3" / "model.onnx").stat().st_size > 1 << 20
