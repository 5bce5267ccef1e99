"""Plant faults one at a time in a copy of the package, and show that the tests catch each of them.

    python -m tools.mutation                # all faults
    python -m tools.mutation --part 2/4     # the second quarter of them
    python -m tools.mutation --only rounding
    python -m tools.mutation --drawn 44 --seed 7    # others, drawn at random in what certificates rest on

A fault (`tools.faults`) is a snippet of the source, its replacement, and the tests that must fail. A snippet is found
by its text, anywhere in `src`, and must occur exactly once there: so files may move, but code that changes takes its
fault along. Tests of the copy without any fault must pass first. The exit code is 1 unless every fault is caught. Of
those that are drawn, some change nothing that can be seen, so each that is missed is to be read.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import cache_from_source
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import linfdist

from .faults import FAULTS, Fault

ROOT = Path(__file__).parents[1]
WITHOUT_EDITABLE = """import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__name__.startswith("ScikitBuild")]
"""  # the finder of an editable install comes before every path


CORE = {  # what certificates rest on, and the quick tests of each file
    "bounds/interval.py": "certificates/test_box.py models/test_mean.py",
    "bounds/forms.py": "baselines/test_linear.py baselines/test_layers.py",
    "bounds/linear.py": "baselines/test_linear.py",
    "bounds/windows.py": "baselines/test_linear.py",
    "bounds/zonotope.py": "baselines/test_zonotope.py",
    "bounds/head.py": "certificates/test_head_bounds.py training/test_losses.py",
    "bounds/tanh.py": "certificates/test_head_bounds.py",
    "bounds/margin_reach.py": "certificates/test_margin.py",
    "certificates/margins.py": "baselines/test_linear.py baselines/test_zonotope.py",
    "certificates/proofs.py": "certificates/test_radius.py certificates/test_certify.py certificates/test_margin.py",
    "certificates/checks.py": "certificates/test_refusals.py attacker/test_conditions.py",
    "certificates/certificate.py": "certificates/test_shown.py certificates/test_certifier.py "
    "certificates/test_certify.py",
    "certificates/milp.py": "certificates/test_milp.py",
    "certificates/milp_program.py": "certificates/test_milp.py",
    "nn/base.py": "certificates/test_rounding.py attacker/test_shapes.py nn/test_mean_pool.py",
    "nn/dist.py": "nn/test_dist_linear.py nn/test_dist_conv.py nn/test_mean_shift.py models/test_dist_net.py",
    "nn/pixels.py": "nn/test_normalize.py nn/test_clip.py nn/test_mean_pool.py nn/test_mirror_pairs.py nn/test_view.py "
    "models/test_pool_clip.py",
    "nn/head.py": "nn/test_head.py certificates/test_head_bounds.py",
    "models/base.py": "certificates/test_denormals.py certificates/test_rounding.py models/test_dist_net.py "
    "models/test_composed.py",
}
OPERATORS: dict[type, tuple[str, str]] = {  # of Python's syntax: how each is written, and what takes its place
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
_PAIRS = ["lower upper", "amax amin", "maximum minimum", "near far", "low high", "all any", "max min"]
NAMES = {a: b for pair in _PAIRS for a, b in (pair.split(), pair.split()[::-1])} | {"fmax": "fmin", "argmin": "argmax"}
NUMBERS = {"1": "2", "2": "1", "1.0": "0.5", "2.0": "1.0"}


def changes(source: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield small faults of a file, each as two places in it and what is put between them."""
    starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]

    def place(node: Any) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def exchanged(operator: object, left: ast.expr, right: ast.expr) -> Iterator[tuple[int, int, str]]:
        start, end = place(left)[1], place(right)[0]
        written, other = OPERATORS.get(type(operator), ("", ""))
        if written and (between := source[start:end].decode()).count(written) == 1:
            yield start, end, between.replace(written, other)

    tree = ast.parse(source)
    for node in _of_values(tree):
        match node:
            case ast.Compare(left, [operator], [right]) | ast.BoolOp(operator, [left, right, *_]):
                yield from exchanged(operator, left, right)
            case ast.BinOp(left, operator, right):
                if not isinstance(left, ast.Constant) or not isinstance(left.value, str):  # a text is formatted
                    yield from exchanged(operator, left, right)
                added = isinstance(operator, ast.Add) and isinstance(right, ast.Name | ast.Call | ast.BinOp)
                if added or isinstance(operator, ast.Sub):
                    yield place(left)[1], place(right)[1], ""
            case ast.If(test, body) if any(isinstance(each, ast.Raise) for each in body):
                yield *place(test), "False"
            case ast.Attribute(attr=name) if name in NAMES:
                yield place(node)[1] - len(name), place(node)[1], NAMES[name]
            case ast.Name(name, ast.Load()) if name in NAMES:
                yield *place(node), NAMES[name]
            case ast.UnaryOp(ast.Not() | ast.USub(), operand) if not isinstance(operand, ast.Constant):
                yield place(node)[0], place(operand)[0], ""
            case ast.Constant(int() | float() as number) if repr(number) in NUMBERS:
                yield *place(node), NUMBERS[repr(number)]


