"""docs/cluster.md: its scripts run, its files are what torchrun and Kubernetes read."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.ops.processes import ROOT

PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")


def block(language):
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def stand_in(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def test_the_slurm_script_gives_torchrun_what_it_needs(tmp_path):
    """With stand-ins for Slurm's commands and variables."""
    stand_in(tmp_path, "srun", '"$@"')
    stand_in(tmp_path, "scontrol", '[ "$*" = "show hostnames node[3-4]" ] && printf "node3\\nnode4\\n"')
    stand_in(tmp_path, "torchrun", 'printf "%s\\n" "$OMP_NUM_THREADS $TORCH_DISABLE_SHARE_RDZV_TCP_STORE" "$@"')
    (tmp_path / "job.sh").write_text(block("bash"))
    given = {"SLURM_JOB_NODELIST": "node[3-4]", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "77"}
    given |= {"SLURM_CPUS_PER_TASK": "64", "SLURM_GPUS_ON_NODE": "8", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run(["bash", tmp_path / "job.sh"], env=given, capture_output=True, text=True, check=True)
    variables, *arguments = result.stdout.splitlines()
    assert variables == "8 1"
    launch = "--nnodes 2 --nproc-per-node 8 --max-restarts 3"
    meet = "--rdzv-backend c10d --rdzv-id 77 --rdzv-endpoint node3:29500"
    train = "-m linfdist train cifar10 --out /shared/cifar10 --quiet --resume"
    assert arguments == shlex.split(f"{launch} {meet} {train}")


def test_the_job_of_kubernetes(monkeypatch):
    """The operator's variables and the container's command, as torchrun itself understands them."""
    yaml = pytest.importorskip("yaml")
    run = pytest.importorskip("torch.distributed.run")
    job = yaml.safe_load(block("yaml"))
    policy, worker = job["spec"]["elasticPolicy"], job["spec"]["pytorchReplicaSpecs"]["Worker"]
    container = worker["template"]["spec"]["containers"][0]
    assert (job["kind"], container["name"]) == ("PyTorchJob", "pytorch")
    assert worker["replicas"] == policy["minReplicas"] == policy["maxReplicas"]
    variables = {  # as Kubeflow's training operator sets them from the policy
        "PET_RDZV_BACKEND": policy["rdzvBackend"],
        "PET_RDZV_ENDPOINT": f"{job['metadata']['name']}-worker-0:23456",
        "PET_NNODES": f"{policy['minReplicas']}:{policy['maxReplicas']}",
        "PET_MAX_RESTARTS": str(policy["maxRestarts"]),
        "PET_NPROC_PER_NODE": job["spec"]["nprocPerNode"],
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert container["env"] == [{"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"}]
    program, *arguments = container["command"]
    assert program == "torchrun"
    config, _, command = run.config_from_args(run.parse_args(arguments))
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node, config.max_restarts) == (8, 8, 8, 3)
    assert (config.rdzv_backend, config.rdzv_endpoint) == ("c10d", "cifar10-worker-0:23456")
    assert command[-len(arguments[2:]) :] == arguments[2:]
    assert "--resume" in command


PROGRAM = """
import json
import sys
from pathlib import Path

import numpy as np

from linfdist import data, recipes
from linfdist.data import store
from linfdist.data.builtin import Content
from linfdist.evaluation.settings import checksum, first_images
from linfdist.training import Trainer


def memory(field):
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in status if line.startswith(field)).split()[1])


def work(dataset):
    trainer = Trainer(recipe, dataset, info)
    for _ in range(10):
        trainer.step()
    checksum(first_images(dataset, len(dataset) // 2))  # as `evaluate` does
    return trainer


folder, images = Path(sys.argv[1]), 16000
info = data.info("tinyimagenet")
recipe = recipes.load("tinyimagenet-mlp").override({"width": 16, "batch_size": 64, "holdout": 100, "epochs": 1})
if len(sys.argv) > 2:  # store noise: in a process of its own, whose memory does not count
    pixels = np.random.default_rng(0).integers(256, size=(images, *info.shape), dtype=np.uint8)
    labels = np.arange(images) % info.num_classes
    content = Content({"train": (pixels, labels), "test": (pixels[:200], labels[:200])}, tuple(map(str, range(200))))
    (folder / info.name).mkdir()
    store.write(folder, info, content, "noise")
else:
    work(data.load(info.name, "test", folder))  # what is taken once, whatever the size of the data
    before = memory("RssAnon"), memory("RssFile")
    trainer = work(data.load(info.name, "train", folder))
    print(json.dumps([memory("RssAnon") - before[0], memory("RssFile") - before[1], images * 3 * 64 * 64]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_data_stay_in_the_file_that_they_are_mapped_from(tmp_path):
    """Loading, holding images out, training and evaluating must not make a copy of the images in any process."""
    command = [sys.executable, "-c", PROGRAM, tmp_path]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    for more in (["store"], []):
        result = subprocess.run([*command, *more], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    own, mapped, size = json.loads(result.stdout)
    assert own < 0.3 * size < 0.9 * size < mapped
