"""A network on a data set: one row per image, then the summary."""

from .rows import evaluate as evaluate
from .rows import summarise as summarise
from .rows import watch as watch
