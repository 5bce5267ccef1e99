"""The paper's rivals as running code: conventional and other networks, their bounds and their training.

Importing this makes their files loadable by `linfdist.models.load`; `linfdist.load` imports it when it meets one.
"""

from ..models.loading import CLASSES
from .adder import BatchNorm, NormLinear
from .adder_net import AdderNet
from .affine import Conv2d, Linear
from .group_sort import GroupSort, GroupSortNet
from .methods import METHODS, Method
from .networks import SIZES, ReLUNet, sized
from .plan import Plan
from .relu import ReLU
from .scores import Scores
from .smoothing import StatisticalClaim, smoothed
from .sort_linear import NearestSorted, SortLinear
from .sort_net import SortNet
from .train import Epoch, train

CLASSES["baselines.ReLUNet"] = ReLUNet
CLASSES["baselines.GroupSortNet"] = GroupSortNet
CLASSES["baselines.SortNet"] = SortNet
CLASSES["baselines.AdderNet"] = AdderNet

__all__ = [
    "METHODS",
    "SIZES",
    "AdderNet",
    "BatchNorm",
    "Conv2d",
    "Epoch",
    "GroupSort",
    "GroupSortNet",
    "Linear",
    "Method",
    "NearestSorted",
    "NormLinear",
    "Plan",
    "ReLU",
    "ReLUNet",
    "Scores",
    "SortLinear",
    "SortNet",
    "StatisticalClaim",
    "sized",
    "smoothed",
    "train",
]
