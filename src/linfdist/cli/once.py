"""Errors under `torchrun`: of all processes of a machine that fail alike, one says why; torchrun's report has it."""

import hashlib
import json
import os
import time
from datetime import timedelta
from pathlib import Path

from torch import distributed

SECONDS = 5.0  # that torchrun's store may take to answer


def first_to_say(topic: str) -> bool:
    """Return whether no other process that `torchrun` has started on this machine has asked this before.

    The processes ask the store of torchrun itself, which outlives them. If it cannot be asked, saying it twice is
    better than never.
    """
    env = os.environ
    if "TORCHELASTIC_RUN_ID" not in env or env.get("LOCAL_WORLD_SIZE") == "1":
        return True
    attempt = f"{env['TORCHELASTIC_RUN_ID']}/{env.get('GROUP_RANK')}/{env.get('TORCHELASTIC_RESTART_COUNT')}"
    key = f"linfdist/{attempt}/{hashlib.sha256(topic.encode()).hexdigest()}"
    try:
        address, port = env["MASTER_ADDR"], int(env["MASTER_PORT"])
        store = distributed.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=SECONDS))  # type: ignore[attr-defined]
        return bool(store.add(key, 1) == 1)
    except (AttributeError, KeyError, RuntimeError, ValueError):
        return True


def tell_launcher(text: str) -> None:
    """Leave the reason where `torchrun` looks for it, for its report of what has failed first."""
    place = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not place or Path(place).exists():
        return
    reason = {"message": {"message": text, "extraInfo": {"timestamp": str(int(time.time()))}}}
    try:
        Path(place).write_text(json.dumps(reason), encoding="utf-8")
    except OSError:
        return  # the reason is told on stderr in any case
