"""Radii as people write them, read exactly; floats on the safe side of exact values; numbers as people read them.

What is proved is rounded down, what survives attacks is rounded up, and what is merely counted is rounded to nearest.
"""

import math
import re
import sys
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from numbers import Rational, Real

_DECIMAL = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = re.compile(rf"({_DECIMAL})(?:\s*/\s*({_DECIMAL}))?")
_MAX_LENGTH = 100
_MAX_EXPONENT = 400  # beyond every float64; keeps "1e-999999999" from filling the memory
_SIX_DIGITS = Context(prec=6, rounding=ROUND_DOWN)
_LARGEST_CHANGE = 10**300  # float64 has room for it, and for sums with it
_EXAMPLES = "a decimal such as 0.3 or a fraction such as 8/255"

Eps = str | int | float | Fraction | Decimal  # a radius, as users give it; NumPy's numbers too


def is_number(value: object) -> bool:
    """Return whether it is one number, or text for one, which `parse_eps` takes, as opposed to several."""
    return isinstance(value, str | Real | Decimal)


def parse_eps(text: Eps, *, name: str = "eps", at_most: int = 1) -> Fraction:
    """Parse a radius on the 0–1 intensity scale into its exact value, between 0 and `at_most`.

    `parse_change` is for numbers on other scales.

    Text is exact: "0.3" is 3/10, "8/255" is 8/255, "8.8/255" is 44/1275. A Python float means its exact binary value:
    0.3 is 5404319552844595/18014398509481984. A number of any other type is taken exactly or refused, so no radius is
    rounded before it is used. Raises ValueError or TypeError that says what is wrong and what is allowed.
    """
    value = _read(text, name)
    if not 0 <= value <= at_most:
        side = "negative" if value < 0 else f"more than {at_most}"
        levels = f"; {value} levels of 255 are {value}/255" if value.denominator == 1 and 1 < value <= 255 else ""
        raise ValueError(
            f"{name} = {text!r}: is {side}; must be between 0 and {at_most}, on the 0–1 intensity scale{levels}"
        )
    return value


def parse_change(text: Eps, name: str) -> Fraction:
    """Parse how far a number may change, in whatever units it has: read as `parse_eps` does, between 0 and 1e300."""
    value = _read(text, name)
    if value < 0:
        raise ValueError(f"{name} = {text!r}: is negative; must be 0 or more")
    if value > _LARGEST_CHANGE:
        raise ValueError(f"{name}: is more than 1e300, which float64 has no room for")
    return value


def as_text(eps: Eps) -> str:
    """Return text that means exactly this number: itself if it is text, else the shortest, or the full fraction."""
    if isinstance(eps, str):
        return eps
    value = parse_eps(eps)
    short = in_words(value)
    return short if parse_eps(short) == value else str(value)


def in_words(eps: Fraction) -> str:
    """Return the shortest text that means exactly this number, such as 0.3 or 8/255.

    Long fractions are cut off, and never rounded up.
    """
    decimal = f"{float(eps):g}"
    if Fraction(decimal) == eps:
        return decimal
    if eps.denominator <= 10**6:
        return f"{eps.numerator}/{eps.denominator}"
    return f"{_SIX_DIGITS.divide(Decimal(eps.numerator), Decimal(eps.denominator)):f}"


def _read(text: Eps, name: str) -> Fraction:
    return _from_text(text.strip(), name) if isinstance(text, str) else _from_number(text, name)


def _from_number(number: object, name: str) -> Fraction:
    where = f"{name} = {number!r}"
    if isinstance(number, bool) or not isinstance(number, Real | Decimal):
        raise TypeError(f"{where}: must be text or a number, not {type(number).__name__}")
    if isinstance(number, Rational):
        return Fraction(int(number.numerator), int(number.denominator))  # NumPy's whole numbers overflow in fractions
    if not (number.is_finite() if isinstance(number, Decimal) else math.isfinite(number)):
        raise ValueError(f"{where}: must be finite, {_EXAMPLES}")
    if isinstance(number, Decimal):
        return _exact(number, where)
    ratio = getattr(number, "as_integer_ratio", None)  # floats of all widths have it, and it is exact
    if ratio is None:
        raise TypeError(f"{where}: the exact value of a {type(number).__name__} is not known; give text or a fraction")
    return Fraction(*(int(part) for part in ratio()))


@lru_cache(maxsize=64)  # one image at a time, with the same radius each time
def _from_text(text: str, name: str) -> Fraction:
    where = f"{name} = {text[:_MAX_LENGTH]!r}"
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"{where}...: is longer than {_MAX_LENGTH} characters; give {_EXAMPLES}")
    unsigned = text.removeprefix("-")
    match = _NUMBER.fullmatch(unsigned)
    if match is None:
        raise ValueError(f"{where}: is not a number; give {_EXAMPLES}")
    over, under = (_exact(Decimal(part or "1"), where) for part in match.groups())
    if under == 0:
        raise ValueError(f"{where}: divides by zero; give {_EXAMPLES}")
    return over / under if unsigned == text else -over / under


def _exact(decimal: Decimal, where: str) -> Fraction:
    if decimal and abs(decimal.adjusted()) > _MAX_EXPONENT:
        raise ValueError(f"{where}: is out of range; give {_EXAMPLES}")
    return Fraction(decimal) if decimal else Fraction(0)


def round_up(exact: Fraction) -> float:
    """Return the smallest float that is not below `exact`."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -sys.float_info.max
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def round_down(exact: Fraction) -> float:
    """Return the largest float that is not above `exact`."""
    return -round_up(-exact)


def down(value: Fraction | float, digits: int) -> str:
    """Format a proved number: the largest decimal with that many digits that is not above `value`; infinity is ∞."""
    if value == math.inf:
        return "∞"
    return _text(Fraction(value) * 10**digits // 1, digits)


def up(value: Fraction | float, digits: int) -> str:
    """Format an accuracy under attack: the smallest decimal with that many digits that is not below `value`."""
    return _text(-(-Fraction(value) * 10**digits // 1), digits)


def nearest(value: Fraction | float, digits: int) -> str:
    """Format a number that is neither proved nor attacked: the nearest decimal with that many digits."""
    return _text(round(Fraction(value) * 10**digits), digits)


def percent(count: int, n: int) -> Fraction:
    """Return `count` of `n` in percent, exactly."""
    return Fraction(100 * count, n)


def share(value: float, n: int) -> Fraction:
    """Return the exact share of `n` images that a percentage in floating point stands for.

    The float may be a hair off.
    """
    return percent(round(Fraction(value) * n / 100), n)


def written(value: float) -> Fraction:
    """Return the decimal that a float was read from, such as a percentage in a file.

    For 90.27 it is 90.27 itself, not the float below it.
    """
    return Fraction(repr(value))


def _text(scaled: int, digits: int) -> str:
    whole, part = divmod(abs(scaled), 10**digits)
    return ("-" if scaled < 0 else "") + (f"{whole}.{part:0{digits}d}" if digits else str(whole))
