"""One row per image, as the certificates and attacks say."""

import copy
from fractions import Fraction

import pytest
import torch

from linfdist import attacks, certify, models, recipes
from linfdist.baselines import Plan, ReLUNet, train
from linfdist.data import load
from linfdist.eps import parse_eps
from linfdist.evaluation import violations, watch
from linfdist.evaluation.batch import Certifiers, evaluate_batch
from linfdist.models import DistNetMLP
from linfdist.runs.rows import Row

EPS = "0.1"


@pytest.fixture(scope="module")
def network(run):
    return models.load(run)


@pytest.fixture(scope="module")
def head():
    """An MLP on top; not trained, but nothing here needs that."""
    torch.manual_seed(0)
    return DistNetMLP((1, 8, 8), 10, 12, 2, [0.3], 0.3, head=6).eval()


@pytest.mark.parametrize("method", ["box", "margin"])
def test_what_is_proved(network, test_set, method):
    images, labels = test_set.images[10:110], test_set.labels[10:110]
    rows = evaluate_batch(Certifiers(network), images, labels, 10, EPS, method, []).rows
    assert [row.index for row in rows] == list(range(10, 110))
    assert [row.label for row in rows] == labels.tolist()
    proof = certify(network, images.float() / 255, EPS, labels, method=method)
    margin = certify(network, images.float() / 255, EPS, labels, method="margin")
    assert [row.prediction for row in rows] == proof.prediction.tolist()
    assert [row.radius for row in rows] == proof.radius.tolist()  # to the last bit
    assert [row.margin_radius for row in rows] == margin.radius.tolist()
    assert [row.certified for row in rows] == proof.certified.tolist()
    assert 0 < sum(row.certified for row in rows) < 100
    assert all(row.attacks == {} for row in rows)
    assert [Row.parse(row.as_json(), "") for row in rows] == rows


def test_what_is_attacked(network, test_set):
    """Errors are not; the others have what the attack found, image by image."""
    attack = attacks.attack("pgd")
    found = evaluate_batch(Certifiers(network), test_set.images, test_set.labels, 0, EPS, "margin", [attack])
    x, y = test_set.images.float() / 255, test_set.labels
    broken = 0
    for row, image, label in zip(found.rows, x, y, strict=True):
        attacked = found.attacked["pgd"].get(row.index)
        assert (attacked is None) == (row.attacks == {}) == (row.prediction != row.label)
        if attacked is None:
            continue
        result = row.attacks["pgd"]
        assert result.prediction == int(network(attacked[None]).argmax())
        assert result.broken == (result.prediction != label)
        assert result.size == float((attacked.double() - image.double()).abs().max())
        assert Fraction(result.size) <= parse_eps(EPS)
        broken += result.broken
    assert 0 < broken < len(y)
    assert found.seconds.keys() == {"certify", "pgd"}
    assert violations(found.rows, EPS) == []


def test_rows_do_not_depend_on_the_batch(network, test_set):
    images, labels, proofs = test_set.images[:40], test_set.labels[:40], Certifiers(network)

    def rows(size):
        parts = [slice(start, start + size) for start in range(0, 40, size)]
        attack = attacks.attack("pgd")
        return [
            row
            for few in parts
            for row in evaluate_batch(proofs, images[few], labels[few], few.start, EPS, "box", [attack]).rows
        ]

    assert rows(40) == rows(17) == rows(3)


def test_costly_proofs_are_spared_where_they_cannot_matter(test_set):
    """The same certificates as when everything is tried; nothing costly is asked of what is wrong, broken or proved."""
    torch.manual_seed(0)
    net = ReLUNet((1, 8, 8), 10, [0.3], 0.3, hidden=[16, 16])
    data = load("digits", split="train")
    train(net, data.images, data.labels, "ibp", Plan(eps=0.05, epochs=6, warm_up=1, ramp=3, lr=0.01, batch_size=64))
    images, labels, asked = test_set.images[:150], test_set.labels[:150], []

    class Asked(Certifiers):
        def __call__(self, images, labels, eps, method, radii):
            asked.append((method, len(images)))
            return super().__call__(images, labels, eps, method, radii)

    attack = [attacks.attack("pgd")]
    spared, full = (
        evaluate_batch(Asked(net), images, labels, 0, "0.04", "crown-ibp,crown", attack, radii=False, spare=spare).rows
        for spare in (True, False)
    )
    assert [row.certified for row in spared] == [row.certified for row in full]
    assert violations(spared, "0.04") == []
    quick = certify(net, images / 255, "0.04", labels, method="box", radii=False).certified
    left = sum(row.correct and not row.attacks["pgd"].broken for row in full) - int(quick.sum())
    assert asked == [("box", 150), ("crown-ibp,crown", left), ("crown-ibp,crown", 150)]
    assert int(quick.sum()) < sum(row.certified for row in spared)
    assert any(row.correct and row.attacks["pgd"].broken for row in full)
    assert not all(row.correct for row in full)


def test_a_head_has_the_better_of_two_proofs(head, test_set):
    images = test_set.images[:60]
    x = images.float() / 255
    labels = head(x).argmax(1)  # so that certificates are not lost to errors
    rows = evaluate_batch(Certifiers(head), images, labels, 0, "0.01", "box", []).rows
    box, margin = (certify(head, x, "0.01", labels, method=method) for method in ("box", "margin"))
    assert [row.radius for row in rows] == torch.maximum(box.radius, margin.radius).tolist()
    assert [row.certified for row in rows] == (box.certified | margin.certified).tolist()
    assert any(row.radius > row.margin_radius for row in rows)
    assert any(row.certified for row in rows)
    assert violations(rows, "0.01") == []


def test_watch(network, head, test_set):
    recipe = recipes.load("digits-quick")
    boxes = {"e4": 1, "box_lr": 0.01, "box_threshold": "0.1"}
    for net, eps, changes, method in (
        (network, EPS, {}, "margin"),
        (head, "0.001", {}, "margin"),
        (copy.deepcopy(network).double(), EPS, {}, "margin"),
        (head, "0.001", boxes, "box"),
        (head, "0.001", {"clip": [0.1, 0.9]}, "box"),
    ):
        x = test_set.images.to(next(net.parameters()).dtype) / 255
        proof = certify(net, x, eps, test_set.labels, method=method)
        expected = {"clean": proof.prediction == test_set.labels, "certified": proof.certified}
        assert watch(recipe.override({"eps": eps, **changes}))(net, test_set.images, test_set.labels) == {
            name: pytest.approx(100 * float(values.double().mean())) for name, values in expected.items()
        }
