from ..exact.conftest import trained  # noqa: F401
