"""The exact robust radius of tiny plain networks, by mixed-integer linear programming: the truth for certificates."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...models import PixelNet
from ...nn.pixels import centred
from ..checks import check_images, check_network
from .program import FEASIBILITY, TOLERANCE, Floats, Plain, Program, double
from .solve import Answer, fixed, import_highs, minimise

WHOLE_CUBE = 1 + 2 * TOLERANCE  # a radius that is proved without its last bits, and is 1 all the same
MAX_BINARIES = 10_000  # over the whole cube; around one image most of them are gone


@dataclass(frozen=True)
class TrueRadius:
    """What is known of the distance from one image to the next class, in pixels.

    radius: the prediction is constant on the closed ball of this radius within [0, 1]; 1 is the whole cube. upper: the
    distance of `witness` (C, H, W), an image to which the network as executed gives another class; infinity and None
    if none was found. The two differ by the tolerances alone, unless the time was up or the radius is 1.
    """

    prediction: int
    radius: float
    upper: float
    witness: Tensor | None


def radii(network: PixelNet, x: Tensor, time_limit: float = 60.0) -> Tensor:
    """The `radius` of `true_radius` for each image of x (B, C, H, W): (B,) float64."""
    return torch.tensor([each.radius for each in true_radius(network, x, time_limit)], dtype=torch.float64)


@torch.no_grad()
def true_radius(network: PixelNet, x: Tensor, time_limit: float = 60.0) -> list[TrueRadius]:
    """How far each image x (B, C, H, W) in [0, 1] is from the nearest image in [0, 1] of another class.

    Branch and bound over linear programs. HiGHS (extra `milp`) solves these; every bound is then checked apart from it,
    rounding included (`minimise`), so the solver's tolerances and errors can make a radius smaller, never too large.
    The program is the network in exact arithmetic; what the network as executed may differ by, E for a logit
    (`rounding_error`), is paid for by counting a class as reached when it comes within 2E of the predicted one.

    time_limit: seconds per image; what is proved by then is returned. For tiny DistNets: refuses those that could
    need more than MAX_BINARIES binary variables.
    """
    import_highs()
    check_network(network)
    check_images(network, x)
    if not time_limit > 0:
        raise ValueError(f"time_limit = {time_limit!r}: must be a positive number of seconds")
    plain = Plain.of(network)
    binaries = plain.count_binaries()
    if binaries > MAX_BINARIES:
        raise ValueError(
            f"the network is too large for method milp: it takes {binaries:,} binary variables, {MAX_BINARIES:,} are "
            "allowed; choose method box"
        )
    return [_Search(network, plain, image, time.monotonic() + time_limit).run() for image in x]


class _Search:
    """One image: programs over growing balls, each of them small because its ball is."""

    def __init__(self, network: PixelNet, plain: Plain, image: Tensor, deadline: float) -> None:
        self.network, self.plain, self.image, self.deadline = network, plain, image, deadline
        side = plain.crop or max(image.shape)
        top, left = centred(image.shape, side) if plain.crop else (0, 0)
        self.crop = (slice(None), slice(top, top + side), slice(left, left + side))
        self.x = double(image[self.crop]).ravel()  # (I,)
        self.outputs = plain.by_class(plain.values(self.x)[-1])
        logits = network(image[None])[0]
        self.precise = bool(logits.isfinite().all()) and plain.own_error < FEASIBILITY / 10
        self.prediction = int(logits.argmax())
        self.slack = 2 * plain.error + TOLERANCE
        self.upper: float = math.inf
        self.witness: Tensor | None = None

    def run(self) -> TrueRadius:
        if not self.precise:  # overflow certifies nothing, nor do weights too large for the solver's arithmetic
            return TrueRadius(self.prediction, 0.0, math.inf, None)
        reach = proved = self.box_radius()
        while proved < WHOLE_CUBE:
            reach = min(1.25 * reach + 0.01, WHOLE_CUBE)
            bound = self.nearest(reach)
            proved = max(proved, bound)
            if bound < reach:
                break
        radius = min(1.0, max(0.0, proved - TOLERANCE))
        if self.upper <= radius:
            raise RuntimeError(f"proved a radius of {radius}, but a witness is at {self.upper}: please report this")
        return TrueRadius(self.prediction, radius, self.upper, self.witness)

    def box_radius(self) -> float:
        """What interval bounds prove."""
        if not self.rivals(WHOLE_CUBE):
            return WHOLE_CUBE
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if self.rivals(middle) else (middle, high)
        return low

    def rivals(self, reach: float) -> list[int]:
        """The classes that bounds cannot rule out in the ball, the nearest first."""
        pieces, shift = self.plain.near(self.x, reach)[-1], self.plain.layers[-1].shift
        lower, upper = self.plain.by_class(pieces.lower + shift), self.plain.by_class(pieces.upper + shift)
        order = np.argsort(self.outputs, kind="stable").tolist()
        return [j for j in order if j != self.prediction and lower[j] <= upper[self.prediction] + self.slack]

    def nearest(self, reach: float) -> float:
        """A lower bound of the distance at which another class begins; `reach`, if none does within the ball."""
        bound, within = reach, reach
        for rival in self.rivals(reach):
            if rival not in self.rivals(within):
                continue  # further away than one that was found
            if time.monotonic() > self.deadline:
                return 0.0
            program = Program(self.plain, self.x, self.prediction, rival, within, self.slack)
            answer = minimise(program, self.deadline)
            if answer.point is not None:
                within = min(within, answer.value)
                self.show(program, answer)
            bound = min(bound, answer.bound)
        return bound

    def show(self, program: Program, answer: Answer) -> None:
        """Look for a witness near the solver's point, which may be short of the other class by the slack."""
        beyond = -program.slack
        while answer.point is not None and not self.try_witness(program, answer.point) and beyond > -1e-2:
            answer = fixed(program, answer.point, beyond, self.deadline)
            beyond *= 4

    def try_witness(self, program: Program, point: Floats) -> bool:
        moved = self.x.copy()
        for i, column in program.pixels.items():
            moved[i] += point[column]
        image = self.image.clone()
        image[self.crop] = torch.from_numpy(moved).clamp(0, 1).view(image[self.crop].shape).to(image)
        if int(self.network(image[None])[0].argmax()) == self.prediction:
            return False
        distance = float((image.double() - self.image.double()).abs().max())
        if distance < self.upper:
            self.upper, self.witness = distance, image
        return True
