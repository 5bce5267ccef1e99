"""`torchrun` launchers with a rendezvous, two of them standing for two machines: killed, stopped, misused."""

import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest
from torch import distributed

from tests.ops.processes import ROOT

from .runs import AS_TEXT, FINISHED, files, metrics, same_bits, start, tensors, tiny, train

pytestmark = [
    pytest.mark.skipif(not distributed.is_gloo_available(), reason="torch was built without gloo"),
    pytest.mark.timeout(1800),  # nothing here waits for less: a busy machine takes as long as it takes
]

# The command line. Each process notes its id and its first step; checkpoints at every step. At step 7, the process
# DIE_RANK is killed, once (torchrun's count of restarts is no help: it is that of a launcher, not of the job), and with
# HOLD every process notes that it waits, until there is a note to go on.
PROGRAM = """
import functools, os, pathlib, signal, time
from linfdist import training
from linfdist.cli import main

env = os.environ
training.train = functools.partial(training.train, checkpoint_seconds=0)  # the verb imports it when it is called
pathlib.Path(env["NOTES"], "rank" + env.get("RANK", "0")).write_text(str(os.getpid()))
step, begun = training.Trainer.step, []

def held_or_deadly(self, state=None):
    died, go = (pathlib.Path(env["NOTES"], name) for name in ("died", "go"))
    if not begun:
        begun.append(self.done)
        pathlib.Path(env["NOTES"], f"begins{self.done}").touch()
    if self.done == 7 and env.get("DIE_RANK") == env["RANK"] and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if self.done == 7 and "HOLD" in env:
        pathlib.Path(env["NOTES"], "held" + env["RANK"]).touch()
        while not go.exists():
            time.sleep(0.02)
    return step(self, state)

training.Trainer.step = held_or_deadly
main()
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Job:
    """Launchers that meet at one place."""

    def __init__(self, folder, data, port, **environment):
        self.folder, self.data, self.port = folder, data, port
        self.notes = folder / "notes"
        self.notes.mkdir(exist_ok=True)
        (folder / "program.py").write_text(PROGRAM)
        self.environment = {"NOTES": str(self.notes), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **environment}

    def launch(self, *options, out="run", more=(), processes=1):
        """Start a launcher, as on one of two machines."""
        torchrun = ("-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", str(processes),
                    "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}", *options)  # fmt: skip
        places = ("--data-dir", str(self.data), "--out", str(self.folder / out))
        command = (str(self.folder / "program.py"), "train", "digits-quick", *AS_TEXT, "--quiet", *places, *more)
        return start(*torchrun, *command, **self.environment)

    def process(self, rank):
        """The process id of a worker."""
        return int((self.notes / f"rank{rank}").read_text())

    def checkpoint(self, out="run"):
        return self.folder / out / "checkpoint.safetensors"

    def begins(self):
        """The steps at which processes have begun."""
        return {int(path.name.removeprefix("begins")) for path in self.notes.glob("begins*")}

    def meets(self):
        """Whether a launcher has opened the place where they meet."""
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def job(digits, tmp_path):
    running = []

    def job(**environment):
        made = Job(tmp_path, digits, free_port(), **environment)
        launch = made.launch
        made.launch = lambda *given, **more: running.append(launch(*given, **more)) or running[-1]
        return made

    yield job
    for process in running:
        if process.poll() is None:
            process.terminate()  # not kill: a launcher takes its processes with it
            process.communicate(timeout=60)


def finish(*processes, good=True):
    """The outputs and errors of all; each must end well, or none may."""
    texts = [process.communicate() for process in processes]
    assert all((process.returncode == 0) == good for process in processes), texts
    return texts


def wait_for(condition, *processes):
    while not condition():
        assert all(process.poll() is None for process in processes), [process.communicate() for process in processes]
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_process_is_replaced(job, tmp_path):
    """All processes of both launchers are started again, and continue from the last checkpoint."""
    disturbed = job(DIE_RANK="1")
    nodes = [disturbed.launch("--max-restarts", "1", more=["--resume"]) for _ in range(2)]
    (_, errors), (_, more) = finish(*nodes)
    assert disturbed.begins() == {0, 7}
    assert "another process of this job is gone" in errors + more
    assert "torchrun starts it again: it continues from the last checkpoint" in errors + more
    assert files(tmp_path / "run") == FINISHED
    one = train(tiny(), tmp_path / "one", data_dir=disturbed.data, quiet=True)
    assert metrics(tmp_path / "run")[0]["loss"] == pytest.approx(metrics(one)[0]["loss"], rel=1e-3)  # float32


@pytest.mark.slow
def test_the_bits_of_an_undisturbed_run(job, tmp_path):
    """Two machines of two processes each; one process of the second is killed, and all four are started again."""
    disturbed = job(DIE_RANK="3")
    finish(*(disturbed.launch("--max-restarts", "2", processes=2, more=["--resume"]) for _ in range(2)))
    assert disturbed.begins() == {0, 7}
    finish(*(disturbed.launch(processes=2, out="whole") for _ in range(2)))
    assert same_bits(tensors(tmp_path / "run"), tensors(tmp_path / "whole"))
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    assert files(tmp_path / "run") == FINISHED


@pytest.mark.slow
def test_a_machine_dies_and_comes_back(job, tmp_path):
    """The other launcher waits for one that joins; the run continues, and has the bits of an undisturbed one."""
    made = job(HOLD="1")
    first = made.launch("--max-restarts", "3", more=["--resume"])
    wait_for(made.meets, first)  # it must be the first that opens it: with the machine that does, the job is lost
    second = made.launch("--max-restarts", "3", more=["--resume"])
    wait_for(lambda: all((made.notes / f"held{rank}").exists() for rank in range(2)), first, second)
    assert made.checkpoint().exists()
    workers = [made.process(rank) for rank in range(2)]
    (its,) = [pid for pid in workers if int(Path(f"/proc/{pid}/stat").read_text().split()[3]) == second.pid]
    second.kill()
    os.kill(its, signal.SIGKILL)  # too: nothing runs on a machine without power
    second.communicate()
    (made.notes / "go").touch()
    again = made.launch("--max-restarts", "3", more=["--resume"])
    finish(first, again)
    assert made.begins() == {0, 7}
    finish(*(made.launch(out="whole") for _ in range(2)))
    assert same_bits(tensors(tmp_path / "run"), tensors(tmp_path / "whole"))


@pytest.mark.slow
def test_ctrl_c_on_one_machine_stops_both_with_a_checkpoint(job):
    made = job()
    nodes = [made.launch(more=["--set", "epochs=1000000"]) for _ in range(2)]  # it ends by Ctrl-C alone
    wait_for(made.checkpoint().exists, *nodes)
    nodes[1].send_signal(signal.SIGINT)  # to the launcher, which passes it on
    texts = finish(*nodes, good=False)
    assert sum(errors.count("--resume continues from here") for _, errors in texts) >= 1
    assert made.checkpoint().exists()


@pytest.mark.slow
def test_misuse_is_told_once_a_machine(job, tmp_path):
    made = job()
    (_, errors), (_, more) = finish(*(made.launch("--max-restarts", "1", processes=2) for _ in range(2)), good=False)
    text = "error: torchrun --max-restarts 1 needs --resume: processes that are started again must continue"
    for each in (errors, more):
        assert each.splitlines().count(text) in (1, 2)  # once in each of two attempts, if there were two
    texts = finish(made.launch(more=["--set", "width=12"]), made.launch(more=["--set", "width=14"]), good=False)
    assert all("width of the recipe is 1" in errors for _, errors in texts)
    # torchrun's own report has the reason too, except where the other machine took the meeting place with it first.
    reported = ["traceback : error: the processes of this job differ" in errors for _, errors in texts]
    assert any(reported)
    assert all(told or "RendezvousConnectionError" in errors for told, (_, errors) in zip(reported, texts, strict=True))


@pytest.mark.slow
def test_the_job_of_the_page(digits, tmp_path):
    """The command of docs/cluster.md for Kubernetes, with the variables that its operator sets, for two pods."""
    yaml = pytest.importorskip("yaml")
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8"), re.DOTALL)
    job = yaml.safe_load(text)["spec"]
    container = job["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    here = {"cifar10": "digits-quick", "/shared/cifar10": str(tmp_path / "run"), "/shared/data": str(digits)}
    command = [here.get(word, word) for word in container["command"][1:]] + AS_TEXT
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    variables |= {"PET_RDZV_BACKEND": job["elasticPolicy"]["rdzvBackend"], "PET_NNODES": "2:2"}
    variables |= {"PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}", "PET_NPROC_PER_NODE": "1"}
    variables |= {"PET_MAX_RESTARTS": str(job["elasticPolicy"]["maxRestarts"])}
    finish(*(start("-m", "torch.distributed.run", *command, **variables) for _ in range(2)))
    assert files(tmp_path / "run") == FINISHED
