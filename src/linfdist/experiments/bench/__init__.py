"""Benchmark the engine on this machine against what torch offers: `linfdist bench`, from Python."""

from ...ops.machine import Machine, describe_machine
from .report import Growth, Quartiles, RaceRow, Report
from .suite import BenchSettings, run

__all__ = ["BenchSettings", "Growth", "Machine", "Quartiles", "RaceRow", "Report", "describe_machine", "run"]
