"""Certificates of float networks: radii within which the prediction is proved not to change."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:  # what `__getattr__` below imports when it is first used
    from .certificate import Certificate, Certifier, certify, predict
    from .checks import on_device
    from .methods import METHODS

__all__ = [
    "METHODS",
    "Certificate",
    "Certifier",
    "certify",
    "on_device",
    "predict",
]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("Certificate", "Certifier", "certify", "predict"), "certificate"),
        "on_device": "checks",
        "METHODS": "methods",
    },
)
