"""docs/cluster.md: its scripts run, its files are what torchrun and Kubernetes read, its numbers are the tools'."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.processes import ROOT
from tools import cluster_model

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


def test_the_model_is_on_the_page():
    assert cluster_model.tables() in PAGE


def test_the_paper_counts_the_same_weights():
    """Table 1 of the paper, in millions."""
    counted = {name: cluster_model.Network.of(name).weights / 1e6 for name in ("mnist", "mnist-mlp", "cifar10-mlp")}
    assert counted == pytest.approx({"mnist": 82.7, "mnist-mlp": 85.3, "cifar10-mlp": 123}, abs=0.3)


def test_averaging_costs_nothing_alone_and_never_less_on_a_slower_network():
    network = cluster_model.Network.of("cifar10")
    alone = cluster_model.Cluster("1", 1, 1, cluster_model.PCIE, 1, 0)
    assert cluster_model.step(network, alone, 0.1, grows=False).apart == pytest.approx(0.1)
    rates = [cluster_model.gigabits(rate) for rate in (100, 400)]
    slow, fast = (cluster_model.Cluster("", 8, 8, cluster_model.NVLINK, rate, 0) for rate in rates)
    assert slow.ring(network.gradient) > 2 * fast.ring(network.gradient)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_data_stay_in_the_file_that_they_are_mapped_from():
    """Loading, holding images out, training and evaluating must not make a copy of the images in any process."""
    command = [sys.executable, "-m", "tools.footprint", "--processes", "1", "--images", "16000", "--json"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=Path(ROOT), env=env, capture_output=True, text=True, check=True)
    found = json.loads(result.stdout)
    (process,) = found["processes"]
    own = process["after"]["own"] - process["before"]["own"]
    mapped = process["after"]["mapped"] - process["before"]["mapped"]
    assert own < 0.6 * found["data"] < mapped, found
