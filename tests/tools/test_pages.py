"""The page says what rows and cards say, and nothing where there are none."""

import json
from dataclasses import replace

import pytest

from linfdist import recipes
from linfdist.experiments.tables.rows import read_compare_rows
from linfdist.files import write_atomically
from linfdist.models.zoo.cards import Card
from linfdist.report.published import tables
from linfdist.runs.records import append_records
from tools import api, compared, hours
from tools.markdown import fill
from tools.pages import ablations, engine, main, page, read, readme, runs, write
from tools.pictures import draw
from tools.study import Experiment

from ..ops.processes import ROOT

BEGIN, END = "<!-- begin: results -->", "<!-- end: results -->"
SPEED = "<!-- begin: speed -->\n<!-- end: speed -->"
COMPARE = "\n".join(
    f"<!-- begin: {name} -->\n<!-- end: {name} -->" for name in ("compare", "fronts", "searched", "ctrain")
)
README = f"# x\n{BEGIN}\nold\n{END}\nrest\n"


def card(name="mnist-0.3", **changes):
    attacked = {"percent": 94.001, "images": "some"}
    values = {
        "name": name, "data": "mnist", "eps": "0.3",
        "recipe": {"name": "mnist-ce", "source": "ours", "model": "dist_net", "depth": 5, "width": 1024},
        "seeds": [0], "hours": 2.5, "machine": "an abacus", "date": "2026-11-16", "parameters": 10, "sha256": "0" * 64,
        "n": 10000, "clean": 98.0, "pgd20": attacked | {"attack": "pgd"}, "strongest": attacked | {"attack": "strong"},
        "certified": 92.999, "method": "box", "mean_radius": 0.29999,
    }  # fmt: skip
    return Card.model_validate(values | changes)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "results").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "engine.md").write_text(SPEED)
    (tmp_path / "docs" / "compare.md").write_text(COMPARE)
    return tmp_path


@pytest.fixture
def zoo_folder(tmp_path):
    folder = tmp_path / "zoo"
    folder.mkdir()
    for each in (card(), card("cifar10-8_255", data="cifar10", eps="8/255", certified=33.0)):
        write_atomically(folder / f"{each.name}.json", each.model_dump_json())
        (folder / f"{each.name}.safetensors").write_bytes(b"0" * 2_500_000)
    return folder


def test_without_numbers_there_are_no_sections(root):
    write(root, root / "none")
    text = (root / "docs" / "results.md").read_text()
    assert text.startswith("# Results\n")
    assert "##" not in text
    assert "|" not in text
    assert list((root / "docs" / "images").iterdir()) == []
    assert (root / "README.md").read_text() == f"# x\n{BEGIN}\n{END}\nrest\n"


