"""A certified classifier for scikit-learn: rows of features or images in, classes and proved radii out."""

try:
    import sklearn as _sklearn  # type: ignore[import-untyped]  # noqa: F401
except ImportError as error:
    raise ImportError(f"linfdist.sklearn needs scikit-learn ({error}): pip install scikit-learn") from error

from .answers import RowCertificate
from .classifier import LinfDistClassifier

__all__ = ["LinfDistClassifier", "RowCertificate"]
