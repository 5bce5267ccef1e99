"""How fast the engine is on this machine, beside what torch offers: `linfdist bench`, from Python."""

from ..machine import Machine, describe_machine
from .results import Growth, RaceRow, Report, Spread
from .suite import BenchSettings, run

__all__ = ["BenchSettings", "Growth", "Machine", "RaceRow", "Report", "Spread", "describe_machine", "run"]
