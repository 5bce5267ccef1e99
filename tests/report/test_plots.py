"""Plots take results, return axes, and claim no more than the results do. The report's own charts: tests/report."""

import dataclasses
import math
from fractions import Fraction

import pytest
import torch

from linfdist import Certificate
from linfdist.report import plots
from linfdist.training import Progress

matplotlib = pytest.importorskip("matplotlib", reason="the extra `report` is not installed")


@pytest.fixture(autouse=True)
def no_window(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    yield
    plt.close("all")


def proof(eps=Fraction(3, 10), certified=(True, True, False, False)):
    radius = torch.tensor([0.4, 0.2999999, 0.2, 0.5], dtype=torch.float64)
    return Certificate(torch.tensor([0, 1, 2, 3]), radius, torch.tensor(certified), eps=eps)


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_a_curve_from_a_certificate_counts_right_images_alone():
    axes = plots.certified_accuracy(proof(), torch.tensor([0, 1, 2, 0]))
    assert {"50.00 % certified", "75.00 % clean", "ε = 0.3"} <= set(texts(axes))
    xs, ys = axes.lines[0].get_data()
    assert list(ys) == [75, 75, 50, 25, 0]
    assert list(xs) == [0, 0.2, 0.3, 0.4, 0.4]  # the second image is certified at 0.3, which is above its radius


def test_what_is_certified_at_no_known_radius_counts_by_its_radius():
    axes = plots.certified_accuracy(proof(eps=None), [0, 1, 2, 3])
    assert texts(axes) == ["100.00 % clean"]
    assert list(axes.lines[0].get_data()[0]) == [0, 0.2, 0.2999999, 0.4, 0.5, 0.5]


def test_names_of_classes_are_labels_too():
    named, labels = dataclasses.replace(proof(), class_names=("cat", "dog", "emu", "fox", "gnu")), [0, 1, 2, 1]
    expected = plots.certified_accuracy(proof(), labels).lines[0].get_data()
    found = plots.certified_accuracy(named, ["cat", "dog", "emu", "dog"]).lines[0].get_data()
    assert all((one == other).all() for one, other in zip(found, expected, strict=True))


def test_an_image_with_channels_last():
    image = torch.rand(3, 8, 9)
    for given in (image, image.permute(1, 2, 0), image.permute(1, 2, 0).numpy()):
        assert torch.equal(torch.tensor(plots.image(given)[0].images[0].get_array()), image.permute(1, 2, 0).double())


def test_bad_input_is_named():
    with pytest.raises(TypeError, match="labels are missing"):
        plots.certified_accuracy(proof())
    with pytest.raises(ValueError, match="3 labels for a certificate of 4 images"):
        plots.certified_accuracy(proof(), [0, 1, 2])
    with pytest.raises(TypeError, match="labels must be whole numbers or names of classes, got float64"):
        plots.certified_accuracy(proof(), [0.7, 1.0, 2.0, 1.0])
    with pytest.raises(ValueError, match="nothing to draw"):
        plots.certified_accuracy(proof()[:0], [])
    with pytest.raises(ValueError, match="there are no epochs"):
        plots.training([])
    with pytest.raises(ValueError, match=r"must be \(H, W\)"):
        plots.image(torch.zeros(2, 8, 8))
    with pytest.raises(ValueError, match="outside"):
        plots.image(torch.full((8, 8), 7.0))
    with pytest.raises(ValueError, match="another size"):
        plots.image(torch.zeros(8, 8), attacked=torch.zeros(4, 4))


def test_training_from_what_the_callback_gets():
    seen = [Progress(k, 4, k, 1 / k, 20.0 * k, p, 0.1) for k, p in ((1, 8.0), (2, 100.0), (3, math.inf), (4, math.inf))]
    accuracy, loss, norm = plots.training(seen)
    assert list(accuracy.lines[0].get_ydata()) == [20, 40, 60, 80]
    assert list(loss.lines[0].get_xdata()) == [1, 2, 3, 4]
    assert list(norm.lines[0].get_ydata()) == [8, 100]
    assert "p = ∞" in texts(norm)


def test_an_image_and_its_attack():
    image = torch.zeros(1, 4, 4, dtype=torch.uint8)
    attacked = torch.zeros(1, 4, 4)
    attacked[0, 0, 0] = 0.25
    shown = plots.image(image, 0.12349, 7, attacked=attacked, attacked_prediction=2, classes="abcdefgh")
    assert [axes.get_xlabel() for axes in shown] == ["h up to 0.1234", "c at 0.2500", "difference × 2"]
    assert shown[2].images[0].get_array()[0, 0].tolist() == [1, 1, 1]
    assert shown[2].images[0].get_array()[1, 1].tolist() == [0.5, 0.5, 0.5]
    (alone,) = plots.image(image[0])
    assert alone.get_xlabel() == ""


def test_settings_of_matplotlib_are_left_alone_and_axes_can_be_given():
    before = dict(matplotlib.rcParams)
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots()
    assert plots.certified_accuracy(proof(), [0, 1, 2, 3], axes=axes, theme=plots.DARK) is axes
    assert axes.lines[0].get_color() == plots.DARK.certified
    assert dict(matplotlib.rcParams) == before
