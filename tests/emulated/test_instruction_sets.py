"""Every instruction set against the definitions (compare.cpp), also those this CPU lacks.

NEON runs under QEMU. AVX-512 runs as AVX2 code: SIMDe stands in for its intrinsics (simde/immintrin.h).
"""

import os
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # compiling every instruction set takes minutes

HERE = Path(__file__).parent
CSRC = HERE.parents[1] / "csrc"
FLAGS = ["-std=c++20", "-O1", "-ffp-contract=off"]  # without contraction, as in CMakeLists.txt
AVX2 = ["-mavx2", "-mfma"]
EMULATED_AVX512 = [*AVX2, "-isystem", str(HERE / "simde"), "-Wno-psabi"]

COMPILER = os.environ.get("CXX") or shutil.which("c++")
NM = shutil.which("nm")
CROSS_COMPILER = shutil.which("aarch64-linux-gnu-g++")
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
ON_X86 = platform.machine().lower() in ("x86_64", "amd64")
ON_ARM = platform.machine().lower() in ("aarch64", "arm64")
SIMDE = Path("/usr/include/simde/x86/avx512.h").exists()
NATIVE = {"neon": []} if ON_ARM else {}
if ON_X86:
    NATIVE = {"avx2": AVX2, **({"avx512": EMULATED_AVX512} if SIMDE else {})}


def build(folder: Path, compiler: str, sets: dict[str, list[str]], link: list[str] | None = None) -> Path:
    """The program with the scalar instruction set and `sets`, each with the flags of its own unit."""
    units = [path for path in CSRC.glob("*.cpp") if not path.name.startswith(("isa_", "bindings"))]
    jobs = [(CSRC / f"isa_{name}.cpp", flags) for name, flags in reversed(sets.items())]  # the slowest first
    jobs += [(path, ["-I", str(CSRC)]) for path in [CSRC / "isa_scalar.cpp", HERE / "compare.cpp", *units]]
    have = [f"-DLINFDIST_HAVE_{name.upper()}" for name in sets]
    if "avx512" in sets:  # emulated: the CPU need not have it
        have.append("-D__builtin_cpu_supports(feature)=true")

    def compile_one(job: tuple[Path, list[str]]) -> str:
        source, flags = job
        target = str(folder / f"{source.stem}.o")
        run([compiler, *FLAGS, *have, *flags, "-c", str(source), "-o", target])
        return target

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, jobs))
    run([compiler, *objects, *(link or []), "-o", str(folder / "compare")])
    return folder / "compare"


def run(command: list[str], isa: str | None = None) -> str:
    env = {**os.environ, "LINFDIST_ISA": isa} if isa else None
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if isa == "avx2" and done.returncode == 2 and "cannot run here" in done.stdout:
        pytest.skip(done.stdout.strip())  # an old CPU
    assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not COMPILER:
        pytest.skip("no C++ compiler (Debian: g++)")
    return build(tmp_path_factory.mktemp("native"), COMPILER, NATIVE)


def test_scalar(native: Path) -> None:
    assert run([str(native)], "scalar").startswith("scalar: ")


@pytest.mark.skipif(not ON_X86, reason="needs an x86 CPU")
def test_avx2(native: Path) -> None:
    assert run([str(native)], "avx2").startswith("avx2: ")


@pytest.mark.skipif(not ON_X86, reason="the emulation needs AVX2")
@pytest.mark.skipif(not SIMDE, reason="no SIMDe (Debian: libsimde-dev)")
def test_avx512(native: Path) -> None:
    assert run([str(native)], "avx512").startswith("avx512: ")


@pytest.mark.skipif(not ON_ARM, reason="needs an ARM CPU")
def test_neon(native: Path) -> None:
    assert run([str(native)], "neon").startswith("neon: ")


@pytest.mark.skipif(not COMPILER or not NM, reason="no C++ compiler or no nm (Debian: g++, binutils)")
@pytest.mark.skipif(not ON_X86, reason="needs a compiler for x86")
def test_no_function_of_an_avx_unit_can_replace_that_of_another(tmp_path: Path) -> None:
    """The linker keeps one of all weak functions of a name: members of headers must not be ones, not even at -O0."""
    target = str(tmp_path / "unit.o")
    run([COMPILER, *FLAGS, "-O0", *AVX2, "-c", str(CSRC / "isa_avx2.cpp"), "-o", target])
    assert not [line for line in run([NM, "--demangle", target]).splitlines() if " W " in line]


def test_unknown_instruction_set_is_an_error(native: Path) -> None:
    done = subprocess.run([native], capture_output=True, text=True, env={**os.environ, "LINFDIST_ISA": "mmx"})
    assert done.returncode == 2
    assert "LINFDIST_ISA=mmx cannot run here; available:" in done.stdout
    assert "scalar" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(ON_ARM, reason="NEON runs here without emulation")
@pytest.mark.skipif(not CROSS_COMPILER, reason="no compiler for ARM (Debian: g++-aarch64-linux-gnu)")
@pytest.mark.skipif(not QEMU, reason="no emulator for ARM (Debian: qemu-user-static)")
def test_emulated_neon(tmp_path: Path) -> None:
    program = build(tmp_path, CROSS_COMPILER, {"neon": []}, ["-static"])
    assert run([QEMU, str(program)], "neon").startswith("neon: ")
