"""The benchmark: which races are run, and what their ratios should be."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

import torch
from torch import Tensor

from ...ops.machine import describe_machine, load, usable_cores
from . import races
from .races import Contender, Convolution, Linear, Operation, Race, take_turns, undisturbed
from .report import AS_SPECIFIED, NOTHING_TO_PRUNE, Growth, Quartiles, RaceRow, Report, Target

DATA: dict[str, Callable[..., Tensor]] = {
    AS_SPECIFIED: torch.rand,
    NOTHING_TO_PRUNE: lambda *shape: 3 * torch.randn(*shape),
}

LINEAR = Linear(batch=512, inputs=1024, outputs=1024)
FEW = dataclasses.replace(LINEAR, batch=32)
CONVOLUTION = Convolution(batch=16, channels=128, size=32)
GROWTH_BASE = Linear(batch=256, inputs=512, outputs=512)

FORWARD = Target(floor=0.60, goal=0.80)
STEP = {
    math.inf: Target(1.5, 1.0),
    8.0: Target(8.0, 4.0),
    11.0: Target(25.0, 10.0),  # whole and odd: no product, and no reason to be slower than its neighbours
    12.0: Target(25.0, 10.0),
    30.5: Target(25.0, 10.0),
    60.0: Target(25.0, 10.0),
    100.0: Target(12.0, 5.0),
    300.0: Target(12.0, 5.0),
    1000.0: Target(12.0, 5.0),
}
OVER_CDIST = Target(15.0, 22.0)
STEP_OVER_CDIST = Target(50.0, 100.0)
OVER_LINEAR = Target(1.5, 1.2)
TWO_THREADS = Target(1.7, 1.9)

RATE, TIME, FASTER = "rate over", "time over", "times faster than"

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class BenchSettings:
    """What to measure, and for how long: `seconds` limits the repetitions' time, `most` their number."""

    threads: int = 2
    seconds: float = 130.0
    most: int = 25
    seed: int = 0
    linear: Linear = LINEAR
    few: Linear = FEW
    convolution: Convolution = CONVOLUTION
    growth_base: Linear = GROWTH_BASE
    slow_batch: int = 64  # for rivals that take seconds, or gigabytes, on the whole batch
    compiled: bool = True

    @staticmethod
    def quick(threads: int) -> "BenchSettings":
        """Make settings for half a minute: fewer repetitions, smaller batches where comparisons are per element."""
        smaller = dataclasses.replace(CONVOLUTION, batch=4)
        return BenchSettings(threads, seconds=14.0, convolution=smaller, slow_batch=32)

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")
        if self.threads > usable_cores():
            raise ValueError(f"threads must be at most the number of cores, {usable_cores()}, got {self.threads}")


def run(settings: BenchSettings | None = None, progress: Progress = lambda label, fraction: None) -> Report:
    """Measure everything; `progress` is called with what is being done and the fraction of it that is done."""
    settings = settings or BenchSettings(threads=min(2, usable_cores()))
    torch.manual_seed(settings.seed)
    load_before = load()
    with undisturbed():
        torch.set_num_threads(settings.threads)  # a compiled function keeps the number it was compiled with
        skipped = {} if settings.compiled else {"torch.compile": "switched off"}
        if settings.compiled:
            progress("compiling the broadcast formula", 0.0)
            reason = _why_no_compiler()
            skipped = {"torch.compile": reason} if reason else {}
        entries = _entries(settings, use_compiled=not skipped)
        growth = [
            _growth_race(settings, kind, p, data)
            for kind, p, data in (
                ("forward", math.inf, AS_SPECIFIED),
                ("forward", math.inf, NOTHING_TO_PRUNE),
                ("training step", 8.0, AS_SPECIFIED),
            )
        ]
        every = [entry.race for entry in entries] + [entry.race for entry in growth]
        for number, race in enumerate(every):
            progress("warming up", number / len(every))
            race.warm_up()
        take_turns(every, settings.seconds, settings.most, lambda fraction: progress("measuring", fraction))
    return Report(
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        machine=describe_machine(),
        load=load_before,
        settings=dataclasses.asdict(settings),
        rows=[row for entry in entries for row in entry.rows()],
        growth=[row for entry in growth for row in entry.rows()],
        skipped=skipped,
    )


