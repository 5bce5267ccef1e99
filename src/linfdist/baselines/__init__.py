"""The paper's rivals as running code: conventional ReLU networks, their bounds and their training.

Importing this makes their files loadable by `linfdist.models.load`; `linfdist.load` imports it when it meets one.
"""

from ..models.config import CLASSES
from .affine import Conv2d, Linear
from .group_sort import GroupSort, GroupSortNet
from .methods import METHODS, Method
from .networks import SIZES, ReLUNet, sized
from .plan import Plan
from .relu import ReLU
from .scores import Scores
from .train import Epoch, train

CLASSES["baselines.ReLUNet"] = ReLUNet
CLASSES["baselines.GroupSortNet"] = GroupSortNet

__all__ = [
    "METHODS",
    "SIZES",
    "Conv2d",
    "Epoch",
    "GroupSort",
    "GroupSortNet",
    "Linear",
    "Method",
    "Plan",
    "ReLU",
    "ReLUNet",
    "Scores",
    "sized",
    "train",
]
