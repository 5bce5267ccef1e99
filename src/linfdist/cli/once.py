"""Errors under `torchrun`: of all processes of a machine that fail alike, one says why; torchrun's report has it."""

import hashlib
import json
import os
import time
from pathlib import Path


def first_to_say(topic: str) -> bool:
    """Return whether no other process that `torchrun` has started on this machine has asked this before.

    Torchrun gives each process a file for its error, in a folder of this machine, job and attempt.
    """
    place = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not place:
        return True
    which = f"{os.environ.get('MASTER_PORT')} {topic}"  # the port changes when processes are started again
    try:
        Path(place).parent.with_name(f"said-{hashlib.sha256(which.encode()).hexdigest()[:16]}").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True  # better twice than never
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
