"""How fast the engine is on this machine, beside what torch offers: `linfdist bench`, from Python."""

from .machine import Machine, describe_machine
from .results import Growth, Report, Row, Spread
from .suite import Settings, run

__all__ = ["Growth", "Machine", "Report", "Row", "Settings", "Spread", "describe_machine", "run"]
