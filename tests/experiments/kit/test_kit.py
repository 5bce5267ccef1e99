"""Known answers: what is written is checked by others' means, and what is wrong is found."""

import csv
import json
import re
import shutil
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import linfdist as ld
from linfdist import theory
from linfdist.cli import app
from linfdist.data import read_image
from linfdist.experiments import kit
from linfdist.experiments.kit.check import SUMS, in_parts, logits_at, read_witness, text_of
from linfdist.experiments.kit.generate import scaled
from linfdist.experiments.kit.truth import PARTS, UNIT, ball, demanded, lead, outputs
from linfdist.files import file_sha256

pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def folder(digits, tmp_path_factory):
    """The two smallest networks, two images each."""
    out = tmp_path_factory.mktemp("kit") / "out"
    command = ["benchmark", "--out", str(out), "--sizes", "trivial, tiny", "--images", "2", "--data-dir", str(digits)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "written: 40 instances" in result.output
    return out


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def rows(folder):
    with (folder / "truth.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_form_of_vnn_comp(folder):
    """Every instance has its files, a timeout and an answer; five properties an image, three hold and two do not."""
    with (folder / "instances.csv").open(newline="") as file:
        instances = list(csv.reader(file))
    assert [(row["onnx"], row["vnnlib"]) for row in rows(folder)] == [(onnx, vnnlib) for onnx, vnnlib, _ in instances]
    assert all((folder / part).is_file() for onnx, vnnlib, _ in instances for part in (onnx, vnnlib))
    assert {timeout for *_, timeout in instances} == {"60"}
    answers = {(row["answer"], row["factor"]) for row in rows(folder)}
    assert answers == {("unsat", "0.5"), ("unsat", "0.9"), ("unsat", "0.99"), ("sat", "1.01"), ("sat", "1.1")}
    listed = {line.split("  ")[1] for line in (folder / SUMS).read_text().splitlines()}
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert listed == files - {SUMS}


def test_same_seed_same_bytes(folder, digits, tmp_path):
    kit.generate(tmp_path / "again", ["trivial", "tiny"], 2, 0, digits, lambda text: None)
    assert (tmp_path / "again" / SUMS).read_bytes() == (folder / SUMS).read_bytes()


def test_checks_pass_and_certificates_are_those_that_verify_takes(folder):
    said = CliRunner().invoke(app, ["benchmark", "--check", str(folder)]).output
    assert said.startswith("run: ")
    assert "\nchecked: 40 instances" in said
    row = next(row for row in rows(folder) if row["answer"] == "unsat")
    command = ["verify", *(str(folder / row[key]) for key in ("evidence", "image", "network"))]
    assert CliRunner().invoke(app, command).exit_code == 0


def test_files_compute_the_exact_logits_at_witnesses(folder):
    """Both ONNX forms, in float32 as onnxruntime executes them, give the witness's logits to the last bit."""
    onnxruntime = pytest.importorskip("onnxruntime")
    for row in rows(folder):
        network = ld.exact.load(folder / row["network"])
        texts = [(folder / row["evidence"]).read_text()] if row["answer"] == "sat" else []
        points = [read_witness(text) for text in texts]
        corners = ball(read_image(folder / row["image"], 1).numpy(), in_parts(row["epsilon"]))
        points += [(corner.ravel(), -outputs(network, corner, corner)[0]) for corner in corners]
        session = onnxruntime.InferenceSession(str(folder / row["onnx"]))
        for point, logits in points:
            pixels = (point / UNIT).astype(np.float32).reshape(1, *network.shape)
            (found,) = session.run(["logits"], {"images": pixels})
            assert (found[0].astype(np.float64) * UNIT == logits).all()


def test_any_float_is_within_the_bound(folder):
    """On floats that are on no grid the files differ from the rationals, by less than half the lead demanded."""
    onnxruntime = pytest.importorskip("onnxruntime")
    generator = torch.Generator().manual_seed(0)
    largest = 0
    for row in {row["onnx"]: row for row in rows(folder)}.values():
        network = ld.exact.load(folder / row["network"])
        session = onnxruntime.InferenceSession(str(folder / row["onnx"]))
        for pixels in torch.rand(20, 1, *network.shape, generator=generator).numpy():
            (found,) = session.run(["logits"], {"images": pixels})
            true = logits_at(network, [Fraction(float(value)) for value in pixels.ravel()])
            apart = max(abs(Fraction(float(a)) - b) for a, b in zip(found[0], true, strict=True))
            assert 2 * apart * UNIT <= demanded(network)
            largest = max(largest, apart)
    assert largest > 0


def test_bounds_hold_on_samples(folder):
    """The lead on a ball is one that no sampled point of it undercuts; sampling decides like the proofs."""
    generator = np.random.default_rng(0)
    for row in rows(folder):
        network, label = ld.exact.load(folder / row["network"]), int(row["label"])
        low, high = ball(read_image(folder / row["image"], 1).numpy(), in_parts(row["epsilon"]))
        bound = lead(network, low, high, label)
        points = generator.integers(low, high + 1, (50, *low.shape))
        leads = [lead(network, point, point, label) for point in points]
        assert min(leads) >= bound
        assert bound > demanded(network) if row["answer"] == "unsat" else bound < 0


def test_scaled_form_is_the_exact_network(folder):
    network = ld.exact.load(folder / "exact" / "tiny.safetensors")
    bytes_ = torch.randint(256, (30, *network.shape), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    assert torch.equal(scaled(network)(bytes_ / 256) * (256 << network.k), network(bytes_).double())
    assert theory.to_relu(network).widths == scaled(network).widths


def summed_again(folder):
    """Write the sums of changed files, so that only their content can be what is refused."""
    names = [line.split("  ")[1] for line in (folder / SUMS).read_text().splitlines()]
    (folder / SUMS).write_text("".join(f"{file_sha256(folder / name)}  {name}\n" for name in names))


@pytest.mark.parametrize(
    ("key", "answer", "pattern", "new", "message"),
    [
        ("vnnlib", "unsat", r"X_3 [\d.]+", "X_3 0.5", "not about this ball"),
        ("vnnlib", "unsat", r"(?=\(assert)", ";", "not about this ball"),
        ("vnnlib", "unsat", r"$", "(assert (<= Y_0 0.0))", "not about this ball"),
        ("evidence", "unsat", r"^.*$", "[" * 9999, "levels"),
        ("vnnlib", "sat", r"\(>= Y_\d+ (Y_\d+)\)", r"(>= \1 \1)", "not about this ball"),
        ("evidence", "unsat", r'"margin": \d+', '"margin": 99999', "margin"),
        ("evidence", "sat", r"\(X_0 [\d.]+\)", "(X_0 0.99609375)", "outside the ball"),
        ("evidence", "sat", r"\(Y_0 [-\d.]+\)", "(Y_0 0.5)", "its witness has not"),
        ("evidence", "sat", r"\(Y_0 [-\d.]+\)", "(Y_0 0.3333333333)", "no multiple"),
    ],
)
def test_what_is_wrong_is_found(copy, key, answer, pattern, new, message):
    row = next(row for row in rows(copy) if row["answer"] == answer)
    text = (copy / row[key]).read_text()
    (copy / row[key]).write_text(re.sub(pattern, new, text, count=1))
    assert (copy / row[key]).read_text() != text
    summed_again(copy)
    with pytest.raises(ValueError, match=message):
        kit.check(copy)


def test_wrong_answers_and_sums_are_found(copy):
    """A ball too large for its certificate, one too small for its witness, an instance without an answer."""
    small, large = (next(row for row in rows(copy) if row["factor"] == factor) for factor in ("0.99", "1.01"))
    truth = (copy / "truth.csv").read_text()
    for row, answer, other, message in (
        (large, "unsat,1.01", small["evidence"], "does not hold for the whole ball"),
        (small, "sat,0.99", large["evidence"], "outside the ball"),
    ):
        lines = truth.splitlines(keepends=True)
        place = next(k for k, line in enumerate(lines) if f"{row['vnnlib']}," in line)
        lines[place] = lines[place].replace(f"{row['answer']},{row['factor']}", answer).replace(row["evidence"], other)
        (copy / "truth.csv").write_text("".join(lines))
        with pytest.raises(ValueError, match="its sha256"):
            kit.check(copy)
        summed_again(copy)
        with pytest.raises(ValueError, match=message):
            kit.check(copy)
    (copy / "truth.csv").write_text("".join(truth.splitlines(keepends=True)[:-1]))
    summed_again(copy)
    with pytest.raises(ValueError, match="list different instances"):
        kit.check(copy)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("epsilon", "1e999999999", "'1e999999999' is no decimal"),
        ("label", "-1", "label = '-1': must be a class"),
        ("answer", "unknown", "row 1 of truth.csv must have"),
        ("image", "../image.png", "row 1 of truth.csv must have"),
        ("network", None, "row 1 of truth.csv must have"),
    ],
)
def test_rows_that_are_none_are_named(copy, column, value, message):
    found = rows(copy)
    found[0][column] = value
    lines = [[key for key in found[0] if value or key != column]]
    lines += [[row[key] for key in lines[0]] for row in found]
    with (copy / "truth.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    summed_again(copy)
    result = CliRunner().invoke(app, ["benchmark", "--check", str(copy)])
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())


def test_networks_are_of_plain_layers(copy):
    """What the bounds here do not compute, such as a clip of the pixels, is refused."""
    row = rows(copy)[0]
    network = ld.exact.load(copy / row["network"])
    torch.manual_seed(0)
    clipped = ld.models.DistNet(network.shape, network.classes, 8, 2, [0.0] * network.shape[0], 1.0, clip=[0.2, 0.8])
    (copy / row["network"]).unlink()
    ld.save(ld.exact.freeze(clipped.eval()), copy / row["network"])
    summed_again(copy)
    with pytest.raises(ValueError, match="must be of plain layers"):
        kit.check(copy)


def changed(model, way):
    import onnx

    if way == "bias":
        name = next(node.input[1] for node in model.graph.node if node.op_type == "Add")
        bias = next(each for each in model.graph.initializer if each.name == name)
        values = onnx.numpy_helper.to_array(bias) + np.float32(2.0**-18)
        bias.CopyFrom(onnx.numpy_helper.from_array(values, name))
    elif way == "operator":
        next(node for node in model.graph.node if node.op_type == "Abs").op_type = "Sin"
    elif way == "domain":
        model.graph.node[0].domain = "elsewhere"
    return model.SerializeToString() if way != "bytes" else b"no model"


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("bias", "tiny-dist.onnx: gives other logits than the integer network"),
        ("operator", r"tiny-dist.onnx: has the operators \['Sin'\], allowed are Abs, Add"),
        ("domain", r"tiny-dist.onnx: has the operators \['Flatten'\]"),
        ("bytes", "tiny-dist.onnx: cannot be run by onnxruntime"),
    ],
)
def test_networks_that_compute_something_else_are_found(copy, way, message):
    """A bias that differs by one part in 2^18 is enough."""
    import onnx

    pytest.importorskip("onnxruntime")
    path = copy / "onnx" / "tiny-dist.onnx"
    path.write_bytes(changed(onnx.load(path), way))
    summed_again(copy)
    with pytest.raises(ValueError, match=message):
        kit.check(copy)


