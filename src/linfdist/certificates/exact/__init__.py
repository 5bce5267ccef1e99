"""The old name of `linfdist.exact`: imports of it, and of its modules, give the modules of the new name."""

import sys
from importlib import import_module

for _name in ("bounds", "certificate", "file", "fold", "freeze", "head", "network", "prune", "report", "twin"):
    sys.modules[f"{__name__}.{_name}"] = import_module(f"linfdist.exact.{_name}")
sys.modules[__name__] = import_module("linfdist.exact")
