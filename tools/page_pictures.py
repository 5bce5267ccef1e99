"""Pictures of the page that `linfdist export --format html` writes, light and dark, for the documentation.

python -m tools.page_pictures PAGE.html docs/images
"""

import argparse
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, expect

from tools.browser import chromium

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
MINUTE = 60_000  # milliseconds


def main() -> None:
    """Write page-light.png and page-dark.png of one image, attacked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="written by `linfdist export MODEL --format html`")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--image", type=int, default=1, help="the number of the test image that is shown")
    parser.add_argument("--width", type=int, default=1180)
    parser.add_argument("--whole", action="store_true", help="the whole page, not its first screen")
    given = parser.parse_args()
    with chromium() as browser:
        for scheme in SCHEMES:
            size = {"width": given.width, "height": 1010}
            page = browser.new_page(viewport={"width": size["width"], "height": size["height"]}, color_scheme=scheme)
            page.goto(given.page.resolve().as_uri())
            show(page, given.image)
            page.screenshot(path=given.folder / f"page-{scheme}.png", full_page=given.whole)


def show(page: Page, image: int) -> None:
    """Step to a test image, and attack it until the attack is over."""
    for _ in range(image - 1):
        page.get_by_role("button", name="Next test image").click()
    page.locator("#attack").click()
    expect(page.locator("#attack")).to_have_text("Attack again", timeout=5 * MINUTE)
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_timeout(1000)


if __name__ == "__main__":
    main()