@dataclass(frozen=True)
class _Rival:
    name: str
    operation: Operation
    problem: Linear | Convolution
    measure: str
    target: Target | None = None


@dataclass(frozen=True)
class _Entry:
    """A race of the engine against its rivals, and the engine against itself on one thread."""

    operation: str
    p: float
    data: str
    problem: Linear | Convolution
    rivals: list[_Rival]
    race: Race

    def rows(self) -> list[RaceRow]:
        return [self._row(rival, scaling=number == 0) for number, rival in enumerate(self.rivals)]

    def _row(self, rival: _Rival, scaling: bool) -> RaceRow:
        if rival.measure == TIME:
            ratio = Quartiles.of(self.race.ratios("engine", rival.name))
        else:
            ratio = Quartiles.of(self.race.ratios(rival.name, "engine"))
        threads = max(contender.threads for contender in self.race.contenders.values())
        threads_ratio = self._threads_ratio("engine") if scaling else None
        threads_target = TWO_THREADS if threads_ratio and threads == 2 else None
        return RaceRow(
            operation=self.operation,
            p=_name(self.p),
            data=self.data,
            problem=str(self.problem),
            rival=rival.name,
            rival_problem=str(rival.problem),
            measure=rival.measure,
            repetitions=self.race.repetitions,
            engine_ms=self._milliseconds("engine"),
            rival_ms=self._milliseconds(rival.name),
            ratio=ratio,
            target=rival.target,
            mark=rival.target.mark(ratio.median) if rival.target else "",
            threads_ratio=threads_ratio,
            threads_target=threads_target,
            threads_mark=threads_target.mark(threads_ratio.median) if threads_target and threads_ratio else "",
            rival_threads_ratio=self._threads_ratio(rival.name) if scaling else None,
        )

    def _milliseconds(self, name: str) -> Quartiles:
        return Quartiles.of([1e3 * seconds for seconds in self.race.seconds[name]])

    def _threads_ratio(self, name: str) -> Quartiles | None:
        alone = _alone(name)
        return Quartiles.of(self.race.ratios(alone, name)) if alone in self.race.contenders else None


@dataclass(frozen=True)
class _GrowthEntry:
    operation: str
    p: float
    data: str
    base: Linear
    race: Race

    def rows(self) -> list[Growth]:
        return [
            Growth(
                operation=self.operation,
                p=_name(self.p),
                data=self.data,
                base=str(self.base),
                dimension=name.split()[0],
                factor=int(name.split()[1]),
                repetitions=self.race.repetitions,
                ratio=Quartiles.of(self.race.ratios(name, "base")),
            )
            for name in self.race.contenders
            if name != "base"
        ]


def _entries(settings: BenchSettings, use_compiled: bool) -> list[_Entry]:
    linear, slow = settings.linear, dataclasses.replace(settings.linear, batch=settings.slow_batch)
    formulas = {p: races.compiled(p) for p in (math.inf, 8.0)} if use_compiled else {}
    entries = []
    for data in DATA:
        rivals = [
            _Rival("the product", races.product, linear, RATE, FORWARD),
            _Rival("torch.cdist", races.cdist(math.inf), linear, FASTER, OVER_CDIST),
        ]
        if math.inf in formulas:
            rivals.append(_Rival("torch.compile", formulas[math.inf], linear, FASTER))
        entries.append(_linear_entry(settings, "forward", math.inf, data, rivals))
        # A small batch: what planning costs beside it. Its rows keep their own place in the tables.
        few = [_Rival("the product", races.product, settings.few, RATE)]
        entries.append(
            _linear_entry(settings, f"forward, batch {settings.few.batch}", math.inf, data, few, settings.few)
        )
    for p, target in STEP.items():
        for data in DATA if p >= 12 else [AS_SPECIFIED]:
            rivals = [_Rival("the product", races.product, linear, TIME, target)]
            if p == 8:
                rivals.append(_Rival("torch.cdist", races.cdist(p), slow, FASTER, STEP_OVER_CDIST))
            if p in formulas:
                rivals.append(_Rival("torch.compile", formulas[p], slow, FASTER))
            entries.append(_linear_entry(settings, "training step", p, data, rivals))
    entries += [_convolution_entry(settings, "forward", math.inf, data) for data in DATA]
    entries += [_convolution_entry(settings, "training step", math.inf, data) for data in DATA]
    entries.append(_convolution_entry(settings, "training step", 8.0, AS_SPECIFIED))
    return entries


