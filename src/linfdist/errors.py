"""The errors of this package: each says on one line what is wrong, and what to do about it."""


class LinfdistError(Exception):
    """Base of the package's own errors.

    Every error derives from a builtin one too (`DataError` is a `RuntimeError`, `RecipeError` a `ValueError`), so that
    `except ValueError` means what it always means. `training.Interrupted` is not among them: it is a
    `KeyboardInterrupt`, which `except Exception` must not swallow.
    """
