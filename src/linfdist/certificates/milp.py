"""The exact robust radius of tiny networks of distances, by mixed-integer linear programming.

Branch and bound without trust in the solver: HiGHS proposes multipliers, and a few lines of arithmetic check them. Its
MIP solver is not used, because its presolve has called feasible programs infeasible (1.15.1, and a number of reports of
other versions), which would give a wrong certificate.
"""

import heapq
import math
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..models import PixelNet
from ..nn.pixels import centred
from .checks import check_images, check_network
from .milp_program import FEASIBILITY, TOLERANCE, Floats, Plain, Program, double
from .proofs import ENOUGH, Proof, largest_of

WHOLE_CUBE = 1 + 2 * TOLERANCE  # a radius that is proved without its last bits, and is 1 all the same
MAX_BINARIES = 10_000  # over the whole cube; around one image most of them are gone
WHOLE = 1e-6  # how far a binary of the relaxation may be from a whole number to be taken for one


class Answer(NamedTuple):
    """The result of `minimise`.

    bound: no point of the program has a smaller r (proved, up to TOLERANCE). value: r of `point`, the best found.
    """

    bound: float
    value: float
    point: Floats | None


class _Solved(NamedTuple):
    bound: float  # proved; infinite if there is no point
    value: float  # as the solver says
    point: Floats | None


def minimise(program: Program, deadline: float) -> Answer:
    """Find the least r of a program; when time is up, the open parts still count in the bound."""
    relaxation = Relaxation(program, deadline)
    lower, upper = np.array(program.lower), np.array(program.upper)
    reach = float(upper[0])
    best, point = reach, None
    least = reach  # of the bounds of all parts that cannot be split further
    parts = [(0, 0, 0.0, lower, upper)]  # still open: those with the least bounds first, and of these the newest
    count = 0
    while parts:
        if time.monotonic() > deadline:
            return Answer(min(least, best, *(part[2] for part in parts)), best, point)
        _, _, bound, lower, upper = heapq.heappop(parts)
        if bound >= best - TOLERANCE:
            continue
        solved = relaxation.solve(lower, upper)
        bound = max(bound, solved.bound)
        if bound >= best - TOLERANCE:
            continue
        branch = _branch(program, solved.point, lower, upper)
        if branch is not None:
            for end in (0.0, 1.0):
                count += 1
                low, high = lower.copy(), upper.copy()
                low[branch] = high[branch] = end
                heapq.heappush(parts, (int(bound / TOLERANCE), -count, bound, low, high))
            continue
        least = min(least, bound)
        if solved.point is not None and solved.value < best:
            best, point = solved.value, solved.point
    return Answer(min(least, best), best, point)


def fixed(program: Program, point: Floats, slack: float, deadline: float) -> Answer:
    """Find the least r with the point's choice of pieces and another slack."""
    lower, upper = np.array(program.lower), np.array(program.upper)
    lower[program.binaries] = upper[program.binaries] = point[program.binaries].round()
    return Answer(*Relaxation(program, deadline, slack).solve(lower, upper))


def _branch(program: Program, point: Floats | None, lower: Floats, upper: Floats) -> int | None:
    """Choose the binary that is furthest from a whole number; None if all are whole.

    Without a point, choose any free one.
    """
    free = [column for column in program.binaries if lower[column] < upper[column]]
    if not free or point is None:
        return free[0] if free else None
    far = np.abs(point[free] - point[free].round())
    return free[int(far.argmax())] if far.max() > WHOLE else None


