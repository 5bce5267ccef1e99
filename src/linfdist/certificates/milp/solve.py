"""Branch and bound in which nothing is believed: HiGHS proposes multipliers, a few lines of arithmetic check them.

The MIP solver of HiGHS is not used: its presolve has called programs infeasible that have solutions (1.15.1, and a
number of reports of other versions), and that would be a wrong certificate.
"""

import heapq
import math
import time
from typing import Any, NamedTuple

import numpy as np

from .program import FEASIBILITY, TOLERANCE, Floats, Program

WHOLE = 1e-6  # how far a binary of the relaxation may be from a whole number to be taken for one


class Answer(NamedTuple):
    """bound: proved, up to TOLERANCE: no point of the program has a smaller r. value: r of `point`, the best found."""

    bound: float
    value: float
    point: Floats | None


class _Solved(NamedTuple):
    bound: float  # proved; infinite if there is no point
    value: float  # as the solver says
    point: Floats | None


def minimise(program: Program, deadline: float) -> Answer:
    """The least r of a program, as far as time allows: what is open then keeps the bound low."""
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
    """The least r for that point's choices of pieces and another slack."""
    lower, upper = np.array(program.lower), np.array(program.upper)
    lower[program.binaries] = upper[program.binaries] = point[program.binaries].round()
    return Answer(*Relaxation(program, deadline, slack).solve(lower, upper))


def _branch(program: Program, point: Floats | None, lower: Floats, upper: Floats) -> int | None:
    """The binary that is furthest from a whole number; without a point, any that is free; None if all are whole."""
    free = [column for column in program.binaries if lower[column] < upper[column]]
    if not free or point is None:
        return free[0] if free else None
    far = np.abs(point[free] - point[free].round())
    return free[int(far.argmax())] if far.max() > WHOLE else None


class Relaxation:
    """A program without whole numbers: minimise c x, A x <= b, for one set of bounds of x after the other."""

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
        """A number that scale * c x cannot fall below: scale * c x >= scale * c x + y (A x - b) for all y >= 0, and the
        right side is least at bounds of x. Rounding is subtracted: n operations err by n 2^-53 of the terms' sizes.
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
