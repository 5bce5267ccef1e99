"""The estimator: fit, predict, and prove."""

import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin  # type: ignore[import-untyped]
from sklearn.utils import check_random_state  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data  # type: ignore[import-untyped]
from torch import Tensor

from ..certificates import Certificate, Certifier
from ..certificates.proofs import largest_proved
from ..data.samples import MOST_CHANNELS, plain_array
from ..eps import is_number, parse_change, round_up
from ..files import excerpt
from ..models import PixelNet
from ..recipes.values import MOST, MOST_LAYERS
from . import file
from .answers import RowCertificate, with_abstention
from .columns import Change, Columns, is_by_column
from .scaling import Floats, Scaling, check_exact, check_unmasked, reach
from .training import Settings, class_weights, likeliest_factor, merged, train, updates, weights_of

ROWS = 4096  # that go through the network at once
SLACK = 2.0**-22  # of the network's inputs: more than rounding moves them
MOST_STEPS = 2.0**20  # ranges of the most sensitive feature: up to there radii are searched for
SHARES = (1 - 2.0**-8, 0.9, 0.75, 0.5)  # of a radius, tried where it fails: the grain of float64 may be coarse

Eps = str | float | Fraction | ArrayLike | Mapping[Any, Any]


class LinfDistClassifier(ClassifierMixin, BaseEstimator):
    """An ℓ∞-dist net whose predictions come with proofs: no change of the features by up to ε changes the class.

    Rows of numbers (n, features) and images (n, height, width[, channels]) are taken as they are: each feature is
    scaled by its range in the training data, all pixels of images by one range. Features that are constant there are
    left out. Beyond the range, a value counts as the nearest one in it.

    **What ε means.** `scale_` holds, for each feature and in the units of X, how much ε = 1 is. With `scale="range"`,
    ε = 0.05 lets every feature change by up to 5 % of its range in the training data (for 8-bit images: of 255, so that
    "8/255" is eight levels). With `scale=1.0`, ε is in the units of X. `eps` may be one number or text such as "8/255",
    one number for each feature, or one for each feature of each sample: features may change by `eps * scale_`.

    **By column.** `eps` may also be a dict or a pandas Series in the units of X: {"age": 2, "income": (0, 500)} lets
    the age change by up to 2 and the income grow by up to 500, while all other columns stay as they are. Columns are
    named, or numbered from 0.

    **What is proved.** A certificate is about `predict` of X as float64: for every x′ with |x′ − x| <= eps * scale_ in
    exact arithmetic, feature by feature, `predict` gives the same class. The rounding of all scaling and of the whole
    network is accounted for. `decision_function` and `predict_proba` are not certified.

    Parameters
    ----------
    eps : number, text or changes by column, default=0.05
        The radius to train for, in units of the scale, and to certify unless another one is given. Larger ones give
        larger proved radii and lower accuracy. Changes by column are in the units of X, and become the scale: then
        ε = 1 means these changes.
    scale : "range", number or array (n_features,), default="range"
        What ε = 1 means, see above.
    fixed : names, positions or truth values of columns, default=None
        Columns that stay as they are, such as categories in ordinal or one-hot codes: their `scale_` is 0.
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
        How much ε = 1 is, in the units of X. 0 for a feature that stays as it is, and with `scale="range"` for one that
        was constant: that is left out, and may be anything.
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
        eps: str | float | Fraction | Mapping[Any, Any] = 0.05,
        *,
        scale: str | float | ArrayLike = "range",
        fixed: Iterable[Any] | None = None,
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
        self.fixed = fixed
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

        sample_weight: (n,) how much each sample counts. A sample of weight 0 is ignored, and one of weight 2 counts as
        two equal samples.
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
        self.shape_ = shape
        scaling = self._scaling(x, levels)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        eps = 1.0 if is_by_column(self.eps) else round_up(parse_change(cast(Any, self.eps), "eps"))
        eps /= max(scaling.ratio, np.finfo(np.float64).tiny)
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
        self.scaling_, self.scale_ = scaling, scaling.scale
        self.temperature_ = likeliest_factor(self._logits(inputs), labels, counts)
        return self

    def _scaling(self, x: Floats, levels: bool) -> Scaling:
        if not is_by_column(self.eps):
            fixed = None if self.fixed is None else self._columns("fixed").mask(self.fixed, "fixed")
            if fixed is not None and fixed.all():
                raise ValueError("fixed: holds all columns, so that none is left that could change")
            return Scaling.of(x, self.scale, levels, fixed)
        if self.fixed is not None or not self._is_range():
            raise ValueError(
                "eps by column says what each column may do, in the units of X, and fixes those that it does not name: "
                "leave scale and fixed at their defaults"
            )
        change = np.maximum(*self._columns("eps").changes(self.eps))
        if not change.any():
            raise ValueError(f"eps = {self.eps!r}: no column may change; name one that may")
        return Scaling.of_changes(x, change)

    def _is_range(self) -> bool:
        return isinstance(self.scale, str) and self.scale == "range"

    def _columns(self, what: str) -> Columns:
        if len(self.shape_) > 1:
            raise ValueError(f"{what}: X are images, which have no columns")
        names = getattr(self, "feature_names_in_", None)
        return Columns(self.shape_[0], None if names is None else tuple(names))

    def _check_parameters(self) -> None:
        if not is_by_column(self.eps):
            parse_change(cast(Any, self.eps), "eps")
        for name in ("width", "depth", "max_iter"):
            value = getattr(self, name)
            least, most = (2, MOST_LAYERS) if name == "depth" else (1, MOST)
            if name == "max_iter" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
                raise ValueError(f"{name} = {excerpt(value)}: must be a whole number from {least} to {most:,}")
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

        They are neither certified nor calibrated: the training data are classified better than other data.
        """
        inputs = self._inputs(self._samples(X))
        logits = self.temperature_ * self._logits(inputs)
        scores = np.exp(logits - logits.max(1, keepdims=True))
        return scores / scores.sum(1, keepdims=True)

    # --- what no other one has ---

    def certify(self, X: Any, eps: Eps | None = None) -> Certificate:
        """Prove, sample by sample, that no change of the features by up to `eps * scale_` changes the class.

        eps: see the class; None for that of the classifier. In the certificate, `prediction` are indices into
        `classes_`, `radius` are the largest ε found for which the class is proved while features change in both
        directions, and `certified` tells for which samples it is proved at `eps`. Where nothing at all can change the
        class, the radius is infinite.
        """
        x = self._samples(X)
        eps = self.eps if eps is None else eps
        change = self._change(eps, x)
        inputs = self._inputs(x)
        certifier = Certifier(self.network_)
        certified = self._proved(certifier, x, inputs, change)
        look = certifier(inputs, None)
        radius = self._radii(certifier, x, inputs, look.radius)
        stated = parse_change(cast(Any, eps), "eps") if is_number(eps) else None
        held = round_up(stated) if stated is not None else float((np.minimum(*change) >= self.scale_).all())
        radius = radius.clamp(min=held).where(certified, radius)  # that one was proved, too
        names = tuple(map(str, self.classes_.tolist()))
        if len(self.shape_) > 1:
            return Certificate(look.prediction, radius, certified, eps=stated, class_names=names)
        if is_by_column(eps):
            at = f"for {self._columns('eps').in_words(eps)}"
        else:
            at = "at eps as given" if stated is None else f"at {eps}"
        return RowCertificate(
            look.prediction, radius, certified, eps=stated, class_names=names, at=at, unit=self._unit()
        )

    def _unit(self) -> str:
        if self._is_range() and not is_by_column(self.eps):
            return "ranges of the columns"
        return "units of X" if is_number(self.scale) and self.scale == 1 else "units of scale_"

    def predict_certified(self, X: Any, eps: Eps | None = None, abstain: Any = None) -> NDArray[Any]:
        """Return the class of each sample where it is proved at `eps`, and `abstain` elsewhere.

        eps: as in `certify`. abstain: None means a value of the classes' own type that is none of them, -1 for numbers
        and "abstain" for text. Where the types do not fit, answers are Python objects; so are those for classes of
        other types, with None for no answer.
        """
        x = self._samples(X)
        answer = with_abstention(self.classes_, abstain)
        inputs = self._inputs(x)
        sure = self._proved(Certifier(self.network_), x, inputs, self._change(self.eps if eps is None else eps, x))
        return answer(self._classes(inputs), sure.numpy())

    def certified_score(self, X: Any, y: Any, eps: Eps | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the certified accuracy: the share of samples whose class is right, and proved at `eps`.

        eps: as in `certify`. sample_weight: (n,) how much each of them counts, as in `score`.
        """
        x = self._samples(X)
        inputs = self._inputs(x)
        right = self._classes(inputs) == self._labels(y, len(x))
        sure = self._proved(Certifier(self.network_), x, inputs, self._change(self.eps if eps is None else eps, x))
        return float(np.average(sure.numpy() & right, weights=weights_of(sample_weight, x)))

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
            place = (
                f"row {first[0]}, {self._columns('X').name(first[1])}" if x.ndim == 2 else f"image and pixel {first}"
            )
            raise ValueError(
                f"X: {float(x[first])!r} ({place}) lies outside the range of the training data; outside='clip' takes "
                "the nearest value in it"
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

    def _change(self, eps: Eps, x: Floats) -> Change:
        """Return how far each feature may move, in the units of X."""
        if is_by_column(eps):
            return self._columns("eps").changes(eps)
        both = self.scaling_.change(self._radii_of(eps, x))
        return Change(both, both)

    def _radii_of(self, eps: Eps, x: Floats) -> Floats:
        """Convert the radius to float64, rounded up, in a shape that broadcasts to x."""
        if is_number(eps):
            radii = np.asarray(round_up(parse_change(cast(Any, eps), "eps")))
        else:
            given = plain_array(eps, "eps")
            check_exact(given, "eps")
            if given.dtype.kind not in "fiu":
                raise TypeError(f"eps: must be text, a number or an array of numbers, got {given.dtype}")
            radii = given.astype(np.float64)
        if (wrong := ~(np.isfinite(radii) & (radii >= 0))).any():
            raise ValueError(f"eps: holds {float(radii[wrong][0])!r}; must be finite and not negative")
        try:
            np.broadcast_to(radii, x.shape)
        except ValueError:
            raise ValueError(f"eps: shape {radii.shape} does not fit X of shape {x.shape}") from None
        if self._is_range() and not is_by_column(self.eps) and radii.size and radii.max() > 1:
            raise ValueError(
                f"eps = {float(radii.max()):g}: is more than 1, the whole range of a feature; with scale='range', eps "
                "is a share of the range, such as 0.05 or 8/255. For changes in the units of X, name the columns, such "
                "as {'age': 2}, or fit with scale=1.0"
            )
        return radii

    def _proved(self, certifier: Certifier, x: Floats, inputs: Tensor, change: Change) -> Tensor:
        """(n,) bool: the class is the same in the whole box.

        A box that reaches further to one side is proved around its middle. It holds x, so its class is that of x.
        """
        lower, upper = self.scaling_.box(x, *change)
        same = change.down is change.up
        centre = self.scaling_.inputs(x) if same else (lower + (upper - lower) / 2).clip(0.0, 1.0)
        around = inputs if same else _channels_first(torch.from_numpy(centre))
        certified = certifier(around, _channels_first(reach(centre, lower, upper)), radii=False).certified
        assert certified is not None
        return certified

    def _radii(self, certifier: Certifier, x: Floats, inputs: Tensor, radius: Tensor) -> Tensor:
        """Convert the network's radii to units of the scale.

        Each is proved again, as a box of X: rounding spoils nothing.
        """
        found, sure = torch.zeros_like(radius), torch.zeros_like(radius, dtype=torch.bool)
        scaling = self.scaling_

        def proves(rows: Tensor, eps: Tensor) -> Tensor:
            change = scaling.change(eps.numpy().reshape(-1, *[1] * (x.ndim - 1)))
            return self._proved(certifier, x[rows.numpy()], inputs[rows], Change(change, change))

        inside = (radius - SLACK).clamp(min=0.0) * scaling.ratio
        everything = inside.where(radius < 1, torch.inf)  # a radius of 1 is the whole range of every feature
        first = [everything] if scaling.even else [torch.full_like(radius, torch.inf), inside]
        for tried in (*first, *(inside * share for share in SHARES)):
            rows = (~sure & (tried > 0)).nonzero()[:, 0]
            if len(rows):
                sure[rows] = proves(rows, tried[rows])
                found = found.where(~sure | (found > 0), tried)
        if scaling.even:
            return found
        # The network's radius lets all features move as far as the one that moves most: more can be proved.
        steps = scaling.ratio  # in which radii are searched for
        rows = found.isfinite().nonzero()[:, 0]
        failed = torch.full_like(found[rows], torch.inf)
        more = largest_proved(lambda some, r: proves(rows[some], r * steps), found[rows] / steps, failed, MOST_STEPS)
        found[rows] = torch.where(more * steps > found[rows], more * steps, found[rows])
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