def test_without_onnxruntime_the_hash_alone_counts_and_is_said_to(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    said = []
    assert kit.check(folder, said.append) == 40
    assert len(said) == 1
    assert "only the sha256" in said[0]


@pytest.mark.slow
def test_the_network_of_the_zoo(tmp_path):
    """The size `mnist`, which no verifier of ReLU networks gets: one image, and the form with distances alone."""
    assert kit.generate(tmp_path / "out", ["mnist"], images=1, tell=lambda text: None) == 5
    assert sorted(path.name for path in (tmp_path / "out" / "onnx").iterdir()) == ["mnist-dist.onnx"]
    assert [row["answer"] for row in rows(tmp_path / "out")] == ["unsat"] * 3 + ["sat"] * 2
    assert kit.check(tmp_path / "out", lambda text: None) == 5


def test_rationals():
    assert [text_of(Fraction(n, UNIT)) for n in (0, UNIT, -1, 3 * UNIT // 2)] == [
        "0",
        "1",
        "-0.000003814697265625",
        "1.5",
    ]
    assert in_parts("-0.000003814697265625") == -1
    assert in_parts("1") == UNIT == 256 * PARTS


def test_logits_of_any_rational_point(folder):
    row = next(row for row in rows(folder) if row["answer"] == "sat")
    network = ld.exact.load(folder / row["network"])
    point, logits = read_witness((folder / row["evidence"]).read_text())
    exactly = logits_at(network, [Fraction(int(n), UNIT) for n in point])
    assert exactly == [Fraction(int(n), UNIT) for n in logits]
    shifted = logits_at(network, [Fraction(int(n), UNIT) / 2 + Fraction(1, 3 * 2**40) for n in point])
    halved = logits_at(network, [Fraction(int(n), UNIT) / 2 for n in point])
    assert 0 < max(abs(a - b) for a, b in zip(shifted, halved, strict=True)) <= Fraction(1, 3 * 2**40)
    assert json.loads((folder / row["evidence"].replace("witnesses", "certificates")
                       .replace("counterexample", "json")).read_text())["class"] == int(row["label"])  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "new", "--sizes", "tiny,huge"], "no size 'huge': the sizes are trivial, tiny"),
        (["--out", "."], "is not empty"),
        ([], "either a folder to write, --out DIR, or one to check"),
    ],
)
def test_misuse(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["benchmark", *arguments])
    assert result.exit_code
    assert message in " ".join(result.output.split())


def test_values_that_float32_might_not_sum_exactly_are_refused():
    network = ld.models.DistNet((1, 2, 2), 2, 3, 2, [0.0], 1.0).eval()
    with torch.no_grad():
        network.last.weight.fill_(20.0)
    with pytest.raises(ValueError, match="32 are allowed"):
        demanded(ld.exact.freeze(network))
