"""The estimator: fit, predict, and prove."""

import contextlib
import os
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, ClassifierMixin  # type: ignore[import-untyped]
from sklearn.utils import check_random_state  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data  # type: ignore[import-untyped]
from torch import Tensor

from ..certificates import Certificate, Certifier
from ..data.samples import MOST_CHANNELS, plain_array
from ..eps import is_number, parse_eps, round_up
from ..models import PixelNet
from . import file
from .scaling import Floats, Scaling, check_exact, check_unmasked
from .training import Settings, train, updates
from .weights import class_weights, merged, weights_of

ROWS = 4096  # that go through the network at once
LARGEST_EPS = 10**300
SLACK = 2.0**-22  # of the network's inputs: more than rounding moves them
SHARES = (1 - 2.0**-8, 0.9, 0.75, 0.5)  # of a radius, tried where it fails: the grain of float64 may be coarse

Eps = str | float | Fraction | ArrayLike


class LinfDistClassifier(ClassifierMixin, BaseEstimator):
    """An ℓ∞-dist net whose predictions come with proofs: no change of the features by up to ε changes the class.

    Rows of numbers (n, features) and images (n, height, width[, channels]) are taken as they are: each feature is
    scaled by its range in the training data, all pixels of images by one range. Features that are constant there are
    left out. Beyond the range, a value counts as the nearest one in it.

    **What ε means.** `scale_` holds, for each feature and in the units of X, how much ε = 1 is. With `scale="range"`,
    ε = 0.05 lets every feature change by up to 5 % of its range in the training data (for 8-bit images: of 255, so that
    "8/255" is eight levels). With `scale=1.0`, ε is in the units of X. `eps` may be one number or text such as "8/255",
    one number for each feature, or one for each feature of each sample: features may change by `eps * scale_`.

    **What is proved.** A certificate is about `predict` of X as float64: for every x′ with |x′ − x| <= eps * scale_ in
    exact arithmetic, feature by feature, `predict` gives the same class. The rounding of all scaling and of the whole
    network is accounted for. `decision_function` and `predict_proba` are not certified.

    Parameters
    ----------
    eps : number or text, default=0.05
        The radius to train for, in units of the scale. Larger ones give larger proved radii and lower accuracy.
    scale : "range", number or array (n_features,), default="range"
        What ε = 1 means, see above.
    width : int, default=128
        Neurons of each hidden layer.
    depth : int, default=3
        Layers of distances; the last one gives the classes.
    max_iter : int or None, default=None
        Updates of the weights, each with up to 64 samples. None: 300 for the smallest data, 1000 from 1000 samples on.
    class_weight : dict, "balanced" or None, default=None
        How much the samples of each class count, as in scikit-learn: "balanced" lets all classes count the same,
        however rare they are. It multiplies the `sample_weight` of `fit`.
    outside : {"clip", "error"}, default="clip"
        What to do with values beyond the range of the training data: take the nearest value in it, or refuse them.
    random_state : int, RandomState instance or None, default=None
        The seed of the training. The same number gives the same network.
    verbose : bool, default=False
        Print the progress of `fit`.

    Attributes
    ----------
    classes_ : array (n_classes,)
    scale_ : array (n_features,), or a number for images
        How much ε = 1 is, in the units of X. 0 for a feature that was constant: it is left out, and may be anything.
    network_ : linfdist.models.PixelNet
        The network behind the scaling, for inputs of [0, 1].
    n_iter_ : int
        How many updates were done. Ctrl-C ends `fit` early, with a warning and a usable classifier.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from linfdist.sklearn import LinfDistClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> classifier = LinfDistClassifier(random_state=0, max_iter=200).fit(X[::2], y[::2])
    >>> proof = classifier.certify(X[1::2], eps=0.02)
    >>> bool(proof.certified.float().mean() > 0.5)
    True
    """

    def __init__(
        self,
        eps: str | float | Fraction = 0.05,
        *,
        scale: str | float | ArrayLike = "range",
        width: int = 128,
        depth: int = 3,
        max_iter: int | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        outside: str = "clip",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.eps = eps
        self.scale = scale
        self.width = width
        self.depth = depth
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.outside = outside
        self.random_state = random_state
        self.verbose = verbose

    # --- training ---

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> "LinfDistClassifier":
        """Train on samples X and their classes y; see the class for what X may be.

        sample_weight: (n,) how much each sample counts. A weight of 0 is as if it were not there, and one of 2 as if it
        were there twice.
        """
        self._check_parameters()
        levels = getattr(X, "dtype", None) == np.uint8 and np.ndim(X) > 2
        check_exact(X, "X")
        check_unmasked(y, "y")
        x, y = validate_data(self, X, y, dtype=np.float64, allow_nd=True)
        check_classification_targets(y)
        shape = _check_images(x)
        counts = weights_of(sample_weight, x)
        x, y, counts = x[counts > 0], y[counts > 0], counts[counts > 0]
        self.classes_, labels = np.unique(y, return_inverse=True)
        labels = labels.reshape(-1)
        if len(self.classes_) < 2:
            raise ValueError(f"y: all samples are of one class, {self.classes_[0]!r}; a classifier needs at least two")
        counts = counts * class_weights(self.class_weight, self.classes_, labels, counts)[labels]
        x, labels, counts = merged(x, labels, counts)
        scaling = Scaling.of(x, self.scale, levels)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        eps = round_up(parse_eps(self.eps, at_most=LARGEST_EPS)) / max(scaling.ratio, np.finfo(np.float64).tiny)
        settings = Settings(
            min(eps, 1.0),
            int(self.width),
            int(self.depth),
            int(self.max_iter or updates(len(x))),
            seed,
            bool(self.verbose),
        )
        inputs = _channels_first(torch.from_numpy(scaling.inputs(x)))
        even = bool((counts == counts[0]).all())
        trained = train(
            inputs,
            torch.from_numpy(labels.astype(np.int64)),
            None if even else torch.from_numpy(counts),
            len(self.classes_),
            settings,
        )
        self.network_, self.n_iter_ = trained.network, trained.steps
        self.scaling_, self.scale_, self.shape_ = scaling, scaling.scale, shape
        self.temperature_ = _temperature(self._logits(inputs), labels, counts)
        return self

    def _check_parameters(self) -> None:
        parse_eps(self.eps, at_most=LARGEST_EPS)
        for name in ("width", "depth", "max_iter"):
            value = getattr(self, name)
            least = 2 if name == "depth" else 1
            if name == "max_iter" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} = {value!r}: must be a whole number, at least {least}")
        if self.outside not in ("clip", "error"):
            raise ValueError(f"outside = {self.outside!r}: must be 'clip' or 'error'")

    # --- what every classifier has ---

    def decision_function(self, X: Any) -> Floats:
        """Return the logits (n, n_classes) in units of the scale, or with two classes their difference (n,).

        They are not certified.
        """
        logits = self._logits(self._inputs(self._samples(X)))
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class of each sample."""
        inputs = self._inputs(self._samples(X))
        return self._classes(inputs)

    def predict_proba(self, X: Any) -> Floats:
        """Scores (n, n_classes) that sum to 1: the softmax of the logits times a number fitted to the training data.

        They are not certified, and no calibrated probabilities either: the training data are classified better than
        others are.
        """
        inputs = self._inputs(self._samples(X))
        logits = self.temperature_ * self._logits(inputs)
        scores = np.exp(logits - logits.max(1, keepdims=True))
        return scores / scores.sum(1, keepdims=True)

    # --- what no other one has ---

    def certify(self, X: Any, eps: Eps | None = None) -> Certificate:
        """Prove, sample by sample, that no change of the features by up to `eps * scale_` changes the class.

        eps: see the class; None for radii alone. In the `Certificate`, `prediction` are indices into `classes_`,
        `radius` are the largest ε found for which the class is proved, and `certified` tells for which samples it is
        proved at `eps`. Where nothing at all can change the class, the radius is infinite.
        """
        x = self._samples(X)
        ball = None if eps is None else self._eps(eps, x)
        inputs = self._inputs(x)
        certifier = Certifier(self.network_)
        certified = None if ball is None else self._proved(certifier, x, inputs, ball)
        look = certifier(inputs, None)
        radius = self._radii(certifier, x, inputs, look.radius)
        if certified is not None and ball is not None and ball.ndim == 0:
            radius = radius.clamp(min=float(ball)).where(certified, radius)  # that one was proved, too
        stated = parse_eps(cast(Any, eps), at_most=LARGEST_EPS) if is_number(eps) else None
        return Certificate(look.prediction, radius, certified, eps=stated)

    def predict_certified(self, X: Any, eps: Eps, abstain: Any = -1) -> NDArray[Any]:
        """Return the class of each sample where it is proved at `eps`, and `abstain` elsewhere."""
        x = self._samples(X)
        if any(abstain == each for each in self.classes_.tolist()):
            raise ValueError(f"abstain = {abstain!r}: is one of the classes; choose something else, such as None")
        inputs = self._inputs(x)
        sure = self._proved(Certifier(self.network_), x, inputs, self._eps(eps, x)).numpy()
        classes = self._classes(inputs)
        if isinstance(abstain, int | np.integer) and classes.dtype.kind in "iuf":
            with contextlib.suppress(OverflowError):  # it may not fit the type of the classes, or become one of them
                same_type = classes.dtype.type(abstain)
                if int(same_type) == int(abstain):
                    return np.where(sure, classes, same_type)
        return np.where(sure, classes.astype(object), abstain)

    def certified_score(self, X: Any, y: Any, eps: Eps) -> float:
        """Return the certified accuracy: the share of samples whose class is right, and proved at `eps`."""
        x = self._samples(X)
        inputs = self._inputs(x)
        right = self._classes(inputs) == self._labels(y, len(x))
        return float((self._proved(Certifier(self.network_), x, inputs, self._eps(eps, x)).numpy() & right).mean())

    def _labels(self, y: Any, n: int) -> NDArray[Any]:
        check_unmasked(y, "y")
        labels = column_or_1d(y, warn=True)
        if len(labels) != n:
            raise ValueError(f"y: has {len(labels)} labels for {n} samples")
        return labels

    # --- files ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted classifier to one safetensors file, without pickle; `load` reads it."""
        check_is_fitted(self)
        file.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LinfDistClassifier":
        """Read a classifier that `save` has written. Nothing in the file is executed."""
        return file.load(cls(), path)

    # --- inside ---

    def _samples(self, X: Any) -> Floats:
        """X as float64, in the shape that the classifier was fitted for."""
        check_is_fitted(self)
        check_exact(X, "X")
        x: Floats = validate_data(self, X, reset=False, dtype=np.float64, allow_nd=True)
        if x.shape[1:] != self.shape_:
            raise ValueError(f"X: samples have shape {x.shape[1:]}, but the classifier was fitted for {self.shape_}")
        if self.outside == "error" and (beyond := self.scaling_.outside(x)).any():
            first = tuple(int(place) for place in np.argwhere(beyond)[0])
            raise ValueError(
                f"X: {x[first]!r} at {first} lies outside the range of the training data; outside='clip' takes the "
                "nearest value in it"
            )
        return x

    def _inputs(self, x: Floats) -> Tensor:
        return _channels_first(torch.from_numpy(self.scaling_.inputs(x)))

    @torch.no_grad()
    def _logits(self, inputs: Tensor) -> Floats:
        network: PixelNet = self.network_
        return torch.cat([network(few) for few in inputs.split(ROWS)]).double().numpy()

    def _classes(self, inputs: Tensor) -> NDArray[Any]:
        return self.classes_[self._logits(inputs).argmax(1)]

    def _eps(self, eps: Eps, x: Floats) -> Floats:
        """Convert the radius to float64, rounded up, in a shape that broadcasts to x."""
        if eps is None:
            raise TypeError("eps: is missing; give a radius such as 0.05, in units of `scale_`")
        if is_number(eps):
            radii = np.asarray(round_up(parse_eps(cast(Any, eps), at_most=LARGEST_EPS)))
        else:
            given = plain_array(eps, "eps")
            check_exact(given, "eps")
            if given.dtype.kind not in "fiu":
                raise TypeError(f"eps: must be text, a number or an array of numbers, got {given.dtype}")
            radii = given.astype(np.float64)
        if not (np.isfinite(radii) & (radii >= 0)).all():
            raise ValueError(f"eps = {eps!r}: must be finite and not negative")
        try:
            np.broadcast_to(radii, x.shape)
        except ValueError:
            raise ValueError(f"eps: shape {radii.shape} does not fit X of shape {x.shape}") from None
        if isinstance(self.scale, str) and radii.size and radii.max() > 1:
            raise ValueError(
                f"eps = {eps!r}: is more than 1, the whole range of a feature; with scale='range', eps is a share of "
                "the range, such as 0.05 or 8/255. For radii in the units of X, fit with scale=1.0"
            )
        return radii

    def _proved(self, certifier: Certifier, x: Floats, inputs: Tensor, eps: Floats) -> Tensor:
        """(n,) bool: the class is the same in the whole box."""
        reach = _channels_first(self.scaling_.reach(x, eps))
        certified = certifier(inputs, reach, radii=False).certified
        assert certified is not None
        return certified

    def _radii(self, certifier: Certifier, x: Floats, inputs: Tensor, radius: Tensor) -> Tensor:
        """Convert the network's radii to units of the scale.

        Each is proved again, as a box of X: rounding spoils nothing.
        """
        found, sure = torch.zeros_like(radius), torch.zeros_like(radius, dtype=torch.bool)
        inside = (radius - SLACK).clamp(min=0.0) * self.scaling_.ratio
        everything = inside.where(radius < 1, torch.inf)  # a radius of 1 is the whole range of every feature
        for tried in (everything, *(inside * share for share in SHARES)):
            rows = (~sure & (tried > 0)).nonzero()[:, 0]
            if len(rows):
                eps = tried[rows].numpy().reshape(-1, *[1] * (x.ndim - 1))
                sure[rows] = self._proved(certifier, x[rows.numpy()], inputs[rows], eps)
                found = found.where(~sure | (found > 0), tried)
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _check_images(x: Floats) -> tuple[int, ...]:
    if x.ndim > 4 or (x.ndim == 4 and x.shape[3] > MOST_CHANNELS):
        raise ValueError(
            f"X: must be (n, features), or images (n, height, width) or (n, height, width, channels) with at most "
            f"{MOST_CHANNELS} channels; got {x.shape}"
        )
    return x.shape[1:]


def _channels_first(samples: Tensor) -> Tensor:
    """(n, features) -> (n, features, 1, 1); (n, H, W) -> (n, 1, H, W); (n, H, W, C) -> (n, C, H, W)."""
    if samples.dim() == 2:
        return samples[:, :, None, None]
    return samples[:, None] if samples.dim() == 3 else samples.permute(0, 3, 1, 2).contiguous()


def _temperature(logits: Floats, labels: NDArray[Any], counts: Floats) -> float:
    """Find the factor of the logits, between 2^-10 and 2^10, for which the labels are most likely."""

    def surprise(exponent: float) -> float:
        scaled = logits * 2.0**exponent
        scaled -= scaled.max(1, keepdims=True)
        each = np.log(np.exp(scaled).sum(1)) - scaled[np.arange(len(labels)), labels]
        return float(np.average(each, weights=None if (counts == counts[0]).all() else counts))

    return float(2.0 ** minimize_scalar(surprise, bounds=(-10, 10), method="bounded").x)