def _of_values(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree except types, indices, negative numbers, and numbers as arguments, which are axes."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        skipped = [getattr(node, name, None) for name in ("annotation", "returns")]
        if isinstance(node, ast.Subscript):
            skipped.append(node.slice)
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
            skipped.append(node.operand)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            skipped += [each for each in node.args if isinstance(each, ast.Constant)]
        left_out |= {id(each) for part in skipped if part is not None for each in ast.walk(part)}
    yield from (node for node in ast.walk(tree) if id(node) not in left_out)


def drawn(copy: "Copy", count: int, seed: int) -> list[Fault]:
    """Draw about so many faults of the core: at least one of each file, and more of those with more places for them."""
    generator, sources = random.Random(seed), {name: (copy.package / name).read_bytes() for name in CORE}
    every = {name: list(changes(source)) for name, source in sources.items()}
    total = sum(len(each) ** 0.5 for each in every.values())
    faults = []
    for name, places in every.items():
        for start, end, new in generator.sample(places, max(1, round(count * len(places) ** 0.5 / total))):
            source = sources[name]
            first, last = source.rfind(b"\n", 0, start) + 1, source.find(b"\n", end)
            line = source[first:last].decode().strip()
            changed = (source[first:start] + new.encode() + source[end:last]).decode().strip()
            while sum(text.count(source[first:last].decode()) for text in copy.sources.values()) > 1:
                first = source.rfind(b"\n", 0, first - 1) + 1  # the line before, too
            after = source[first:start] + new.encode() + source[end:last]
            what = f"{name}: {line} -> {changed}"
            faults.append(Fault(what, source[first:last].decode(), after.decode(), CORE[name]))
    return faults


class Result(NamedTuple):
    """What became of a fault: the first test that failed, or why it counts as missed."""

    caught: bool
    by: str
    seconds: float


class Copy:
    """A copy of the package in a folder of its own, which Python finds before the installed one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.package = folder, folder / "linfdist"
        shutil.copytree(ROOT / "src" / "linfdist", self.package, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "sitecustomize.py").write_text(WITHOUT_EDITABLE)
        for library in (file for place in linfdist.__path__ for file in Path(place).glob("_native.*")):
            if not (self.package / library.name).exists():
                (self.package / library.name).symlink_to(library)
        self.sources = {file: file.read_text() for file in sorted(self.package.rglob("*.py"))}

    def place_of(self, fault: Fault) -> Path:
        """Find the file that holds the snippet; ValueError unless exactly one does, once."""
        found = [file for file, text in self.sources.items() for _ in range(text.count(fault.before))]
        if len(found) != 1:
            places = ", ".join(str(file.relative_to(self.folder)) for file in found) or "nowhere"
            raise ValueError(f"{fault.what}: the snippet must occur exactly once, but occurs in {places}")
        return found[0]

    def run(self, tests: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
        """Run tests on the copy, to the first failure."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *options]
        paths = [os.fspath(Path("tests", each)) for each in tests]
        environment = {**os.environ, "PYTHONPATH": os.fspath(self.folder)}
        return subprocess.run([*command, *paths], cwd=ROOT, env=environment, capture_output=True, text=True)

    def plant(self, fault: Fault) -> Result:
        """Run the tests of a fault with it, and take it out again."""
        file = self.place_of(fault)
        start = time.perf_counter()
        try:
            self._write(file, self.sources[file].replace(fault.before, fault.after))
            done = self.run(fault.tests.split(), "--timeout=120")
        finally:
            self._write(file, self.sources[file])
        failed = re.search(r"^FAILED (?:tests/)?(\S+)", done.stdout, re.MULTILINE)
        caught = done.returncode == 1 and failed is not None
        why = "all tests pass" if done.returncode == 0 else f"pytest ends with {done.returncode}"
        return Result(caught, failed[1] if caught and failed else why, time.perf_counter() - start)

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text)
        Path(cache_from_source(os.fspath(file))).unlink(missing_ok=True)  # it may be of the same second and size


def check(copy: Copy, faults: Iterable[Fault]) -> None:
    """Raise ValueError unless every fault has its place in the source, and its tests exist."""
    for fault in faults:
        copy.place_of(fault)
        if missing := [each for each in fault.tests.split() if not (ROOT / "tests" / each).exists()]:
            raise ValueError(f"{fault.what}: there are no tests {', '.join(missing)}")


def main() -> None:
    """Plant all faults, or some, and print what caught each of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the K-th of N parts of the faults")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults whose words contain this")
    parser.add_argument("--drawn", type=int, metavar="N", help="about so many drawn at random, in place of the listed")
    parser.add_argument("--seed", type=int, default=0, help="of those that are drawn")
    parser.add_argument("--trust", action="store_true", help="take for granted that tests pass without any fault")
    chosen = parser.parse_args()
    part, parts = map(int, chosen.part.split("/"))
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        known = FAULTS if chosen.drawn is None else drawn(copy, chosen.drawn, chosen.seed)
        faults = [fault for fault in known if chosen.only in fault.what][part - 1 :: parts]
        check(copy, faults)
        tests = sorted({each for fault in faults for each in fault.tests.split()})
        if not chosen.trust and (sound := copy.run(tests)).returncode:
            sys.exit(f"tests fail without any fault:\n{sound.stdout}")
        results = []
        for fault in faults:
            results.append(copy.plant(fault))
            caught, by, seconds = results[-1]
            print(f"{'caught' if caught else 'MISSED'} {seconds:5.0f} s  {fault.what}: {by}", flush=True)
    missed = sum(not each.caught for each in results)
    print(f"{len(results) - missed} of {len(results)} faults are caught")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