def _linear_entry(
    settings: BenchSettings, kind: str, p: float, data: str, rivals: list[_Rival], problem: Linear | None = None
) -> _Entry:
    make, linear = _maker(kind), problem or settings.linear
    contenders = {"engine": make(races.engine(p), linear, settings.threads)}
    for rival in rivals:
        contenders[rival.name] = make(rival.operation, rival.problem, settings.threads)
    _add_alone(contenders, ["engine", "the product"], settings.threads)
    race = Race(lambda: linear.draw(DATA[data]), contenders)
    return _Entry(kind, p, data, linear, rivals, race)


def _convolution_entry(settings: BenchSettings, kind: str, p: float, data: str) -> _Entry:
    make, linear, convolution = _maker(kind), settings.linear, settings.convolution
    rival = _Rival("the linear op", races.engine(p), linear, TIME, OVER_LINEAR)
    flat = make(rival.operation, linear, settings.threads)
    contenders = {
        "engine": make(races.engine_convolution(p, convolution.padding), convolution, settings.threads),
        rival.name: dataclasses.replace(flat, prepare=lambda _: flat.prepare(linear.draw(DATA[data]))),
    }
    _add_alone(contenders, ["engine"], settings.threads)
    race = Race(lambda: convolution.draw(DATA[data]), contenders)
    return _Entry(f"convolution, {kind}", p, data, convolution, [rival], race)


def _growth_race(settings: BenchSettings, kind: str, p: float, data: str) -> _GrowthEntry:
    make, base = _maker(kind), settings.growth_base
    contenders = {"base": make(races.engine(p), base, settings.threads)}
    for dimension in ("batch", "inputs", "outputs"):
        for factor in (2, 4):
            larger = dataclasses.replace(base, **{dimension: factor * getattr(base, dimension)})
            contenders[f"{dimension[0].upper()} {factor}"] = make(races.engine(p), larger, settings.threads)
    all_larger = Linear(4 * base.batch, 4 * base.inputs, 4 * base.outputs)
    race = Race(lambda: all_larger.draw(DATA[data]), contenders)
    return _GrowthEntry(kind, p, data, base, race)


def _maker(kind: str) -> Callable[[Operation, Linear | Convolution, int], Contender]:
    return races.training_step if kind == "training step" else races.forward


def _alone(name: str) -> str:
    return f"{name}, 1 thread"


def _add_alone(contenders: dict[str, Contender], names: list[str], threads: int) -> None:
    if threads > 1:
        for name in names:
            contenders[_alone(name)] = dataclasses.replace(contenders[name], threads=1)


def _name(p: float) -> str:
    return "∞" if p == math.inf else f"{p:g}"


def _why_no_compiler() -> str:
    """Why `torch.compile` does not work here; empty if it does."""
    try:
        races.compiled(math.inf)(torch.rand(2, 3), torch.rand(4, 3))
    except (RuntimeError, ImportError, OSError) as error:  # no C++ compiler, no Python headers, ...
        return str(error).splitlines()[0]
    return ""
