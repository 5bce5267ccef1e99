"""One boundary: whatever a user, a disk or an environment does, one line on stderr; only bugs give a traceback."""

import os
import subprocess
import sys

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from linfdist import models
from linfdist.cli import app
from linfdist.cli.boundary import Verbs, checking, explain
from linfdist.data import DataError
from linfdist.models import DistNet
from linfdist.ops import machine
from linfdist.training import Interrupted

FULL = (
    "import resource, sys; from linfdist.cli import main\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"  # a disk that is full after so many bytes
    "main()"
)


@pytest.fixture
def model(tmp_path):
    """A network without a recipe, for digits."""
    path = tmp_path / "net.safetensors"
    models.save(DistNet((1, 8, 8), 10, 64, 3, [0.3], 0.3), path, {})
    Image.new("L", (8, 8)).save(tmp_path / "image.png")
    return path


def run(*arguments: object) -> str:
    """The one line that a verb says on stderr, which ends with exit code 1."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return one_line(result.exit_code, result.stderr)


def run_alone(*arguments: object, program: str | None = None, **environment: str) -> str:
    """The same in a process of its own."""
    start = ["-m", "linfdist"] if program is None else ["-c", program]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, *start, *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    return one_line(done.returncode, done.stderr)


def one_line(code: int, errors: str) -> str:
    assert code == 1, errors
    (line,) = errors.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (DataError("no such data"), 1, "error: no such data\n"),
        (ValueError("x = 3: must be 2"), 1, "error: x = 3: must be 2\n"),
        (ImportError("pip install onnx"), 1, "error: pip install onnx\n"),
        (MemoryError(), 1, "error: there is not enough memory for this"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate"), 1, "error: there is"),
        (OSError(28, "No space left on device", "/a/b"), 1, "error: /a/b: No space left on device\n"),
        (FileNotFoundError("nothing there"), 1, "error: nothing there\n"),
        (NotImplementedError(), None, ""),
        (KeyError("bug"), None, ""),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None, ""),
        (AssertionError(), None, ""),
        (KeyboardInterrupt(), 130, "stopped\n"),
        (
            Interrupted("stopped at step 3 of 9; --resume continues"),
            130,
            "stopped at step 3 of 9; --resume continues\n",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_an_error_becomes(error, code, said):
    verbs = typer.Typer(cls=Verbs, pretty_exceptions_enable=False)

    @verbs.command()
    def work() -> None:
        raise error

    @verbs.command()
    def other() -> None: ...

    result = CliRunner().invoke(verbs, ["work"])
    if code is None:
        assert result.exception is error  # with its traceback
    else:
        assert (result.exit_code, type(result.exception)) == (code, SystemExit)
        assert result.stderr.startswith(said)
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""


def test_what_to_do_after_an_interruption(monkeypatch, model):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("linfdist.evaluation.evaluate", stop)
    monkeypatch.setattr("linfdist.experiments.tables.reproduce.run", stop)
    pytest.importorskip("sklearn", reason="scikit-learn brings the digits")
    result = CliRunner().invoke(app, ["evaluate", str(model), "--data", "digits", "--eps", "0.1"])
    assert result.exit_code == 130
    assert result.stderr == "stopped; what is finished is kept, and the same command without --fresh resumes\n"
    result = CliRunner().invoke(app, ["reproduce", "table9"])
    assert (result.exit_code, result.stderr) == (130, "stopped; the same command resumes\n")


def test_other_processes_of_a_job_are_silent(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    verbs = typer.Typer(cls=Verbs)

    @verbs.command()
    def work() -> None:
        raise KeyboardInterrupt

    @verbs.command()
    def other() -> None: ...

    result = CliRunner().invoke(verbs, ["work"])
    assert (result.exit_code, result.stderr) == (130, "")


def test_checking_blames_a_parameter():
    with pytest.raises(typer.BadParameter, match="x is wrong") as caught, checking("--x"):
        raise ValueError("x is wrong")
    assert caught.value.param_hint == "--x"
    assert explain(OSError(2, "No such file or directory", "a")) == "a: No such file or directory"


@pytest.mark.parametrize("form", ["exact", "onnx", "onnx-exact", "torch"])
def test_export_into_a_missing_folder(model, form, tmp_path):
    out = tmp_path / "none" / "out"
    line = run("export", model, "--format", form, "--out", out)
    assert line == f"error: cannot write {out}: the folder {out.parent} does not exist"
    assert not out.parent.exists()


@pytest.mark.parametrize("form", ["onnx", pytest.param("torch", marks=pytest.mark.slow)])
def test_export_onto_a_full_disk(model, form, tmp_path):
    out = tmp_path / "out"
    line = run_alone("export", model, "--format", form, "--out", out, program=FULL)
    assert line == f"error: {out}: File too large"
    assert sorted(os.listdir(tmp_path)) == ["image.png", "net.safetensors"]


def test_fetching_onto_a_full_disk(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn brings the digits")
    line = run_alone("data", "fetch", "digits", "--data-dir", tmp_path, program=FULL)
    place = tmp_path / "digits"
    assert line.startswith(f"error: cannot store digits in {place}: File too large; choose another folder")
    assert os.listdir(place) in ([], [".lock"])


def test_an_environment_that_asks_for_what_cannot_run(model, monkeypatch, tmp_path):
    line = run_alone("certify", model, tmp_path / "image.png", LINFDIST_ISA="abacus")  # which a process reads once
    assert "LINFDIST_ISA=abacus" in line
    monkeypatch.setenv("LINFDIST_BACKEND", "abacus")
    assert "LINFDIST_BACKEND='abacus'" in run("certify", model, tmp_path / "image.png")


def test_certify_does_not_wait_for_a_fifo(model, tmp_path):
    (tmp_path / "images").mkdir()
    os.mkfifo(tmp_path / "images" / "a.png")
    for path in (tmp_path / "images", tmp_path / "images" / "a.png"):
        assert "a.png is not a regular file" in run("certify", model, path)


def test_certify_refuses_what_it_cannot_show_exactly(model, tmp_path):
    Image.new("I;16", (8, 8)).save(tmp_path / "deep.png")
    assert "deep.png is not gray or RGB with 8 bits per channel" in run("certify", model, tmp_path / "deep.png")
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x2a\0\0\0\0\0\0\0"
    Image.new("L", (8, 8)).save(tmp_path / "exif.jpg", exif=exif)
    assert "exif.jpg has EXIF data that cannot be read" in run("certify", model, tmp_path / "exif.jpg")


def test_a_json_file_that_cannot_be_written(model, tmp_path):
    assert (
        run("certify", model, tmp_path / "image.png", "--json", tmp_path)
        == f"error: cannot write {tmp_path}: it is a folder"
    )


@pytest.mark.parametrize("variable", ["WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_MAX_RESTARTS"])
@pytest.mark.parametrize("text", ["abc", "", "-1", "1.5", "9" * 5000])
def test_what_no_launcher_sets(monkeypatch, tmp_path, variable, text):
    monkeypatch.setenv(variable, text)
    if variable == "LOCAL_WORLD_SIZE":
        with pytest.raises(ValueError, match="must be a whole number, as torchrun sets it; unset it"):
            machine._processes_here()
        return
    said = run("train", "digits-quick", "--out", tmp_path / "run", "--set", "epochs=0.1", "--set", "width=5")
    assert said == f"error: {variable}={text[:40]!r}: must be a whole number, as torchrun sets it; unset it"


def test_ctrl_c_among_the_imports_leaves_without_a_traceback():
    code = """
import sys
from linfdist.cli import main
class Stop:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
main()
"""
    stopped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (stopped.returncode, stopped.stderr) == (130, "")
