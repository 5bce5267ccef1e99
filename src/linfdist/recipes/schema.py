"""The schema of a recipe: every choice of a training run, with its type, limits and meaning."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..data import NAMES, info
from ..files import excerpt
from .losses import DECLARED, KEYS
from .networks import NETWORKS, Ending
from .problems import RecipeError, explain, unknown_key
from .values import (
    MOST,
    MOST_LAYERS,
    Beta,
    Data,
    DrawShare,
    Ends,
    Margin,
    NotNegative,
    Places,
    Positive,
    Radius,
    Share,
    Sizes,
    TrainedRadius,
    Whole,
    one_of,
    pixels,
)

MARGINS = ("threshold", "eps_train", "box_threshold")  # text, which may be a multiple of eps
PHASES = ("e1", "e2", "e3", "e4")  # numbers of epochs, one after the other


class Recipe(BaseModel):
    """Everything that decides a training run. Radii and thresholds are exact text, on the 0–1 intensity scale."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: str = Field(pattern=r"^\w[\w .+-]*$", description="name of the run, which is that of the recipe's file")
    source: str = Field(min_length=1, description="where the numbers come from")

    data: Data = Field(description=f"{', '.join(NAMES)}, or a folder of images (class/image.png)")
    resize: Whole | None = Field(
        None, description="side of the squares that the images of a folder are cut and resized to; none: as they are"
    )
    eps: Radius = Field(description='exact radius to certify, such as "0.3" or "8/255"')
    holdout: int = Field(0, ge=0, le=MOST, description="training images held out for making choices")

    model: Annotated[str, one_of(NETWORKS)] = Field(
        description=", ".join(network.summary for network in NETWORKS.values())
    )
    width: Whole = Field(
        description="neurons in each hidden dist layer; convolutional net: channels of the first layer"
    )
    depth: int = Field(ge=1, le=MOST_LAYERS, description="number of dist layers; a head's two layers are not counted")
    clip: Ends | None = Field(
        None, description="pixels from the first number to the second are stretched to [0, 1], the rest is cut off"
    )
    pool: Sizes = Field(
        [], description="sizes of the blocks whose means the first dist layer sees; empty: it sees the pixels"
    )
    mirror_pairs: bool = Field(
        False,
        description="the layers above see the larger and the smaller of each pixel and its mirror image; needs no flip",
    )
    per_class: Whole = Field(1, description="neurons of the last layer for each class, which are averaged")
    dense: Whole = Field(512, description="neurons of the dist layer above the convolutions of a plain net")
    head: Whole = Field(512, description="hidden neurons of the MLP head")
    identity_init: bool = Field(True, description="whether hidden layers start near the identity map (C0 = -10)")
    mean_shift: bool = Field(True, description="subtract the batch mean after each hidden layer; false: learn a bias")

    mean_with: Places = Field(
        [], description="trained networks (zoo names, runs or files) that the result is the mean with"
    )
    start: str | None = Field(
        None,
        min_length=1,
        description="network to start from (zoo name, run or file), grown if it is smaller; none: fresh weights",
    )

    pad: int = Field(0, ge=0, le=MOST, description="pixels of padding before the random crops of training")
    pad_mode: Literal["zero", "edge"] = Field("zero", description="what the padding holds")
    pad_share: Share = Field(1.0, description="share of the images with a random crop; the others keep their place")
    flip: bool = Field(False, description="random horizontal flips in training")
    crop: Whole | None = Field(None, description="size of the crop that the network sees; random in training")
    turn: float = Field(
        0.0,
        ge=0,
        le=180,
        description="largest turn of images in training, either way, in degrees; after crops, flips",
    )
    stretch: float = Field(
        0.0,
        ge=0,
        le=1,
        description="largest stretch of their sides: with 0.1, to 1.1 times as long, or as short",
    )
    slide: NotNegative = Field(0.0, description="largest slide of them along each side, in pixels, whole or not")
    warp_share: Share = Field(1.0, description="share of the images that are turned, stretched and slid")

    loss: Annotated[str, one_of(DECLARED)] = Field(
        description="; ".join(f"{name}: {loss.summary}" for name, loss in DECLARED.items())
    )
    threshold: Margin | None = Field(
        None, description='t, the margin aimed at, such as "0.75" or "2.5 eps" (hinge, scaled_ce)'
    )
    hinge_mean_weight: Share = Field(
        0.25, description="weight of the mean over the classes; the maximum has the rest (hinge)"
    )
    kappa: Share | None = Field(None, description="weight of the natural loss; 0: worst case only (ibp)")
    eps_train: TrainedRadius | None = Field(
        None, description="radius trained for, reached linearly over e1 (ibp, ibp_hinge)"
    )
    ce_start: Positive | None = Field(None, description="lambda, weight of the cross-entropy during e1 (scaled_ce)")
    ce_end: Positive | None = Field(None, description="lambda after e2, reached geometrically (scaled_ce)")
    scale_start: float = Field(
        1.0,
        ge=1e-3,
        le=1e3,
        description="s at first, by which logits are multiplied for the cross-entropy; it is learned (scaled_ce)",
    )
    teachers: Places = Field(
        [],
        description="trained networks (zoo names, runs or files) from whose mean the cross-entropy learns, "
        "in place of the labels (scaled_ce)",
    )
    box_threshold: Margin | None = Field(
        None, description="t during e4, the margin aimed at in the worst case (hinge, scaled_ce)"
    )

    safe_share: DrawShare = Field(
        1.0,
        description="probability that a pass draws an image whose margin is 1.2 thresholds or more, after e1 "
        "(hinge, scaled_ce)",
    )
    lost_share: DrawShare = Field(
        1.0, description="the same for images whose margin is minus half a threshold or less (scaled_ce)"
    )

    batch_size: Whole = Field(512, description="images per update, over all processes")
    lr: Positive = Field(0.02, description="peak learning rate of Adam")
    beta1: Beta = Field(0.9, description="Adam's decay of the mean gradient")
    beta2: Beta = Field(0.99, description="Adam's decay of the mean squared gradient")
    adam_eps: Positive = Field(1e-10, description="Adam's epsilon")
    decay: Literal["lp", "l2", "none"] = Field(
        "lp",
        description="lp: dist layers decay by eq. (6) with the current p; l2: conventionally; none: nothing decays",
    )
    weight_decay: NotNegative = Field(
        0.005, description="coefficient of the decay; heads and biases always decay conventionally"
    )

    smooth: bool = Field(True, description="relax p = inf to finite p (section 5.2); false: p = inf from the start")
    p_start: float = Field(8.0, ge=1, description="p during e1")
    p_end: float = Field(1000.0, gt=1, description="p at the end of e2; it grows at every update")
    p_bend: Share = Field(
        0.0, description="how p grows: p^-p_bend falls linearly, so that p stays small for longer; 0: exponentially"
    )
    p_snap: bool = Field(False, description="up to 32, round p to where powers are products: twice as fast")
    e1: NotNegative = Field(description="number of first epochs, at p_start")
    e2: Positive = Field(description="number of middle epochs, from p_start to p_end")
    e3: NotNegative = Field(description="number of last epochs, at p = inf")
    e4: NotNegative = Field(
        0.0, description="number of epochs after e3, at p = inf, on bounds over the box of radius eps around each image"
    )
    box_lr: Positive | None = Field(
        None, description="learning rate at the beginning of e4; it falls to 0 like a cosine"
    )
    box_clip: Ends | None = Field(
        None, description="clip that is put in front of the network when e4 begins; none: it stays as it is"
    )
    lr_schedule: Literal["cosine_after_e1", "cosine"] = Field(
        "cosine_after_e1", description="constant during e1, then cosine to 0; or cosine over all epochs"
    )
    seed: int = Field(0, ge=0, lt=2**63, description="seed of initialisation, data order and augmentation")

    @property
    def ending(self) -> Ending:
        """What its network ends in."""
        return NETWORKS[self.model].ending

    @property
    def networks(self) -> list[str]:
        """The trained networks that it names: its `start`, and those of `mean_with` and `teachers`."""
        return [*filter(None, [self.start]), *self.mean_with, *self.teachers]

    @property
    def epochs(self) -> float:
        """e1 + e2 + e3 + e4."""
        return self.e1 + self.e2 + self.e3 + self.e4

    def fraction(self, key: str) -> Fraction:
        """Return the exact value of a radius or threshold; ValueError if this recipe has none."""
        text: str | None = getattr(self, key)
        if text is None:
            raise ValueError(f"{self.name}: loss = {self.loss!r} has no {key}")
        return pixels(text, self.eps, key)

    def resolved(self) -> "Recipe":
        """Return the recipe with its thresholds and radii as fractions, so that equal ones compare equal."""
        exact = {key: str(self.fraction(key)) for key in MARGINS if getattr(self, key) is not None}
        return self.model_copy(update=exact)

    def number(self, key: str) -> float:
        """Return the value of a numeric key, rounded to a float if it is an exact radius or threshold."""
        value: str | float | None = getattr(self, key)
        return float(self.fraction(key)) if value is None or isinstance(value, str) else value

    def unused_keys(self) -> dict[str, str]:
        """Return the keys that have no effect in this recipe, each with the reason."""
        reasons = {
            "pool": (
                not NETWORKS[self.model].pools,
                f"the convolutions of model = {self.model!r} take pixels, not means of blocks",
            ),
            "per_class": (self.ending != "plain", f"model = {self.model!r} has a head instead"),
            "dense": (self.model != "conv_dist_net", f"model = {self.model!r} has no such layer"),
            "head": (self.ending != "head", f"model = {self.model!r} has no head"),
            "flip": (self.mirror_pairs, "mirror_pairs = true sees an image and its mirror image alike"),
            "pad_mode": (self.pad == 0, "pad = 0"),
            "pad_share": (self.pad == 0 and self.crop is None, "pad = 0"),
            "warp_share": (self.turn == self.stretch == self.slide == 0, "turn, stretch and slide are 0"),
            "resize": (self.data in NAMES, f"all images of {self.data} have one size; it is for folders"),
            "weight_decay": (self.decay == "none", "decay = 'none'"),
            "box_threshold": (self.e4 == 0, "e4 = 0"),
            "box_lr": (self.e4 == 0, "e4 = 0"),
            "box_clip": (self.e4 == 0, "e4 = 0"),
            "p_start": (not self.smooth, "smooth = false"),
            "p_end": (not self.smooth, "smooth = false"),
            "p_bend": (not self.smooth, "smooth = false"),
            "p_snap": (not self.smooth, "smooth = false"),
        }
        for key in self._foreign_keys():
            reasons[key] = (getattr(self, key) is not None, f"loss = {self.loss!r} does not use it")
        return {key: why for key, (holds, why) in reasons.items() if holds}

    def override(self, changes: Mapping[str, object]) -> "Recipe":
        """Return the recipe with other values, which may be text, as on a command line: `{"width": "1024"}`.

        `epochs` rescales e1 : e2 : e3 : e4 to that sum; "none" removes an optional value. The source lists the changes.
        """
        return _override(self, changes)

    @model_validator(mode="after")
    def _fits_together(self) -> "Recipe":
        problems = [*self._loss_problems(), *self._box_problems(), *self._shape_problems()]
        if self.p_end <= self.p_start:
            problems.append(f"p_end = {self.p_end:g}: must be more than p_start = {self.p_start:g}")
        if problems:
            raise ValueError("\n  ".join(problems))
        return self

    def _foreign_keys(self) -> list[str]:
        """List the keys that other losses read and this one does not."""
        return [key for key in KEYS if key not in DECLARED[self.loss].keys]

    def _loss_problems(self) -> list[str]:
        loss = DECLARED[self.loss]
        needs = f"loss = {self.loss!r} needs {', '.join(loss.required)}"
        problems = [f"{key}: is missing; {needs}" for key in loss.required if getattr(self, key) is None]
        for key in self._foreign_keys():
            if type(self).model_fields[key].default is None and (value := getattr(self, key)) is not None:
                problems.append(
                    f"{key} = {excerpt(value)}: does not go with loss = {self.loss!r}; leave it out, or {key}=none"
                )
        if loss.ending != self.ending:
            allowed = " or ".join(name for name, each in DECLARED.items() if each.ending == self.ending)
            problems.append(f"loss = {self.loss!r}: must be {allowed} for model = {self.model!r}")
        return problems

    def _box_problems(self) -> list[str]:
        if self.e4 == 0:
            return []
        if self.ending != "plain":
            return [f"e4 = {self.e4:g}: must be 0 for model = {self.model!r}; only plain nets are trained on boxes"]
        if self.box_clip and self.clip:
            return [f"box_clip = {self.box_clip}: must be none, as there is a clip = {self.clip} from the beginning"]
        return [
            f"{key}: is missing; e4 = {self.e4:g} needs box_threshold, box_lr"
            for key in ("box_threshold", "box_lr")
            if getattr(self, key) is None
        ]

    def _shape_problems(self) -> list[str]:
        problems = []
        least, most = NETWORKS[self.model].depths
        if not least <= self.depth <= (self.depth if most is None else most):
            allowed = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
            problems.append(f"depth = {self.depth}: must be {allowed} for model = {self.model!r}")
        if self.data in NAMES:
            size = min(info(self.data).shape[1:])
            problems += self._size_problems(size, f"the size of the images of {self.data}")
        return problems

    def _size_problems(self, size: int, what: str) -> list[str]:
        problems = []
        if self.crop and self.crop > size:
            problems.append(f"crop = {self.crop}: must be at most {size}, {what}")
        for key in ("pad", "slide"):
            if (value := getattr(self, key)) >= size:
                problems.append(f"{key} = {value:g}: must be less than {size}, {what}")
        if size == 1 and (self.turn or self.stretch):
            problems.append(f"turn = {self.turn:g}, stretch = {self.stretch:g}: must be 0, {what}")
        return problems

    def check_images(self, height: int, width: int) -> None:
        """Raise RecipeError unless crops, padding and warps fit images of this size."""
        if problems := self._size_problems(min(height, width), f"as the images are {height} × {width}"):
            raise RecipeError(problems, self.name)


