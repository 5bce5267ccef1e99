"""What only the repository needs, and no wheel holds: pages and pictures, the study, additions to the zoo, the soak.

Run from the root of the repository: `python -m tools.pages` (or `make pages`), `python -m tools.study RUN...`,
`python -m tools.zoo_add RUN NAME`, `python -m tools.times NAME RUN...`, `python -m tools.theory`,
`python -m tools.tabular`, `python -m tools.page_pictures`, `python -m tools.proved NETWORK`,
`python -m tools.peers DATA`, `python -m tools.links SITE`, `python -m tools.tutorials`,
`python -m tools.undefended DATA`, `python -m tools.soak` (or `make soak`), `python -m tools.gpu_table`,
`python -m tools.on_gpu` (or `make test-gpu`), `python -m tools.fingerprint NETWORK...`, `python -m tools.mutation`,
`python -m tools.verifiers KIT NAME=PYTHON...`.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from linfdist.errors import LinfdistError

ROOT = Path(__file__).parents[1]


def attempt(work: Callable[[], None]) -> int:
    """Do it, and return the exit code; what a person can have caused is told on one line."""
    try:
        work()
    except KeyboardInterrupt:
        print("stopped; the same command resumes", file=sys.stderr)
        return 130
    except (LinfdistError, ImportError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
