"""A real run on the digits: trained, evaluated, with a gallery of images that the network really gets wrong."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from linfdist import data, models
from linfdist.cli import app
from linfdist.files import save_tensors


@pytest.fixture(scope="session")
def evaluated(digits: Path, digits_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = Path(shutil.copytree(digits_run, tmp_path_factory.mktemp("report") / "small run"))
    result = CliRunner().invoke(app, ["evaluate", str(run), "--data-dir", str(digits)])
    assert result.exit_code == 0, result.output
    _add_gallery(run, data.load("digits", "test", digits))
    return run


@pytest.fixture
def run(evaluated: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(evaluated, tmp_path / "run"))


def _add_gallery(run: Path, digits: data.Dataset) -> None:
    """Attacks by hand: from an image towards one of another class, until the prediction changes."""
    network, x = models.load(run), digits.images.float() / 255
    rows = [json.loads(line) for line in (run / "rows.jsonl").read_text().splitlines()]
    correct = sorted((row for row in rows if row["prediction"] == row["label"]), key=lambda row: row["radius"])
    chosen, attacked = correct[:3] + correct[-3:], []
    for row in chosen:
        image = x[row["index"]]
        towards = x[next(other["index"] for other in correct if other["label"] != row["label"])]
        path = torch.stack([image + (towards - image) * k / 64 for k in range(65)])
        first = int((network(path).argmax(1) != row["label"]).nonzero()[0])
        attacked.append(path[first])
    found = torch.stack(attacked)
    images = digits.images[[row["index"] for row in chosen]]
    sizes = (found.double() - images.double() / 255).abs().flatten(1).amax(1)
    header = {key: [row[key] for row in chosen] for key in ("index", "label", "radius")} | {
        "size": sizes.tolist(),
        "prediction": network(found).argmax(1).tolist(),
        "classes": list(digits.classes),
    }
    save_tensors(run / "gallery.safetensors", {"images": images, "attacked": found.detach()}, header)
