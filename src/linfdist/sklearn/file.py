"""A fitted classifier in a file: the network's safetensors file, with the scaling and the classes in its header."""

import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import excerpt, header_in
from ..models import save as save_network
from ..models.loading import parse_floats, read
from .scaling import NARROWEST, Scaling

if TYPE_CHECKING:
    from .classifier import LinfDistClassifier

KEY = "sklearn"
FORMAT = "linfdist-classifier-1"
PAIRS = "pairs"  # of a parameter that maps keys to values
KINDS = "biufU"  # of labels: what JSON can hold
LONGEST_LABEL = 4096  # bytes


def save(classifier: "LinfDistClassifier", path: str | os.PathLike[str]) -> None:
    """Write a fitted classifier."""
    labels, scaling = classifier.classes_, classifier.scaling_
    values = labels.tolist()
    text = labels.dtype.kind == "O" and all(isinstance(each, str) for each in values)
    if not text and labels.dtype.kind not in KINDS:
        raise TypeError(f"classes of type {labels.dtype} cannot be saved: use numbers or text as labels")
    names = getattr(classifier, "feature_names_in_", None)
    content = {
        "format": FORMAT,
        "parameters": {key: _plain(key, value) for key, value in classifier.get_params().items()},
        "classes": {"dtype": "object" if text else labels.dtype.str, "values": values},
        "shape": list(classifier.shape_),
        "feature_names": None if names is None else [str(name) for name in names],
        "low": scaling.low.tolist(),
        "span": scaling.span.tolist(),
        "scale": scaling.scale.tolist(),
        "ratio": scaling.ratio,
        "temperature": classifier.temperature_,
        "n_iter": classifier.n_iter_,
    }
    save_network(classifier.network_, Path(path), {KEY: content})


def load(classifier: "LinfDistClassifier", path: str | os.PathLike[str]) -> "LinfDistClassifier":
    """Load a file into a new classifier; raise ValueError that says what is wrong with the file."""
    stored, place = read(path)
    network, content = parse_floats(stored, place), header_in(stored, place).get(KEY)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{place} holds a network, but no classifier of LinfDistClassifier.save")
    try:
        classifier.set_params(**{key: _parameter(value) for key, value in content["parameters"].items()})
        classifier.classes_ = np.asarray(content["classes"]["values"], dtype=_dtype(content["classes"]["dtype"]))
        classifier.shape_ = tuple(content["shape"])
        classifier.scaling_ = _scaling(content, classifier.shape_)
        classifier.temperature_, classifier.n_iter_ = float(content["temperature"]), int(content["n_iter"])
        names = content["feature_names"]
        expected = _network_shape(classifier.shape_)
        _check_rest(classifier, names)
    except (ArithmeticError, AttributeError, LookupError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(f"{place}: its description of the classifier is damaged: {error}") from None
    if network.shape != expected or network.classes != len(classifier.classes_) or classifier.classes_.ndim != 1:
        raise ValueError(f"{place}: its network does not fit the shape and the classes that it states")
    classifier.network_, classifier.scale_ = network, classifier.scaling_.scale
    classifier.n_features_in_ = classifier.shape_[0]
    if names is not None:
        classifier.feature_names_in_ = np.asarray(names, dtype=object)
    return classifier


def _plain(name: str, value: Any) -> Any:
    """Convert a parameter to JSON, from which `_parameter` restores it.

    A generator has no such form: None is stored in its place.
    """
    if hasattr(value, "items"):  # keys may be numbers, which JSON's are not
        return {PAIRS: [[_plain(name, key), _plain(name, each)] for key, each in value.items()]}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if name == "random_state" and not isinstance(value, int):
        return None
    return [_plain(name, each) for each in value] if isinstance(value, list | tuple) else value


def _parameter(value: Any) -> Any:
    """Return the parameter that `_plain` has converted."""
    return dict(value[PAIRS]) if isinstance(value, dict) else value


def _dtype(name: Any) -> np.dtype[Any]:
    if name == "object":
        return np.dtype(object)
    dtype = np.dtype(str(name))
    if dtype.kind not in KINDS or dtype.itemsize > LONGEST_LABEL:
        raise ValueError(f"classes of type {excerpt(name)}")
    return dtype


def _check_rest(classifier: "LinfDistClassifier", names: Any) -> None:
    """Raise ValueError for parameters, classes and names that no fitted classifier has."""
    classifier._check_parameters()
    if not 0 < classifier.temperature_ < np.inf or classifier.n_iter_ < 0:
        raise ValueError("temperature must be positive and finite, and n_iter not negative")
    if len(set(classifier.classes_.tolist())) != len(classifier.classes_):
        raise ValueError("a class is there twice")
    fits = isinstance(names, list) and len(names) == classifier.shape_[0] and all(isinstance(n, str) for n in names)
    if names is not None and not fits:
        raise ValueError("feature_names must be a list of text, one for each feature")


def _scaling(content: Mapping[str, Any], shape: tuple[int, ...]) -> Scaling:
    """Read the scaling, which must keep the order of all features: the proofs rest on that."""
    wanted = shape if len(shape) == 1 else ()
    low, span, scale = (np.asarray(content[key], dtype=np.float64) for key in ("low", "span", "scale"))
    ratio = float(content["ratio"])
    for name, values in (("low", low), ("span", span), ("scale", scale)):
        if values.shape != wanted or not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite, of shape {wanted}")
    if not ((span == 0) | (span >= NARROWEST)).all() or not (scale >= 0).all() or not 0 <= ratio < np.inf:
        raise ValueError("span, scale and ratio must not be negative, nor tiny")
    return Scaling(low, span, scale, ratio)


def _network_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) == 1:
        return shape[0], 1, 1
    height, width, channels = (*shape, 1)[:3]
    return channels, height, width
