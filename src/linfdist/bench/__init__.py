"""How fast the engine is on this machine, beside what torch offers: `linfdist bench`, from Python."""

from ..machine import Machine, describe_machine
from .results import Growth, Report, Row, Spread
from .suite import BenchSettings, run

__all__ = ["BenchSettings", "Growth", "Machine", "Report", "Row", "Spread", "describe_machine", "run"]