class Relaxation:
    """A linear program: minimise c x subject to A x <= b, for many sets of bounds of x in turn."""

    def __init__(self, program: Program, deadline: float, slack: float | None = None) -> None:
        highspy = self.highspy = import_highs()
        sizes = [len(row) for row in program.rows]
        self.row = np.repeat(np.arange(len(sizes)), sizes)  # of each entry of A
        self.column = np.fromiter((column for row in program.rows for column in row), np.int32)
        self.entry = np.fromiter((value for row in program.rows for value in row.values()), np.float64)
        self.limits = np.array(program.limits)
        if slack is not None:
            self.limits[-1] = program.gap + slack
        self.cost = np.eye(1, len(program.lower))[0]
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.limits)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = self.cost, np.array(program.lower), np.array(program.upper)
        lp.row_lower_, lp.row_upper_ = np.full(len(self.limits), -highspy.kHighsInf), self.limits
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = np.cumsum([0, *sizes]), self.column, self.entry
        self.solver = highspy.Highs()
        options = {
            "output_flag": False, "threads": 1, "presolve": "off", "solver": "simplex",
            "time_limit": max(0.1, deadline - time.monotonic()),
            "primal_feasibility_tolerance": FEASIBILITY, "dual_feasibility_tolerance": FEASIBILITY,
        }  # fmt: skip
        for name, value in options.items():
            self.solver.setOptionValue(name, value)
        self.solver.passModel(lp)

    def solve(self, lower: Floats, upper: Floats) -> _Solved:
        columns = np.arange(len(lower), dtype=np.int32)
        self.solver.changeColsBounds(len(columns), columns, lower, upper)
        self.solver.run()
        status, statuses = self.solver.getModelStatus(), self.highspy.HighsModelStatus
        if status == statuses.kInfeasible:
            ray = np.array(self.solver.getDualRay()[2])
            empty = any(self.bound(0.0, sign * ray, lower, upper) > 0 for sign in (1.0, -1.0)) if len(ray) else False
            return _Solved(math.inf if empty else 0.0, math.inf, None)
        if status != statuses.kOptimal:
            return _Solved(0.0, math.inf, None)
        solution = self.solver.getSolution()
        bound = self.bound(1.0, -np.array(solution.row_dual), lower, upper)
        return _Solved(bound, self.solver.getInfo().objective_function_value, np.array(solution.col_value))

    def bound(self, scale: float, multipliers: Floats, lower: Floats, upper: Floats) -> float:
        """Bound scale * c x from below.

        scale * c x >= scale * c x + y (A x - b) for all y >= 0, and the right side is least at bounds of x. Rounding
        is subtracted: n operations err by n 2^-53 of the terms' sizes.
        """
        y = np.maximum(multipliers, 0.0)
        part = self.entry * y[self.row]
        slope = scale * self.cost + np.bincount(self.column, part, len(lower))
        total = np.minimum(slope * lower, slope * upper).sum() - y @ self.limits
        steep = scale * self.cost + np.bincount(self.column, np.abs(part), len(lower))
        sizes = steep @ np.maximum(np.abs(lower), np.abs(upper)) + y @ np.abs(self.limits)
        operations = 2 * len(self.entry) + 3 * len(lower) + 3 * len(y) + 10
        found = float(total - 2 * operations * 2**-53 * sizes)
        return found if math.isfinite(found) else 0.0


def import_highs() -> Any:
    try:
        import highspy
    except ImportError as error:
        raise ImportError(f"method milp needs HiGHS ({error}): pip install highspy") from error
    return highspy


@dataclass(frozen=True)
class TrueRadius:
    """Bounds of the distance from one image to the nearest image of another class, in pixels.

    radius: the prediction is constant on the closed ball of this radius within [0, 1]; 1 is the whole cube. upper: the
    distance of `witness` (C, H, W), an image to which the network as executed gives another class; infinity and None if
    none was found. The two differ only by the tolerances, unless time was up or the radius is 1.
    """

    prediction: int
    radius: float
    upper: float
    witness: Tensor | None


def radii(network: PixelNet, x: Tensor, time_limit: float = 60.0) -> Tensor:
    """Return the `radius` of `true_radius` for each image of x (B, C, H, W): (B,) float64."""
    return torch.tensor([each.radius for each in true_radius(network, x, time_limit)], dtype=torch.float64)


@torch.no_grad()
def true_radius(network: PixelNet, x: Tensor, time_limit: float = 60.0) -> list[TrueRadius]:
    """Compute the distance of each image x (B, C, H, W) in [0, 1] to the nearest image in [0, 1] of another class.

    Branch and bound over linear programs. HiGHS (extra `milp`) solves these; every bound is then checked independently,
    rounding included (`minimise`), so the solver's tolerances and errors can make a radius smaller, never too large.
    The program is the network in exact arithmetic; to cover the rounding of the network as executed, E for a logit
    (`rounding_error`), a class counts as reached when it comes within 2E of the predicted one.

    time_limit: seconds per image; the radius proved by then is returned. It is for tiny DistNets, and refuses those
    that could need more than MAX_BINARIES binary variables.
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


class MilpProof(Proof):
    """The exact radius of a tiny network."""

    closed_form = True

    def __init__(self, network: PixelNet, x: Tensor, prediction: Tensor, tolerance: float) -> None:
        super().__init__(prediction, radii(network, x).to(x.device))

    def proves(self, rows: Tensor, eps: Tensor) -> Tensor:
        radius = self.radius[rows]
        return (radius > 0) & (radius >= largest_of(eps).clamp(max=ENOUGH))


class _Search:
    """The search for one image. Its programs cover growing balls, and stay small while the balls are small."""

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
        """Find the radius that interval bounds prove."""
        if not self.rivals(WHOLE_CUBE):
            return WHOLE_CUBE
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if self.rivals(middle) else (middle, high)
        return low

    def rivals(self, reach: float) -> list[int]:
        """List the classes that bounds cannot rule out in the ball, the nearest first."""
        pieces, shift = self.plain.near(self.x, reach)[-1], self.plain.layers[-1].shift
        lower, upper = self.plain.by_class(pieces.lower + shift), self.plain.by_class(pieces.upper + shift)
        order = np.argsort(self.outputs, kind="stable").tolist()
        return [j for j in order if j != self.prediction and lower[j] <= upper[self.prediction] + self.slack]

    def nearest(self, reach: float) -> float:
        """Bound the distance to the nearest other class from below; `reach`, if there is none in the ball."""
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
        """Look for a witness near the solver's point, which may miss the other class by the slack."""
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
