"""A Chromium without a screen, for tests and pictures of pages. Needs playwright, and Chromium on the machine."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
# As root, and without requests of Chromium's own to anywhere.
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


class NoBrowser(RuntimeError):
    """There is no Chromium on this machine."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the machine's own Chromium; `NoBrowser` says what to install."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise NoBrowser("no Chromium on this machine: install it, on Debian by `apt-get install chromium`")
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=found, args=FLAGS)
        try:
            yield running
        finally:
            running.close()
