"""Follow every internal link of a built site: `python -m tools.links site`, which `make docs` ends with.

A link within the site must lead to a file, and its anchor to an element of that page. Links to other hosts are not
followed. Pages must work when they are opened as files, so a link that starts with a slash is wrong too.
"""

import argparse
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from . import attempt

_LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "iframe": "src", "source": "srcset"}


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the tag names."""
        values = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := values.get(key))}
        if link := values.get(_LINKS.get(tag, "")):
            self.links.append(link.split()[0] if tag == "source" else link)


def broken(site: Path) -> Iterator[str]:
    """Say of each internal link that leads nowhere on which page it is and why."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        raise ValueError(f"{site} holds no pages: build them first")
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            if parts.scheme or parts.netloc or parts.path.startswith("/"):
                yield f"{where}: {link} does not work from the file system"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if target.is_dir():
                yield f"{where}: {link} is a folder, which no browser opens as a page"
            elif not target.is_relative_to(site.resolve()) or not target.is_file():
                yield f"{where}: {link} leads to no file of the site"
            elif parts.fragment and target.suffix == ".html":
                anchors = pages[site / target.relative_to(site.resolve())].anchors
                if unquote(parts.fragment) not in anchors:
                    yield f"{where}: {link} leads to no such place on that page"


def check(site: Path) -> None:
    """Raise ValueError with one line for each broken link."""
    found = list(broken(site))
    if found:
        raise ValueError("\n".join([f"{len(found)} broken links", *found]))
    print(f"all internal links of {site} lead somewhere")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.links", description="Follow the internal links of a site.")
    parser.add_argument("site", type=Path, metavar="DIR", help="the folder of the built pages")
    given = parser.parse_args(arguments)
    return attempt(lambda: check(given.site))


if __name__ == "__main__":
    raise SystemExit(main())
