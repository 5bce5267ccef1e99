"""All numbers that people read, and floats on the safe side of exact values.

What is proved is rounded down, what survives attacks is rounded up, and what is merely counted is rounded to nearest.
"""

import math
import sys
from fractions import Fraction


def round_up(exact: Fraction) -> float:
    """The smallest float that is not below `exact`."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -sys.float_info.max
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def round_down(exact: Fraction) -> float:
    """The largest float that is not above `exact`."""
    return -round_up(-exact)


def down(value: Fraction | float, digits: int) -> str:
    """Format what is proved: the largest decimal with that many digits that is not above `value`; infinity is ∞."""
    if value == math.inf:
        return "∞"
    return _text(Fraction(value) * 10**digits // 1, digits)


def up(value: Fraction | float, digits: int) -> str:
    """Format what survives attacks: the smallest decimal with that many digits that is not below `value`."""
    return _text(-(-Fraction(value) * 10**digits // 1), digits)


def nearest(value: Fraction | float, digits: int) -> str:
    """Format what is counted, neither proved nor attacked: the nearest decimal with that many digits."""
    return _text(round(Fraction(value) * 10**digits), digits)


def percent(count: int, n: int) -> Fraction:
    """`count` of `n` in percent, exactly."""
    return Fraction(100 * count, n)


def share(value: float, n: int) -> Fraction:
    """The exact share of `n` images that a percentage in floating point stands for: the float may be a hair off."""
    return percent(round(Fraction(value) * n / 100), n)


def written(value: float) -> Fraction:
    """The decimal that a float was read from, such as a percentage in a file: 90.27 itself, not the float below it."""
    return Fraction(repr(value))


def _text(scaled: int, digits: int) -> str:
    whole, part = divmod(abs(scaled), 10**digits)
    return ("-" if scaled < 0 else "") + (f"{whole}.{part:0{digits}d}" if digits else str(whole))