def build(values: Mapping[str, object], where: str = "", *, given: Mapping[str, object], text: bool = False) -> Recipe:
    """Return the recipe with these values; raise RecipeError that explains what is wrong with them.

    given: the keys that were set explicitly; each of them must have an effect.
    `text`: whether values may be text, as on a command line.
    """
    try:
        recipe = Recipe.model_validate(dict(values), strict=not text)
    except ValidationError as error:
        raise RecipeError(explain(error, Recipe), where) from None
    unused = recipe.unused_keys()
    problems = [
        f"{key} = {excerpt(value)}: has no effect here, because {unused[key]}"
        for key, value in given.items()
        if key in unused and value is not None  # none removes what may have been there
    ]
    if problems:
        raise RecipeError(problems, where)
    # What was inherited and has lost its effect is left out, where it can be.
    optional = [key for key in unused if Recipe.model_fields[key].default is None]
    return recipe.model_copy(update=dict.fromkeys(optional)) if optional else recipe


def _override(recipe: Recipe, changes: Mapping[str, object]) -> Recipe:
    if not changes:
        return recipe
    for key in changes:
        if key not in Recipe.model_fields and key != "epochs":
            raise RecipeError([unknown_key(key, [*Recipe.model_fields, "epochs"])])
    given = {key: _none(key, value) for key, value in changes.items() if key != "epochs"}
    values = {**recipe.model_dump(), **given}
    if "epochs" in changes:
        if clash := [key for key in PHASES if key in changes]:
            raise RecipeError([f"epochs: rescales {' : '.join(PHASES)}; it does not go with {', '.join(clash)}"])
        values.update(rescaled(recipe, changes["epochs"]))
    if "source" not in changes:
        changed = ", ".join(f"{key}={value}" for key, value in changes.items())
        values["source"] = f"{recipe.source}; changed: {changed}"
    return build(values, given=given, text=True)


def _none(key: str, value: object) -> object:
    """Return None where `none` removes an optional value; elsewhere it is a word like any other."""
    field = Recipe.model_fields[key]
    optional = field.default is None
    return None if optional and isinstance(value, str) and value.lower() == "none" else value


def rescaled(recipe: Recipe, epochs: object, where: str = "") -> dict[str, float]:
    """Return the numbers of epochs of all phases in the recipe's proportions, with this sum."""
    names = ", ".join(PHASES)
    problem = RecipeError([f"epochs = {excerpt(epochs)}: must be a number more than 0 (the sum of {names})"], where)
    try:
        total = float(epochs) if isinstance(epochs, str | int | float) else 0.0
    except (ValueError, OverflowError):
        raise problem from None
    if not 0 < total < float("inf"):
        raise problem
    scale = total / recipe.epochs
    return {key: getattr(recipe, key) * scale for key in PHASES}
