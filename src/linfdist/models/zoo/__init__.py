"""Trained networks that come with the package, each with a card: what it is, and what was measured."""

from .registry import card, file, find, names

__all__ = ["card", "file", "find", "names"]
