"""What an evaluation has assessed, in the terms of ISO/IEC 24029-2: one JSON, and the same as a page.

Every entry comes from the files of the run, or is a fact about the method that docs/trust.md states. What these files
do not say is null.
"""

from collections.abc import Mapping
from fractions import Fraction
from importlib.resources import files
from string import Template
from typing import Any

from ..files import file_sha256
from ..runs.folder import RECIPE, ROWS, Run
from ..runs.rows import count
from ..version import __version__
from .html import escaped, section, table
from .tables import fates

FORMAT = "linfdist-assurance-1"
BY_MACHINE = [
    "layers and the whole network are 1-Lipschitz in ℓ∞, in units of the grid (layer_lipschitz, network_lipschitz)",
    "boxes enclose what the network computes (run_enclosed)",
    "a certificate that the proved checker accepts is true of every image that it speaks of (check_sound)",
]
ON_PAPER = {
    True: ["the bounds of the head, in float64: docs/exact.md"],
    False: [
        "the margin, with a slack for the rounding of every logit: docs/certificates.md",
        "boxes of floats enclose the network as executed: docs/certificates.md",
        "bounds of means, heads, conventional layers and linear forms, in whatever order sums are taken, "
        "as far as the network has them: docs/certificates.md",
    ],
}
BELIEVED = [
    "the processor rounds additions, subtractions, multiplications and divisions as IEEE 754 says",
    "the compiler, torch and its matrix products, within the error bounds that docs/trust.md names",
    "the network and the images that were assessed are those that are used",
    "SHA-256 has no collisions",
]
COQ = [
    "Coq's kernel, and that the definitions in proofs/ are the network that was run",
    "the C++ kernels compute the function of these definitions, which is tested and not proved",
]


def assurance(run: Run, network: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Describe the assessment of an evaluated run.

    network: facts about the very network that was evaluated, as `linfdist report --assurance` finds them: `exact`,
    `arithmetic`, `kind`, `shape`, `classes`, `head`, `file`, and the `recipe` of its card in the zoo or None; None if
    its file is not at hand.
    """
    run.check_evaluated()
    summary, counted = run.summary, count(run.rows, run.attacks)
    found, recipe = fates(counted), run.stored_recipe or (network["recipe"] if network else None)
    exact = network["exact"] if network else None
    mechanical = bool(network and exact and not network["head"])
    paper = [] if mechanical or network is None else ON_PAPER[bool(exact)]
    inputs = "every 8-bit image" if exact else "every image of floats" if network else "every image"
    proved = "constant on the closed ball and equal to the label"
    return {
        "format": FORMAT,
        "terms": "those of ISO/IEC 24029-2; this file claims no conformity with it",
        "system": {
            "model": summary.get("model"), "model_sha256": summary["model_sha256"],
            "network": {key: value for key, value in network.items() if key != "recipe"} if network else None,
            "training": {key: recipe.get(key) for key in ("name", "source", "data", "eps", "seed")} if recipe else None,
        },
        "domain": {
            "set": f"for each assessed image x: {inputs} x' of [0, 1] with |x' - x| <= eps in every pixel",
            "eps": summary["eps"], "eps_exactly": str(Fraction(run.eps)), "norm": "l_inf", "unit": "pixels of [0, 1]",
            "restricted_to_sha256": summary.get("domain_sha256"),
        },
        "property": {"name": "stability of the classification", "statement": f"the predicted class is {proved}"},
        "criterion": {
            "per_image": "met if the property is proved; not met if the image is misclassified, or an image of the "
            "domain with another class was found; else undecided",
            "met": found.certified, "undecided": found.undecided, "not_met": found.broken + found.misclassified,
            "images": counted.n, "certified_percent": summary["certified"], "clean_percent": summary["clean"],
            "mean_radius": summary["mean_radius"], "threshold": None,
        },
        "arithmetic": {
            "computed_in": network["arithmetic"] if network else None, "device": summary.get("device", "cpu"),
            "rounding": "of the network as executed; radii are rounded down, percentages are exact",
        },
        "method": {
            "name": summary["method"], "kind": "formal: sound, not complete", "radii": summary.get("radii", True),
            "survive_attacks_percent": {name: summary["attacks"][name] for name in run.attacks},
        },
        "data": {
            "name": summary.get("data"), "split": summary.get("split"), "first_images_only": summary.get("limit"),
            "sha256": summary.get("data_sha256"), "classes": list(run.classes),
        },
        "hashes": {
            "rows.jsonl": summary["rows_sha256"], "summary": summary["summary_sha256"],
            "recipe.json": file_sha256(run.folder / RECIPE) if run.stored_recipe else None,
        },
        "versions": {"this_file": f"linfdist {__version__}", "evaluation": None},
        "proved_by_machine": BY_MACHINE if mechanical else [],
        "proved_on_paper": paper if network else None,
        "checked_by_proved_checker": None,
        "believed": BELIEVED + (COQ if mechanical else []),
    }  # fmt: skip


NOTES = {
    "criterion": "A threshold is the assessor's to set: the files of the run hold none.",
    "versions": "An evaluation does not record the version that made it.",
    "checked_by_proved_checker": "Rows are no certificates: linfdist verify --proved checks these, one at a time.",
    "proved_on_paper": "null: the network's file is not at hand, so it is not known what the proofs rest on.",
}


def page(content: Mapping[str, Any], title: str) -> str:
    """Build the page: a section for each entry of the JSON, in its order."""
    body = []
    for name, value in content.items():
        pairs = value.items() if isinstance(value, Mapping) else [("", value)]
        rows = [[escaped(key.replace("_", " ")), _shown(each)] for key, each in pairs]
        note = f'<p class="note">{escaped(NOTES[name])}</p>' if name in NOTES else ""
        body.append(section(name.replace("_", " ").capitalize(), table(["", ""], rows, text_columns=2) + note))
    template = Template((files(__package__) / "template.html").read_text(encoding="utf-8"))
    subtitle = f"{ROWS}: {content['hashes'][ROWS]}"
    return template.substitute(title=escaped(f"Assurance: {title}"), subtitle=escaped(subtitle), body="\n".join(body))


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "<br>".join(f"{escaped(key)}: {_shown(each)}" for key, each in value.items()) or "none"
    if isinstance(value, list):
        return ("<br>" if any(isinstance(each, str) and " " in each for each in value) else ", ").join(
            map(_shown, value)
        ) or "none"
    return "not stated" if value is None else escaped(value)
