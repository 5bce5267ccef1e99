"""Which device is chosen. GPUs are made up here: the decision needs none, and there is none to ask."""

import pytest
import torch
from typer.testing import CliRunner

import linfdist as ld
from linfdist.cli import app, options
from linfdist.ops import machine
from linfdist.ops.machine import DeviceError, Gpu


@pytest.fixture
def with_gpus(monkeypatch):
    """A machine with some GPUs, on the first few of which a fast backend works."""

    def make(count, fast, kind="cuda", processes=1, local=0):
        states = [("triton", ()) if k < fast else ("", ("triton: not installed",)) for k in range(count)]
        made = [Gpu(torch.device(kind, k), f"GPU {k}", "sm_86", 24 << 30, *state) for k, state in enumerate(states)]
        monkeypatch.setattr(machine, "gpus", lambda: made)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
        monkeypatch.setenv("LOCAL_RANK", str(local))

    return make


@pytest.mark.parametrize(
    ("count", "fast", "asked", "chosen"),
    [
        (0, 0, "auto", "cpu"),
        (1, 0, "auto", "cpu"),  # a GPU without a fast backend would be slower than the CPU
        (1, 1, "auto", "cuda:0"),
        (2, 2, "cuda", "cuda:0"),
        (2, 2, "cuda:1", "cuda:1"),
        (1, 0, "cuda", "cuda:0"),  # who asks for it gets it
        (2, 2, "cpu", "cpu"),
    ],
)
def test_the_choice(with_gpus, count, fast, asked, chosen):
    with_gpus(count, fast)
    assert machine.choose_device(asked) == torch.device(chosen)
    if asked != "auto":
        assert machine.choose_device(torch.device(asked)) == torch.device(chosen)


def test_each_process_takes_its_own(with_gpus):
    for local in range(2):
        with_gpus(2, 2, processes=2, local=local)
        assert machine.choose_device("cuda") == machine.choose_device() == torch.device("cuda", local)
        assert machine.choose_device(torch.device("cuda", local)) == torch.device("cuda", local)  # chosen before
    with pytest.raises(DeviceError, match=r"'cuda:0': names one device for the 2 processes of this machine: say cuda"):
        machine.choose_device("cuda:0")
    with_gpus(2, 2, processes=4)
    for asked in ("cuda", "auto"):
        with pytest.raises(DeviceError, match=r"4 processes were started .* has 2 GPUs: .*--nproc-per-node 2"):
            machine.choose_device(asked)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("cuda:2", r"'cuda:2': there is no such one here; there is cpu, cuda:0, cuda:1"),
        ("gpu", r"'gpu': must be cpu, cuda, cuda:K or auto; there is cpu, cuda:0, cuda:1"),
        ("mps", r"'mps': there is none here, torch .* finds no mps; there is cpu, cuda:0, cuda:1"),
        ("meta", "computes nothing"),
    ],
)
def test_what_is_not_there(with_gpus, asked, message):
    with_gpus(2, 2)
    with pytest.raises(DeviceError, match=message):
        machine.choose_device(asked)


def test_a_forced_backend_decides(monkeypatch):
    """For real, on the CPU: what can run there is asked, and the reference never counts as fast."""
    cpu = torch.device("cpu")
    monkeypatch.setenv("LINFDIST_BACKEND", "reference")
    name, reasons = machine.backend_for(cpu)
    assert name == ""
    assert "LINFDIST_BACKEND=reference rules native out" in reasons


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("verb", ["train digits-quick", "evaluate mnist-0.3", "certify mnist-0.3 x.png", "bench"])
def test_the_command_line_says_what_is_missing(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.png").write_bytes(b"")
    result = CliRunner().invoke(app, [*verb.split(), "--device", "cuda"])
    assert result.exit_code == 2
    assert "--device" in result.output
    assert "there is none here, torch" in result.output
    assert "there is cpu" in result.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_python_says_what_is_missing():
    with pytest.raises(DeviceError, match="there is cpu"):
        ld.train("digits-quick", torch.rand(20, 8, 8), torch.arange(20) % 2, device="cuda")


def test_info_shows_gpus_and_what_they_lack(with_gpus, monkeypatch):
    with_gpus(2, 1)
    monkeypatch.setattr(machine, "_gpu", lambda device: machine.gpus()[device.index])
    text = " ".join(CliRunner().invoke(app, ["info"], env={"COLUMNS": "200"}).output.split())
    assert "cuda:0 GPU 0, sm_86, 24.0 GiB: triton" in text
    assert "cuda:1 GPU 1, sm_86, 24.0 GiB: only the slow reference backend (triton: not installed)" in text
    assert "commands compute on cuda:0 (GPU 0)" in text
    with_gpus(1, 0, kind="mps")
    text = " ".join(CliRunner().invoke(app, ["info"], env={"COLUMNS": "300"}).output.split())
    assert "certificates need float64: certify on the CPU (--device cpu)" in text
    assert "commands compute on cpu" in text


def test_the_choice_is_printed_where_there_is_one(with_gpus, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with_gpus(0, 0)
    assert options.chosen_device("auto") == torch.device("cpu")
    with_gpus(1, 0)
    said = []
    monkeypatch.setattr(options, "say", lambda text, error: said.append(text))
    options.chosen_device("auto")
    options.chosen_device("cpu")
    assert said == ["device: cpu; not used: cuda:0 (GPU 0), because triton: not installed", "device: cpu"]
