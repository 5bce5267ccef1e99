"""Pictures of results, as matplotlib axes (extra `report`): the charts of `linfdist report`, for one's own figures."""

from .certified import certified_accuracy
from .compared import compared
from .image import image
from .theme import DARK, LIGHT, Theme
from .training import training

__all__ = ["DARK", "LIGHT", "Theme", "certified_accuracy", "compared", "image", "training"]
