"""Compile Triton's kernels without a device, and read what the compilers have made: PTX, SASS, AMD's assembly."""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from linfdist.ops.backends.triton import interpreted

TARGETS: dict[str, tuple[str, int | str, int]] = {
    "sm_80": ("cuda", 80, 32),  # A100
    "sm_86": ("cuda", 86, 32),  # RTX 3090
    "sm_90": ("cuda", 90, 32),  # H100
    "gfx942": ("hip", "gfx942", 64),  # MI300
}
PACKAGE = "linfdist.ops.backends.triton"

# Classes of instructions, by the unit that executes them; the first pattern that fits counts.
CLASSES = {
    "fp64": r"D(ADD|MUL|FMA|SETP|MNMX)|v_\w*_f64\w*",
    "fma": r"FFMA|HFMA2|v_(pk_)?(fma|mad|fmac)_(mix_)?f(16|32)\w*",  # a product and a sum rounded once
    "add": r"FADD|HADD2|v_(pk_)?(add|sub|subrev)_f(16|32)\w*",
    "mul": r"FMUL|HMUL2|v_(pk_)?mul_f(16|32)\w*",
    "max": r"F(MNMX|SETP|SET|SEL|CHK)|HMNMX2|v_(pk_)?(max|min)3?_f(16|32)\w*|v_cmpx?_\w*_f(16|32)\w*|v_cndmask\w*",
    "special": r"MUFU|v_(exp|log|rcp|rsq|sqrt)_\w*",
    "memory": r"LD[GSLC]?|ST[GSL]?|LDSM|LDGSTS|RED|ATOM|(global|buffer|flat|ds|scratch)_\w+",
}


@dataclass(frozen=True)
class Instruction:
    address: int
    name: str  # with its modifiers
    text: str

    @property
    def kind(self) -> str:
        first = self.name.split(".")[0]
        return next((name for name, pattern in CLASSES.items() if re.fullmatch(pattern, first)), "other")


@dataclass(frozen=True)
class Code:
    """One kernel for one target: what it takes of a processor, and its instructions."""

    target: str
    registers: int
    spills: int  # bytes of memory a thread spills registers to
    shared: int  # bytes
    instructions: tuple[Instruction, ...]
    jumps: dict[int, int] = field(repr=False)  # backward: from an address to a lower one
    llvm: str = field(repr=False)
    source: str = field(repr=False)  # PTX, or AMD's assembly

    @cached_property
    def loops(self) -> list[tuple[Instruction, ...]]:
        """Loops without a loop inside, in the order of the code."""
        spans = [(to, at) for at, to in self.jumps.items()]
        inner = [a for a in spans if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in spans)]
        return [tuple(i for i in self.instructions if to <= i.address <= at) for to, at in sorted(inner)]

    @property
    def inner_loop(self) -> tuple[Instruction, ...]:
        """The longest of them: the unrolled loop over the inputs."""
        return max(self.loops, key=len, default=())


def modules() -> list[str]:
    """List the modules of kernels, those that have `variants`."""
    folder = Path(import_module(PACKAGE).__file__ or "").parent
    names = sorted(module.name for module in iter_modules([str(folder)]))
    return [name for name in names if hasattr(import_module(f"{PACKAGE}.{name}"), "variants")]


def variants() -> Iterator[Any]:
    for name in modules():
        yield from import_module(f"{PACKAGE}.{name}").variants()


