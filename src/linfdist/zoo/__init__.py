"""Trained networks that come with the package, each with a card: what it is, and what was measured."""

from .shelf import card as card
from .shelf import file as file
from .shelf import find as find
from .shelf import names as names
