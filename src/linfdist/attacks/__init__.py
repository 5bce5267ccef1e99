"""Attacks: searches for images that fool a network. What they leave unbroken shows how tight its certificates are."""

from typing import Any

from .autoattack import Auto
from .base import Attack, Attacked
from .pgd import PGD
from .smallest import smallest
from .strong import Strong

_CLASSES: dict[str, type[Attack]] = {each.name: each for each in (PGD, Strong, Auto)}
ATTACKS = tuple(_CLASSES)


def attack(name: str, **options: Any) -> Attack:
    """Make the attack of that name; options are those of its class, `seed` among them. ValueError lists the names."""
    if name not in _CLASSES:
        raise ValueError(f"no attack {name!r}: the attacks are {', '.join(ATTACKS)}")
    return _CLASSES[name](**options)


__all__ = ["ATTACKS", "PGD", "Attack", "Attacked", "Auto", "Strong", "attack", "smallest"]
