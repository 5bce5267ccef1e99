"""A run as one page to show: reads rows, never models."""

from .write import write as write
