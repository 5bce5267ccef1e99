"""ℓ∞-dist networks: classifiers whose robustness is proved."""

from typing import TYPE_CHECKING

from .lazy import lazy_names

if TYPE_CHECKING:  # what `__getattr__` below imports when it is first used
    from . import attacks as attacks
    from . import baselines as baselines
    from . import bounds as bounds
    from . import certificates as certificates
    from . import data, models, nn
    from . import evaluation as evaluation
    from . import exact as exact
    from . import export as export
    from . import recipes as recipes
    from . import report as report
    from . import sklearn as sklearn
    from . import theory as theory
    from . import training as training
    from .certificates import Certificate, Certifier, certify, predict
    from .evaluation import evaluate
    from .models import load, push_to_hub, save, save_pretrained, zoo
    from .ops.backends import backends
    from .ops.dist import dist, dist_box, dist_box_conv2d, dist_conv2d
    from .training.memory import train
    from .version import __version__

__all__ = [
    "Certificate",
    "Certifier",
    "__version__",
    "backends",
    "certify",
    "data",
    "dist",
    "dist_box",
    "dist_box_conv2d",
    "dist_conv2d",
    "evaluate",
    "load",
    "models",
    "nn",
    "predict",
    "push_to_hub",
    "save",
    "save_pretrained",
    "train",
    "zoo",
]
_SUBMODULES = (  # some of them need an extra
    "attacks",
    "baselines",
    "bounds",
    "certificates",
    "data",
    "evaluation",
    "exact",
    "export",
    "models",
    "nn",
    "recipes",
    "report",
    "sklearn",
    "theory",
    "training",
)
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("Certificate", "Certifier", "certify", "predict"), "certificates"),
        **dict.fromkeys(("load", "push_to_hub", "save", "save_pretrained", "zoo"), "models"),
        **dict.fromkeys(("dist", "dist_box", "dist_box_conv2d", "dist_conv2d"), "ops.dist"),
        **dict.fromkeys(_SUBMODULES, ""),
        "__version__": "version",
        "backends": "ops.backends",
        "evaluate": "evaluation",
        "train": "training.memory",
    },
)
