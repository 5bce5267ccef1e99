"""Plant faults one at a time in a copy of the package, and show that the tests catch each of them.

    python -m tools.mutation                # all faults
    python -m tools.mutation --part 2/4     # the second quarter of them
    python -m tools.mutation --only rounding
    python -m tools.mutation --drawn 44 --seed 7    # others, drawn at random in what certificates rest on

A fault is a snippet of the source, its replacement, and the tests that must fail. A snippet is found by its text,
anywhere in `src`, and must occur exactly once there: so files may move, but code that changes takes its fault along.
Tests of the copy without any fault must pass first. The exit code is 1 unless every fault is caught. Of those that are
drawn, some change nothing that can be seen, so each that is missed is to be read.
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

ROOT = Path(__file__).parents[1]
WITHOUT_EDITABLE = """import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__name__.startswith("ScikitBuild")]
"""  # the finder of an editable install comes before every path


class Fault(NamedTuple):
    """What is wrong, the snippet and what replaces it, and the tests that must notice, below `tests`."""

    what: str
    before: str
    after: str
    tests: str


FAULTS = [
    # --- ops
    Fault(
        "the output of a convolution is too large by one",
        "(size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1",
        "(size + 2 * padding - dilation * (kernel - 1)) // stride + 1",
        "ops/test_conv.py ops/test_opcheck.py",
    ),
    Fault(
        "the gradient of a box goes to the wrong bound",
        "through(nearest, grad_near, near_where, near_where >= 0, need_lower)",
        "through(nearest, grad_near, near_where, near_where < 0, need_lower)",
        "ops/test_box_dist.py",
    ),
    Fault(
        "a box in the wrong order is accepted",
        "wrong = lower > upper\n",
        "wrong = lower > upper + 1\n",
        "ops/test_inputs.py ops/test_box_dist.py",
    ),
    Fault(
        "vmap unflattens the wrong axis",
        "mapped, inner = 1, w.shape[0] // size",
        "mapped, inner = 0, w.shape[0] // size",
        "ops/test_func.py",
    ),
    Fault(
        "the reference takes x < w for x > w",
        "where[block.output] = _code(i, negative=_at(difference, i) < 0)",
        "where[block.output] = _code(i, negative=_at(difference, i) > 0)",
        "ops/test_inf_dist.py",
    ),
    Fault(
        "a side of an integer entry that can win is left out",
        "below = (-lowest > floor[neuron])",
        "below = (lowest > floor[neuron])",
        "ops/test_exact.py",
    ),
    Fault(
        "the moments of Adam share one β",
        "mean.lerp_(grad, 1 - betas[0])",
        "mean.lerp_(grad, 1 - betas[1])",
        "training/test_adam.py",
    ),
    # --- layers
    Fault(
        "the bounds of a dist layer are swapped",
        "Box(near + self.bias, far + self.bias)",
        "Box(far + self.bias, near + self.bias)",
        "nn/test_dist_linear.py",
    ),
    Fault(
        "no slack for the rounding of means",
        "mean_slack(size, k * k, dtype)",
        "torch.zeros_like(size)",
        "nn/test_mean_pool.py",
    ),
    Fault(
        "a lower bound moves inwards",
        "low, high = (lower - apart)",
        "low, high = (lower + apart)",
        "nn/test_mean_pool.py baselines/test_layers.py",
    ),
    Fault(
        "the Lipschitz constant of contrast is rounded to nearest",
        "round_up(1 / self.span())",
        "float(1 / self.span())",
        "nn/test_clip.py",
    ),
    Fault(
        "a mean over the batch passes for a map of boxes",
        'if self.training:\n            raise RuntimeError("in training mode the shift',
        'if False:\n            raise RuntimeError("in training mode the shift',
        "nn/test_mean_shift.py",
    ),
    Fault(
        "a layer does not stretch the error of its input",
        "error * Fraction(layer.lipschitz) + own.error",
        "error + own.error",
        "certificates/test_rounding.py certificates/test_margin.py",
    ),
    # --- certificates
    Fault(
        "no slack for rounding in the margin",
        "gap * DOWN - 4 * error * UP",
        "gap * DOWN - 0 * error * UP",
        "certificates/test_margin.py certificates/test_attacker.py",
    ),
    Fault(
        "the ball of floats is too small",
        "torch.where(near < eps, torch.nextafter(near,",
        "torch.where(near > eps, torch.nextafter(near,",
        "certificates/test_box.py",
    ),
    Fault(
        "a network in training mode is certified", "if module.training:", "if False:", "certificates/test_refusals.py"
    ),
    Fault(
        "pixels that are NaN are accepted",
        "if not (low >= 0 and high <= 1):  # NaN fails too",
        "if low < 0 or high > 1:",
        "certificates/test_refusals.py",
    ),
    Fault(
        "a class that inherits its declarations is accepted",
        "return not inspect.isabstract(cls) and all(",
        "return not inspect.isabstract(cls) or all(",
        "contract certificates/test_refusals.py",
    ),
    Fault(
        "the lines around a tanh are swapped",
        "torch.where(weight > 0, lines.lower_slope, lines.upper_slope)",
        "torch.where(weight > 0, lines.upper_slope, lines.lower_slope)",
        "certificates/test_head_bounds.py",
    ),
    Fault(
        "a radius is not rounded up",
        "return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)",
        "return nearest",
        "test_eps.py recipes/test_eps.py",
    ),
    # --- exact networks
    Fault(
        "the entry that attains the floor is pruned",
        "(far > floor).scatter_(1, holder, True)",
        "far > floor",
        "exact/test_prune.py",
    ),
    Fault(
        "a margin of whole levels counts as open",
        "return (gap - 1).clamp_min(0).div(2 * steps",
        "return gap.clamp_min(0).div(2 * steps",
        "exact/test_certificate.py",
    ),
    Fault(
        "the independent checker accepts a tie",
        "bool(np.delete(low, best).min() > high[best])",
        "bool(np.delete(low, best).min() >= high[best])",
        "exact/test_certificate.py",
    ),
    # --- data and files
    Fault(
        "damaged data are accepted",
        'if _checksum(images, labels, classes) != metadata.get("sha256"):',
        "if False:",
        "data/test_store.py",
    ),
    Fault(
        "the channels of CIFAR-10 are mixed up",
        "pixels.transpose(0, 2, 1).reshape(_BATCH, 3072)",
        "pixels.reshape(_BATCH, 3072)",
        "data/test_sets.py",
    ),
    Fault(
        "images are mirrored along the wrong axis",
        "result[mirrored] = result[mirrored, ..., ::-1]",
        "result[mirrored] = result[mirrored, ..., ::-1, :]",
        "data/test_augment.py",
    ),
    Fault("JSON may hold NaN", "parse_constant=_no_number, ", "", "evaluation/test_part.py"),
    # --- rows, training, networks
    Fault(
        "an attack of just the proved size is no violation",
        "by_radius = self.radius > 0 and exact <= Fraction(self.radius)",
        "by_radius = self.radius > 0 and exact < Fraction(self.radius)",
        "evaluation/test_invariants.py",
    ),
    Fault(
        "a batch that was cut off counts as whole",
        r'if not line.endswith(b"\n"):',
        "if False:",
        "evaluation/test_part.py",
    ),
    Fault(
        "the hinge pushes the wrong way",
        "m = z - z.gather(1, y[:, None]) + threshold",
        "m = z - z.gather(1, y[:, None]) - threshold",
        "training/test_losses.py",
    ),
    Fault(
        "p becomes infinite one step late",
        "or epoch >= recipe.e1 + recipe.e2:",
        "or epoch > recipe.e1 + recipe.e2:",
        "training/test_schedule.py",
    ),
    Fault(
        "weights that are not finite are loaded",
        "if tensor.numel() and not all(map(math.isfinite, tensor.aminmax())):",
        "if False:",
        "training/test_files.py",
    ),
    Fault(
        "a file of the zoo is not compared with its card",
        "hashlib.sha256(content).hexdigest()\n    if found != expected:",
        "hashlib.sha256(content).hexdigest()\n    if False:",
        "models/zoo",
    ),
    # --- attacks, exports, estimator, rivals, command line
    Fault(
        "an attack leaves its ball",
        "ball.clip(torch.where(images.isnan(), ",
        "(torch.where(images.isnan(), ",
        "attacks/test_base.py",
    ),
    Fault(
        "no slack for rounding in an ONNX file",
        "b = round_up(4 * Fraction(error)",
        "b = round_up(0 * Fraction(error)",
        "export/test_onnx.py",
    ),
    Fault(
        "a ball in the user's units reaches its nearer end only",
        "far = np.maximum(upper - u, u - lower)",
        "far = np.minimum(upper - u, u - lower)",
        "sklearn/test_scaling.py sklearn/test_proofs.py",
    ),
    Fault(
        "a confidence bound at twice the risk",
        "return tail <= Fraction(alpha)",
        "return tail <= 2 * Fraction(alpha)",
        "baselines/test_smoothing.py",
    ),
    Fault(
        "a ReLU is bounded from the wrong side",
        "weight = up * below[forms.row] + down * above[forms.row]",
        "weight = up * above[forms.row] + down * below[forms.row]",
        "baselines/test_linear.py",
    ),
    Fault(
        "a refused certificate gives exit code 0",
        'raise fail(f"refused: {explain(error)}") from None',
        'raise fail(f"refused: {explain(error)}", 0) from None',
        "exact/test_cli.py",
    ),
    Fault("misuse gives the exit code of a failure", "MISUSED = 2", "MISUSED = 1", "cli/test_help.py"),
]


CORE = {  # what certificates rest on, and the quick tests of each file
    "bounds/interval.py": "certificates/test_box.py models/test_mean.py",
    "bounds/forms.py": "baselines/test_linear.py baselines/test_layers.py",
    "bounds/linear.py": "baselines/test_linear.py",
    "bounds/windows.py": "baselines/test_linear.py",
    "bounds/zonotope.py": "baselines/test_zonotope.py",
    "bounds/head.py": "certificates/test_head_bounds.py",
    "bounds/tanh.py": "certificates/test_head_bounds.py",
    "bounds/margin_reach.py": "certificates/test_margin.py",
    "certificates/margins.py": "baselines/test_linear.py baselines/test_zonotope.py",
    "certificates/proofs.py": "certificates/test_radius.py certificates/test_certify.py certificates/test_margin.py",
    "certificates/checks.py": "certificates/test_refusals.py attacker/test_conditions.py",
    "certificates/certificate.py": "certificates/test_shown.py certificates/test_certify.py",
    "certificates/milp.py": "certificates/test_milp.py",
    "certificates/milp_program.py": "certificates/test_milp.py",
    "nn/base.py": "certificates/test_rounding.py attacker/test_shapes.py nn/test_mean_pool.py",
    "nn/dist.py": "nn/test_dist_linear.py nn/test_dist_conv.py nn/test_mean_shift.py models/test_dist_net.py",
    "nn/pixels.py": "nn/test_normalize.py nn/test_clip.py nn/test_mean_pool.py nn/test_mirror_pairs.py nn/test_view.py "
    "models/test_pool_clip.py",
    "nn/head.py": "nn/test_head.py certificates/test_head_bounds.py",
    "models/base.py": "certificates/test_denormals.py certificates/test_rounding.py models/test_dist_net.py",
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
