"""The compiled kernels: what the reader of code finds, and (slowly) the committed table, compiled again."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from linfdist.ops.backends import triton
from tools import gpu_code, gpu_table
from tools.gpu_code import Code, Instruction


def nvidia(*lines, llvm="", ptx=""):
    instructions = tuple(Instruction(16 * n, line.split()[0], line) for n, line in enumerate(lines))
    return Code("sm_86", 32, 0, 0, instructions, {}, llvm, ptx)


SOUND = nvidia(
    "FADD R0, R1, -R2", "FMNMX.NAN R0, R0, |R1|, !PT", "HFMA2.MMA R5, -RZ, RZ, 0, 0", "MUFU.RCP R4, R4",
    "F2I.FTZ.U32.TRUNC.NTZ R4, R4",
    llvm="%1 = fsub float %2, %3\n", ptx="sub.rn.f32 %f1, %f2, %f3; max.NaN.f32 %f4, %f1, %f5;",
)  # fmt: skip


def test_sound_code_passes():
    assert gpu_code.unsound(SOUND) == []


@pytest.mark.parametrize(
    "change",
    [
        {"instructions": nvidia("FFMA R0, R1, R2, R3").instructions},
        {"instructions": nvidia("HFMA2 R0, R1, R2, R3").instructions},
        {"instructions": nvidia("DFMA R0, R1, R2, R3").instructions},
        {"instructions": nvidia("FADD.FTZ R0, R1, R2").instructions},
        {"instructions": nvidia("FMNMX.FTZ.NAN R0, R1, R2, !PT").instructions},
        {"instructions": nvidia("MUFU.EX2 R0, R1").instructions},
        {"source": "fma.rn.f32 %f1, %f2, %f3, %f4;"},
        {"source": "sub.rn.ftz.f32 %f1, %f2, %f3;"},
        {"source": "ex2.approx.ftz.f32 %f1, %f2;"},
        {"source": "div.full.f32 %f1, %f2, %f3;"},
        {"llvm": "%1 = fsub contract float %2, %3\n"},
        {"llvm": "%1 = call float @llvm.fma.f32(float %2, float %3, float %4)\n"},
    ],
    ids=str,
)
def test_each_way_of_rounding_otherwise_is_found(change):
    assert gpu_code.unsound(replace(SOUND, **change))


AMD = "\t.amdhsa_float_denorm_mode_32 3\n\t.amdhsa_float_round_mode_32 0\n"


@pytest.mark.parametrize(
    ("name", "source", "sound"),
    [
        ("v_sub_f32_e32", AMD, True),
        ("v_rcp_iflag_f32_e32", AMD, True),
        ("v_fma_f32", AMD, False),
        ("v_pk_fma_f32", AMD, False),
        ("v_fmac_f32_e32", AMD, False),
        ("v_rcp_f32_e32", AMD, False),
        ("v_sub_f32_e32", AMD.replace("32 3", "32 0"), False),  # flushes subnormals
        ("v_sub_f32_e32", AMD.replace("mode_32 0", "mode_32 1"), False),  # does not round to nearest
    ],
)
def test_amd_too(name, source, sound):
    code = replace(SOUND, target="gfx942", instructions=(Instruction(0, name, name),), source=source)
    assert (gpu_code.unsound(code) == []) == sound


def test_the_inner_loop_is_the_one_without_a_loop_inside():
    code = replace(nvidia("A", "B", "FADD R0", "FADD R1", "BRA", "C", "BRA"), jumps={16 * 4: 16 * 2, 16 * 6: 16})
    assert [each.name for each in code.inner_loop] == ["FADD", "FADD", "BRA"]
    assert gpu_code.counts(code.inner_loop)["add"] == 2


def test_spills_growth_and_unknown_kernels_are_surprises():
    row = {"registers": 100, "spills": 0, "shared": 0, "instructions": 1000, "loop": 500, "classes": {}}
    assert gpu_table.surprises("k", row, row) == []
    assert gpu_table.surprises("k", row | {"spills": 8}, row)
    assert gpu_table.surprises("k", row | {"loop": 560}, row) == ["k: loop grew from 500 to 560"]
    assert gpu_table.surprises("k", row, None)


@pytest.mark.skipif(bool(triton.missing()), reason=f"triton: {triton.missing()}")
def test_every_kernel_is_in_the_table():
    table = json.loads(gpu_table.TABLE.read_text())["kernels"]
    assert all(set(rows) == set(gpu_code.TARGETS) for rows in table.values())
    assert {variant.name for variant in gpu_code.variants()} == table.keys()
    assert any(gpu_table.SOUND.match(name) for name in table)
    assert max(row["spills"] for rows in table.values() for row in rows.values()) == 72  # as docs/gpu.md says


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.skipif(bool(triton.missing()), reason=f"triton: {triton.missing()}")
def test_every_kernel_compiled_again_is_what_the_table_says():
    """In a process of its own: here, other tests may have imported the kernels for the interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, "-m", "tools.gpu_table", "--check"], capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stderr
