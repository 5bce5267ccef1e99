"""The errors that a caller may want to tell apart. All others are plain ValueErrors, TypeErrors and OSErrors."""


class LinfdistError(Exception):
    """Base of the package's own errors.

    Every error derives from a builtin one too (`DataError` is a `RuntimeError`, `RecipeError` a `ValueError`), so that
    `except ValueError` means what it always means. `training.Interrupted` is not among them: it is a
    `KeyboardInterrupt`, which `except Exception` must not swallow.

    topic: processes that fail with the same topic say so once, if their texts differ.
    """

    topic: str | None = None
