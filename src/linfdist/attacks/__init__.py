"""Attacks: searches for images that fool a network. What they leave unbroken shows how tight its certificates are."""

from typing import TYPE_CHECKING, Any

from ..errors import closest
from ..lazy import lazy_names

if TYPE_CHECKING:  # what `__getattr__` below imports when it is first used
    from .art import art_classifier
    from .autoattack import Auto
    from .base import Attack, Attacked, size
    from .pgd import PGD
    from .smallest_change import smallest
    from .strong import Strong

_PLACES = {"pgd": ("pgd", "PGD"), "strong": ("strong", "Strong"), "auto": ("autoattack", "Auto")}  # module and class
ATTACKS = tuple(_PLACES)


def attack(name: str, **options: Any) -> "Attack":
    """Make the named attack with options of its class, such as `seed`. Raises ValueError that lists the names."""
    if name not in _PLACES:
        raise ValueError(f"no attack {name!r}: the attacks are {', '.join(ATTACKS)}{closest(name, ATTACKS)}")
    made: Attack = __getattr__(_PLACES[name][1])(**options)
    return made


__all__ = ["ATTACKS", "PGD", "Attack", "Attacked", "Auto", "Strong", "art_classifier", "attack", "size", "smallest"]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("Attack", "Attacked", "size"), "base"),
        **{attack: module for module, attack in _PLACES.values()},
        "art_classifier": "art",
        "smallest": "smallest_change",
    },
)