def compile_variant(variant: Any, target: str) -> Code:
    """Compile in Triton's own compiler, with the options the backend launches it with."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    if interpreted():
        raise RuntimeError("TRITON_INTERPRET is set: the interpreter compiles nothing. Unset it")
    source = ASTSource(variant.kernel, variant.signature, variant.constants, variant.attributes)
    options = {"num_warps": variant.warps, **variant.options}
    compiled = triton.compile(source, target=GPUTarget(*TARGETS[target]), options=options)
    shared = int(compiled.metadata.shared)
    if target.startswith("gfx"):
        return _read_amd(target, shared, compiled.asm["llir"], compiled.asm["amdgcn"])
    return _read_nvidia(target, shared, compiled.asm["llir"], compiled.asm["ptx"], compiled.asm["cubin"])


def _read_nvidia(target: str, shared: int, llvm: str, ptx: str, cubin: bytes) -> Code:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        usage, sass = _cuobjdump("-res-usage", file), _cuobjdump("-sass", file)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if not found:
        raise RuntimeError(f"cuobjdump tells no resource usage for {target}: {usage!r}")
    instructions, jumps = [], {}
    for match in re.finditer(r"/\*([0-9a-f]{4,})\*/\s+((?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)[^;]*);", sass):
        address, text, name = int(match[1], 16), match[2], match[3]
        if name == "NOP":
            continue
        instructions.append(Instruction(address, name, text))
        to = re.search(r"0x([0-9a-f]+)\s*$", text)
        if name.startswith("BRA") and to and int(to[1], 16) < address:
            jumps[address] = int(to[1], 16)
    return Code(target, int(found[1]), int(found[2]), shared, tuple(instructions), jumps, llvm, ptx)


def _cuobjdump(option: str, file: Path) -> str:
    import triton

    program = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    return subprocess.run([program, option, file], capture_output=True, text=True, check=True).stdout


def _read_amd(target: str, shared: int, llvm: str, assembly: str) -> Code:
    instructions, labels, jumps = [], {}, {}
    for address, line in enumerate(assembly.splitlines()):
        if label := re.match(r"(\.L\w+):", line):
            labels[label[1]] = address
        elif found := re.match(r"\s+([a-z]+_[a-z0-9_]+)(.*)", line):
            instructions.append(Instruction(address, found[1], line.strip()))
            to = re.match(r"\s+(\.L\w+)", found[2])
            if to and "branch" in found[1] and to[1] in labels:
                jumps[address] = labels[to[1]]
    value = {name: int(number) for name, number in re.findall(r"\.(\w+):\s+(\d+)\s*$", assembly, re.MULTILINE)}
    spills = value["private_segment_fixed_size"]  # scalar registers that spill into vector registers cost no memory
    return Code(target, value["vgpr_count"], spills, shared, tuple(instructions), jumps, llvm, assembly)


def unsound(code: Code) -> list[str]:
    """List what in this code could round a float other than once, to nearest, with subnormals; empty if nothing could.

    For kernels that subtract, compare and take maxima, but never multiply or divide floats. Quotients of whole numbers,
    in addresses, pass through floats on every GPU, with the compiler's own proof that they come out right; they are
    written as integer divisions in PTX and LLVM, and only the reciprocal (`MUFU.RCP`, `v_rcp_iflag_f32`) is allowed.
    """
    found = []
    flags = r"= f(?:add|sub|mul|div|neg|cmp)\b[^\n]*?\b(fast|contract|reassoc|afn|arcp|nsz|nnan|ninf)\b"
    found += [f"LLVM may rewrite: {flag}" for flag in sorted(set(re.findall(flags, code.llvm)))]
    found += [f"LLVM: {name}" for name in sorted(set(re.findall(r"llvm\.(?:fma|fmuladd)\.\w+", code.llvm)))]
    if code.target.startswith("gfx"):
        fused = r"v_(?:pk_)?(?:fma|mad|fmac|exp|log|rsq|sqrt|div)_\w*f(?:16|32|64)\w*|v_rcp_(?!iflag)\w+"
        found += sorted({i.name for i in code.instructions if re.fullmatch(fused, i.name)})
        modes = dict(re.findall(r"\.amdhsa_(float_denorm_mode_\w+|float_round_mode_\w+)\s+(\d+)", code.source))
        found += [f"{name} = {mode}" for name, mode in modes.items() if mode != ("3" if "denorm" in name else "0")]
        return found
    found += sorted(set(re.findall(r"\b(?:fma\.r\w\.f\d+|\w+(?:\.\w+)*\.(?:ftz|approx|full)\.[\w.]+)", code.source)))
    for instruction in code.instructions:
        name, first = instruction.name, instruction.name.split(".")[0]
        contracted = first in ("FFMA", "DFMA") or (first == "HFMA2" and instruction.text.count("RZ") < 2)  # a constant
        flushed = "FTZ" in name and not first.startswith(("F2I", "I2F"))
        if contracted or flushed or (first == "MUFU" and name != "MUFU.RCP"):
            found.append(instruction.text)
    return found


def counts(instructions: tuple[Instruction, ...]) -> dict[str, int]:
    """How many of each class; all classes, in a fixed order."""
    found = Counter(instruction.kind for instruction in instructions)
    return {name: found[name] for name in (*CLASSES, "other")}
