"""Attacks: searches for images that fool a network. What they leave unbroken shows how tight its certificates are."""

from typing import TYPE_CHECKING, Any

from ..errors import closest
from ..lazy import lazy_names

if TYPE_CHECKING:  # what `__getattr__` below imports when it is first used
    from .autoattack import Auto
    from .base import Attack, Attacked
    from .pgd import PGD
    from .smallest_change import smallest
    from .strong import Strong

_CLASSES = {"pgd": "PGD", "strong": "Strong", "auto": "Auto"}
ATTACKS = tuple(_CLASSES)


def attack(name: str, **options: Any) -> "Attack":
    """Make the attack of that name; options are those of its class, `seed` among them. ValueError lists the names."""
    if name not in _CLASSES:
        raise ValueError(f"no attack {name!r}: the attacks are {', '.join(ATTACKS)}{closest(name, ATTACKS)}")
    made: Attack = __getattr__(_CLASSES[name])(**options)
    return made


__all__ = ["ATTACKS", "PGD", "Attack", "Attacked", "Auto", "Strong", "attack", "smallest"]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("Attack", "Attacked"), "base"),
        "Auto": "autoattack",
        "PGD": "pgd",
        "Strong": "strong",
        "smallest": "smallest_change",
    },
)
