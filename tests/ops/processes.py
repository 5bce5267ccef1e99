"""Fresh interpreters: for what is read once per process, and for what must not be inherited."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python(*arguments: str, timeout: float = 240, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Runs python in the project's root; an environment variable of value None is removed."""
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=ROOT,
        env={name: value for name, value in env.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
