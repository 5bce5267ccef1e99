"""Pictures of results, as matplotlib axes (extra `report`): the charts of `linfdist report`, for one's own figures."""

from .curves import certified_accuracy, compared, training
from .fronts import front, fronts
from .image import image
from .style import DARK, LIGHT, Theme

__all__ = ["DARK", "LIGHT", "Theme", "certified_accuracy", "compared", "front", "fronts", "image", "training"]
