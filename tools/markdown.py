"""Markdown for generated pages: tables, and what stands between two markers."""

from collections.abc import Mapping, Sequence

from linfdist.experiments.tables.layout import TextTable


def markdown(headings: Sequence[str], lines: Sequence[Sequence[str]], words: int) -> str:
    """Write a table whose first `words` columns hold words, the others numbers."""
    rule = ["---" if k < words else "--:" for k in range(len(headings))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, rule, *lines))


def as_markdown(comparison: TextTable) -> str:
    """Write a table without its title."""
    return markdown(comparison.headings, comparison.lines, comparison.words)


def fill(text: str, blocks: Mapping[str, str], file: str = "README.md") -> str:
    """Put each block between its two markers; ValueError if the text has not one of each, in order."""
    for name, block in blocks.items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed or begin in rest or end in after or end in before:
            raise ValueError(f"{file} must have one line {begin} and below it one line {end}")
        text = f"{before}{begin}\n{block}{chr(10) if block else ''}{end}{after}"
    return text
