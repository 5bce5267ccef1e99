"""The paper's rivals as running code: conventional and other networks, their bounds and their training.

Importing this package makes their files loadable by `linfdist.models.load`; `linfdist.load` imports it when needed.
"""

from ..models.loading import CLASSES
from .activations import GroupSort, ReLU
from .adder import BatchNorm, NormLinear
from .affine import Conv2d, Linear, Scores
from .methods import TRAINING_METHODS, TrainingMethod
from .networks import SIZES, AdderNet, GroupSortNet, ReLUNet, SortNet, sized
from .plan import Plan
from .smoothing import StatisticalClaim, smoothed
from .sort_linear import NearestSorted, SortLinear
from .train import Epoch, train

CLASSES["baselines.ReLUNet"] = ReLUNet
CLASSES["baselines.GroupSortNet"] = GroupSortNet
CLASSES["baselines.SortNet"] = SortNet
CLASSES["baselines.AdderNet"] = AdderNet

__all__ = [
    "SIZES",
    "TRAINING_METHODS",
    "AdderNet",
    "BatchNorm",
    "Conv2d",
    "Epoch",
    "GroupSort",
    "GroupSortNet",
    "Linear",
    "NearestSorted",
    "NormLinear",
    "Plan",
    "ReLU",
    "ReLUNet",
    "Scores",
    "SortLinear",
    "SortNet",
    "StatisticalClaim",
    "TrainingMethod",
    "sized",
    "smoothed",
    "train",
]
