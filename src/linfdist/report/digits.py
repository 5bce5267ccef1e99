"""Numbers as text. What is proved is rounded down, what an attack left standing is rounded up."""

from fractions import Fraction


def down(value: Fraction | float, digits: int) -> str:
    """The largest decimal with that many digits that is not more than `value` (at least 0)."""
    return _text(Fraction(value) * 10**digits // 1, digits)


def up(value: Fraction | float, digits: int) -> str:
    """The smallest decimal with that many digits that is not less than `value` (at least 0)."""
    return _text(-(-Fraction(value) * 10**digits // 1), digits)


def nearest(value: Fraction | float, digits: int) -> str:
    """For what is counted, neither proved nor attacked."""
    return _text(round(Fraction(value) * 10**digits), digits)


def written(value: float) -> Fraction:
    """The decimal that a float was read from, such as a percentage in a file: 90.27 itself, not the float below it."""
    return Fraction(repr(value))


def percent(count: int, n: int) -> Fraction:
    """Exact."""
    return Fraction(100 * count, n)


def _text(scaled: int, digits: int) -> str:
    whole, part = divmod(scaled, 10**digits)
    return f"{whole}.{part:0{digits}d}" if digits else str(whole)
