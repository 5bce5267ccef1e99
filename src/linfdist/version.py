"""The version of this package, as it was installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("linfdist")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
