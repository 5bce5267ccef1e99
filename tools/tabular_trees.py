"""Provably robust boosted trees, the strongest rival of `linfdist.sklearn` on tables: the package groot-trees.

M. Andriushchenko and M. Hein, "Provably robust boosted decision stumps and trees against adversarial attacks",
NeurIPS 2019: each tree is grown to minimise an upper bound of the loss within the ε-ball, and what the sum of the trees
is at least, tree by tree, is proved. With more than two classes there is one ensemble for each, against the rest.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


class RobustTrees:
    """Boosted trees with the package's own settings, trained for a radius of `eps` of features scaled to [0, 1]."""

    def __init__(self, eps: float) -> None:
        try:
            from groot.provably_robust_boosting import wrapper  # type: ignore[import-not-found]
        except ImportError as error:
            raise ImportError(f"robust trees need the package groot-trees ({error}): pip install groot-trees") from None
        if wrapper.TreeEnsemble.__name__ == "TreeEnsemble":
            wrapper.TreeEnsemble = _for_today(wrapper.TreeEnsemble)
        self.fit_one, self.eps = wrapper.fit_provably_robust_boosting, eps

    def fit(self, x: Floats, y: Labels) -> "RobustTrees":
        """Train an ensemble for each class; for two classes, one says both."""
        self.classes_ = np.unique(y)
        rest = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        single = x.astype(np.float32)
        self.ensembles = [self.fit_one(single, (y == each).astype(int), epsilon=self.eps) for each in rest]
        return self

    def score(self, x: Floats, y: Labels) -> float:
        """Return the accuracy."""
        return float(self.proves(x, y, 0.0).mean())

    def proves(self, x: Floats, y: Labels, eps: float) -> NDArray[np.bool_]:
        """Return where the class is right, and proved to stay right: the lower bound of its lead is positive."""
        own = np.searchsorted(self.classes_, y)
        if len(self.ensembles) == 1:
            return self._least(0, x, np.where(own == 1, 1.0, -1.0), eps) > 0
        ones = np.ones(len(x))
        low = np.stack([self._least(k, x, ones, eps) for k in range(len(self.ensembles))], 1)
        high = np.stack([-self._least(k, x, -ones, eps) for k in range(len(self.ensembles))], 1)
        lead = np.take_along_axis(low, own[:, None], 1) - high
        np.put_along_axis(lead, own[:, None], np.inf, 1)
        return lead.min(1) > 0

    def _least(self, number: int, x: Floats, sign: Floats, eps: float) -> NDArray[Any]:
        """Return a lower bound of sign · f over the ball: the sum of what each tree is at least."""
        least: NDArray[Any] = self.ensembles[number].certify_treewise(x.astype(np.float32), sign, eps)
        return least


def _for_today(ensemble: type[Any]) -> type[Any]:
    """Return the package's class for a NumPy that does not compare arrays with [] any more, as version 0.0.17 does."""

    class ForToday(ensemble):
        def add_weak_learner(self, tree: Any, apply_lr: bool = True) -> None:
            if tree is not None:
                tree.node_list = list(tree.node_list)
            super().add_weak_learner(tree, apply_lr)
            if tree is not None:
                tree.node_list = tree.to_array_contiguous()

    return ForToday
