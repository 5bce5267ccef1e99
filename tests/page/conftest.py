"""A real browser: Debian's Chromium, driven by Playwright. Without it, tests are skipped with the reason."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from linfdist import data, exact, load
from linfdist.exact import FrozenNet
from linfdist.export.html import page as page_text


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright", reason="pip install playwright, which drives the browser")
    from tools.browser import NoBrowser, chromium

    try:
        with chromium() as running:
            yield running
    except NoBrowser as error:
        pytest.skip(str(error))


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a page from its file, as a person would; at the end nothing may have failed or asked for anything."""
    contexts, faults = [], []

    def opening(text: str, **options: Any) -> Any:
        (tmp_path / "page.html").write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": 1280, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: message.type == "error" and faults.append(message.text))
        page.on("dialog", lambda dialog: faults.append(f"a dialog: {dialog.message}"))
        page.on("request", lambda asked: asked.url.startswith(("file:", "data:", "blob:")) or faults.append(asked.url))
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_selector("#page:not([hidden])")
        return page

    yield opening
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture(scope="session")
def frozen() -> FrozenNet:
    """The zoo's MNIST network in integers."""
    return exact.freeze(load("mnist-0.3"))


@pytest.fixture(scope="session")
def mnist() -> data.Dataset:
    try:
        return data.load("mnist", "test")
    except data.DataError as error:
        pytest.skip(f"MNIST cannot be had: {error}")


@pytest.fixture(scope="session")
def mnist_page(frozen: FrozenNet, mnist: data.Dataset) -> str:
    return page_text(frozen, "mnist-0.3", mnist.classes, mnist, "0.3")
