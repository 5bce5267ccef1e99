"""Evaluate a network on a data set: one row per image, then the summary."""

from ..rows import summarise as summarise
from ..rows import violations as violations
from .exact_subject import ExactSubject as ExactSubject
from .run import Evaluation as Evaluation
from .run import evaluate as evaluate
from .settings import BATCH as BATCH
from .settings import METHODS as METHODS
from .settings import Shard as Shard
from .settings import parse_attacks as parse_attacks
from .subject import Subject as Subject
from .violated import Violated as Violated
from .watch import watch as watch
