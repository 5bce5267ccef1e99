"""The exact robust radius of tiny networks of distances, by mixed-integer linear programming."""

from .radius import MAX_BINARIES as MAX_BINARIES
from .radius import TrueRadius as TrueRadius
from .radius import radii as radii
from .radius import true_radius as true_radius