def test_a_full_page(root, zoo_folder, make_row):
    results = root / "results"
    rows = [make_row(3, "cifar10-ablation-e", seed, clean=40.0, robust=30.0, certified=25.0) for seed in range(3)]
    rows += [make_row(7, "cifar10-depth-identity-5", clean=40.0, train_clean=44.0)]
    append_records(results / "table3.jsonl", [row.model_dump(exclude_none=True) for row in rows])
    training = [
        {"epoch": 1, "p": 8.0, "clean": 50.0, "certified": 20.0},
        {"epoch": 2, "clean": 90.0, "certified": 88.0},
    ]
    (results / "curves").mkdir()
    curve = {"radii": [0.4 - k / 500 for k in range(200)], "training": training}
    (results / "curves" / "mnist-0.3.json").write_text(json.dumps(curve))
    for seed, certified in enumerate((80.0, 82.0, 81.0, 79.0, 83.0)):
        recipe = recipes.load("mnist-quick").override({"lr": 0.05, "holdout": 5000, "seed": seed})
        row = Experiment(name=f"a{seed}", recipe=recipe, certified=certified, clean=90.0, minutes=5.0, machine="x",
                         date="2026-11-16", seen_certified=85.0)  # fmt: skip
        append_records(results / "study.jsonl", [row.model_dump(exclude_none=True)])
    (results / "times").mkdir()
    course = {
        "data": "cifar10",
        "eps": "8/255",
        "images": "5,000 held out",
        "core_minutes, certified": [[1, 9], [60, 30]],
    }
    (results / "times" / "cifar10-quick.json").write_text(json.dumps(course))
    ordinary = {
        "data": "mnist", "eps": "0.3", "network": "a ReLU network", "training": "cross-entropy", "images": 200,
        "method": "crown", "radius, proved": [[0.0, 98.0], [0.3, 1.5]], "radius, survived": [[0.0, 98.0], [0.3, 2.0]],
        "machine": "an abacus", "date": "2026-11-19",
    }  # fmt: skip
    (results / "undefended").mkdir()
    (results / "undefended" / "mnist.json").write_text(json.dumps(ordinary))
    (results / "notes").mkdir()
    (results / "notes" / "table3.md").write_text("Smoothing matters most.\n")
    write(root, zoo_folder)
    text = (root / "docs" / "results.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Shipped networks", "## How close the proofs are to the truth", "## Training time",
        "## Certified accuracy per hour", "## Tables 3 and 7: ablations",
    ]  # fmt: skip
    assert ("| `mnist-0.3` | **92.99** | 92.64 | 98.00 | mnist | 0.3 | ℓ∞-dist Net, 5 × 1024 | 2.5 | 2.5 |") in text
    assert "| `mnist-0.3` | 92.99 | 94.01 | 1.02 | 94.01 | 0.2999 | 0.3 |" in text
    settings, measured = "`lr=0.05` | 5,000 spaced | 5", "81.00 ± 1.58 | 90.00 ± 0.00 | 85.00 ± 0.00 | 5.0"
    assert f"| mnist | `mnist-quick` | {settings} | {measured} |" in (results / "study.md").read_text()
    assert "of the first 200 test images: 1.5 % on mnist at 0.3. Above the dashed curve" in text
    tested = (results / "ablations.md").read_text()
    assert "| E | ℓ∞-dist Net | 56.80 | 40.00 ± 0.00 | 37.46 | 30.00 ± 0.00 | 33.30 | 25.00 ± 0.00 | 3 |" in tested
    assert "an abacus, 2 cores, 2026-11-16, 0.6 hours of training" in tested
    table3, table7 = tested.index(f"## Table 3: {tables()[3].title}"), tested.index(f"## Table 7: {tables()[7].title}")
    assert table3 < tested.index("docs/images/ablation.png") < tested.index("Smoothing matters most.") < table7
    pictures = {path.name for path in (root / "docs" / "images").iterdir()}
    assert pictures == {"radius.png", "radius-dark.png", "training.png", "time.png", "ablation.png", "depth.png"}
    assert all(f"](images/{name})" in text or f"](../docs/images/{name})" in tested for name in pictures)
    text = (root / "README.md").read_text()
    assert '| `ld.load("mnist-0.3")` | **92.99** | 92.64 | 98.00 | mnist | 0.3 |' in text
    assert "\nold\n" not in text
    assert text.startswith("# x\n")
    assert text.endswith(f"{END}\nrest\n")
    for path in results.glob("*.jsonl"):
        path.unlink()
    (results / "times" / "cifar10-quick.json").unlink()
    write(root, zoo_folder)
    assert {path.name for path in (root / "docs" / "images").iterdir()} == {
        "radius.png",
        "radius-dark.png",
        "training.png",
    }
    assert (root / "README.md").read_text() == text  # it has the networks alone


