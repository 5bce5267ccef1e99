"""Import the names of a package when they are first used, so that commands without torch start fast."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose names are those of `where`.

    where: the module of each name, relative to the package; an empty text if the name is a module itself. No function
    may have the name of a submodule: importing the submodule would put it in the function's place. Type checkers do not
    see these names: the package imports them once more under TYPE_CHECKING.
    """

    def find(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not where[name]:
            return import_module(f".{name}", package)
        return getattr(import_module(f".{where[name]}", package), name)

    return find, lambda: sorted(where)
