"""An evaluation by two launchers, which stand for two machines; one of their processes is killed in the middle."""

import os
import socket
import subprocess
import sys

import pytest
from torch import distributed

from linfdist import cli
from linfdist.evaluation import Shard

from .files import names, read, same_results

# The command line; the process with rank 2 is killed after its second batch, once. Every batch that is done is noted.
PROGRAM = r"""
import os, pathlib, signal
from linfdist.cli import main
from linfdist.evaluation import gallery, settings as part

gallery.ROUNDS = 1
notes, add = pathlib.Path(os.environ["NOTES"]), part.Part.add

def adding(self, batch, done):
    add(self, batch, done)
    with open(notes / "batches", "a") as file:
        file.write(f"{batch}\n")
    if os.environ["RANK"] == "2" and len(self.done) == 2 and not (notes / "died").exists():
        (notes / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)

part.Part.add = adding
main()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not distributed.is_available(), reason="torch was built without torchrun")
def test_every_image_once(run, digits, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "program.py").write_text(PROGRAM)
    torchrun = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", "--max-restarts", "2"]
    torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    options = ["--data-dir", str(digits), "--attack", "pgd", "--batch", "25", "--out"]
    command = [sys.executable, *torchrun, str(tmp_path / "program.py"), "evaluate", str(run), *options]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "NOTES": str(tmp_path)}
    both = [
        subprocess.Popen([*command, str(tmp_path / "many")], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    texts = [process.communicate(timeout=250) for process in both]
    assert [process.returncode for process in both] == [0, 0], texts
    assert (tmp_path / "died").exists()
    batches = sorted(map(int, (tmp_path / "batches").read_text().split()))
    assert batches == list(range(18))  # none twice: what the killed process had done was kept
    assert not names(tmp_path / "many") & {f"rows{shard.suffix}.jsonl" for shard in Shard(1, 4).all}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RANK", "WORLD_SIZE"):
            patch.delenv(name, raising=False)
        cli.app(["evaluate", str(run), *options, str(tmp_path / "one")], standalone_mode=False)
    same_results(tmp_path / "one", tmp_path / "many")
    assert [row["index"] for row in read(tmp_path / "many")[0]] == list(range(450))