def test_hours_are_sorted_and_heads_left_out():
    rows = read_compare_rows(ROOT / "results" / "compare.jsonl")
    head = card("mnist-0.3-mlp", recipe=card().recipe | {"model": "dist_net_mlp", "start": "mnist-0.3"})
    text = hours.table([card(), head, card("cifar10-8_255", data="cifar10", eps="8/255", certified=33.0)], rows)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    assert ["mnist", "0.3", "**`mnist-0.3`**", "2.50", "core", "92.99", "94.01", "1.02"] in lines
    assert ["cifar10", "8/255", "ℓ∞-dist Net, paper", "4.38", "RTX 3090", "33.30", "–", "–"] in lines
    assert not any("-mlp" in line[2] for line in lines)
    for data in ("mnist", "cifar10"):
        mine = [line for line in lines if line[0] == data]
        assert [float(line[3]) for line in mine] == sorted(float(line[3]) for line in mine)
        others = [line for line in mine if "`" not in line[2] and "ℓ∞-dist" not in line[2]]
        assert len(others) == hours.OTHERS


def test_pictures_are_the_same_every_time(zoo_folder):
    curves = {"mnist-0.3": {"radii": [0.4 - k / 500 for k in range(200)], "training": []}}
    first, second = (draw([card()], curves, []) for _ in range(2))
    assert first == second
    assert list(first) == ["radius", "radius-dark"]
    assert first["radius"] != first["radius-dark"]
    assert first["radius"].startswith(b"\x89PNG")


def test_rows_of_recipes_that_have_changed_since_are_not_shown(root, make_row):
    now = make_row(3, "cifar10-ablation-e", clean=40.0)
    row = now.model_copy(update={"recipe": now.recipe.override({"width": 7})})
    append_records(root / "results" / "table3.jsonl", [row.model_dump(exclude_none=True)])
    with pytest.raises(ValueError, match="a run of cifar10-ablation-e is not what table 3 has now"):
        read(root / "results")


@pytest.mark.parametrize(
    "text", ["", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}\n{END}\n{BEGIN}\n{END}", f"{BEGIN}{END}{END}"]
)
def test_a_readme_without_its_two_markers_is_left_alone(text):
    with pytest.raises(ValueError, match="must have one line <!-- begin: results -->"):
        fill(text, {"results": "table"})


def test_the_command_says_what_is_wrong(root, capsys):
    (root / "README.md").write_text("no markers")
    assert main(["--root", str(root)]) == 1
    assert "README.md must have one line" in capsys.readouterr().err
    assert (root / "README.md").read_text() == "no markers"


def test_the_committed_pages_are_those_of_the_committed_rows():
    """If this fails: make pages"""
    results = read(ROOT / "results")
    pictures = [path.stem for path in (ROOT / "docs" / "images").glob("*.png")]
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == page(results, pictures)
    assert (ROOT / "results" / "ablations.md").read_text(encoding="utf-8") == ablations(results, pictures)
    assert (ROOT / "results" / "study.md").read_text(encoding="utf-8") == runs(results)
    assert (ROOT / "README.md").read_text(encoding="utf-8") == readme(ROOT, results)
    assert (ROOT / "docs" / "engine.md").read_text(encoding="utf-8") == engine(ROOT)
    assert (ROOT / "docs" / "compare.md").read_text(encoding="utf-8") == compared.page(
        ROOT, results.peers, results.ctrain, results.trials
    )
    assert (ROOT / "results" / "compare.md").read_text(encoding="utf-8") == compared.costs(results.peers)
    for path, text in api.pages(ROOT).items():
        assert path.read_text(encoding="utf-8") == text


def test_news_are_of_the_card(root):
    recipe = recipes.load("cifar10-quick").model_dump(mode="json")
    each = card("cifar10-8_255", data="cifar10", eps="8/255", certified=34.019, hours=1.2, recipe=recipe)
    results = replace(read(root / "results", root / "none"), cards=[each], sizes={each.name: 1})
    text = page(results, [])
    assert "`cifar10-8_255` is certified on **34.01 %** of the test images" in text
    assert (
        "1.2 hours of training in all on an abacus (2026-11-16). The paper's plain network is certified on 33.30 %"
        in text
    )
    assert "`linfdist train cifar10-quick`." in text
