"""The types of a recipe's values: how text is read, and what is allowed."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from ..data import NAMES
from ..eps import in_words, parse_eps
from ..errors import closest
from ..files import parse_json


def _data(text: str) -> str:
    if text not in NAMES and not ("/" in text or "\\" in text or text.startswith((".", "~"))):
        if os.path.isdir(text):  # a name that is too long for the system is none, without an error
            return f"./{text}"  # written so that it is a folder wherever the recipe is read again
        raise ValueError(f"must be one of {', '.join(NAMES)}, or a folder such as ./images{closest(text, NAMES)}")
    return text


def _radius(text: str, info: ValidationInfo) -> str:
    parse_eps(text, name=info.field_name or "eps")
    return text.strip()


_MULTIPLE = re.compile(r"\s*(\S.*?)\s*eps\s*")


def pixels(text: str, eps: str, name: str) -> Fraction:
    """Return the exact value of text such as "0.75", or "2.5 eps", which is a multiple of the radius to certify."""
    # The margin of two logits, each 1-Lipschitz on [0, 1] images, spans at most 2 pixels.
    most = 2 if name.endswith("threshold") else 1
    match = _MULTIPLE.fullmatch(text)
    if match is None:
        return parse_eps(text, name=name, at_most=most)
    value = parse_eps(match[1], name=f"{name} = {text!r}, a multiple of eps", at_most=10**6) * parse_eps(eps)
    if value > most:
        raise ValueError(f"is {in_words(value)}, because eps = {eps}; must be at most {most}: give {name} itself")
    return value


def _margin(text: str, info: ValidationInfo) -> str:
    eps, name = info.data.get("eps"), info.field_name or "threshold"
    if eps is not None and pixels(text, eps, name) == 0:  # without a valid eps, that is what is wrong
        raise ValueError(
            f"must be more than 0, and eps = {eps}" if _MULTIPLE.fullmatch(text) else "must be more than 0"
        )
    return text.strip()


def _trained_radius(text: str, info: ValidationInfo) -> str:
    if (eps := info.data.get("eps")) is not None:
        pixels(text, eps, info.field_name or "eps_train")
    return text.strip()


def _listed(value: object) -> object:
    """Parse numbers separated by commas, as on a command line, into a list."""
    return [part.strip() for part in value.strip("[] ").split(",") if part.strip()] if isinstance(value, str) else value


def _named(value: object) -> object:
    """Parse names separated by commas, as on a command line, into a list."""
    if not isinstance(value, str):
        return value
    if value.startswith("["):
        with suppress(ValueError):
            return parse_json(value, "")  # quoted names may have commas
    return [part.strip("'\" ") for part in value.strip("[] ").split(",") if part.strip("'\" ")]


def one_of(known: Mapping[str, object]) -> AfterValidator:
    def check(text: str) -> str:
        if text not in known:
            raise ValueError(f"must be one of {', '.join(known)}{closest(text, known)}")
        return text

    return AfterValidator(check)


def _ends(ends: list[float]) -> list[float]:
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise ValueError("must be two numbers, the smaller one first, such as 0.3,0.7")
    return ends


MOST = 2**31 - 1  # of whole numbers: beyond every image, network and data set
MOST_LAYERS = 1000
Whole = Annotated[int, Field(ge=1, le=MOST)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
DrawShare = Annotated[float, Field(ge=0.01, le=1)]  # an image with probability 0 would never be seen again
Beta = Annotated[float, Field(ge=0, lt=1)]
Ends = Annotated[list[Share], BeforeValidator(_listed), AfterValidator(_ends)]  # of a clip
Sizes = Annotated[list[Whole], BeforeValidator(_listed)]
Data = Annotated[str, AfterValidator(_data)]
Places = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_named)]  # of trained networks
Radius = Annotated[str, AfterValidator(_radius)]
Margin = Annotated[str, AfterValidator(_margin)]
TrainedRadius = Annotated[str, AfterValidator(_trained_radius)]
