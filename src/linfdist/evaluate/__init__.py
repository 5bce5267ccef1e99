"""A network on a data set: one row per image, then the summary."""

from .invariants import Violated as Violated
from .invariants import violations as violations
from .run import Evaluation as Evaluation
from .run import evaluate as evaluate
from .settings import BATCH as BATCH
from .settings import METHODS as METHODS
from .settings import Shard as Shard
from .settings import parse_attacks as parse_attacks
from .summary import summarise as summarise
from .watch import watch as watch
