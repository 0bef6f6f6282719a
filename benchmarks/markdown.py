"""Tables of Markdown, and pages with marks for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["markdown_table", "with_tables"]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table.

    Examples
    --------
    >>> print(markdown_table(["case", "steps/s"], [["a", "1"]]))
    | case | steps/s |
    | --- | --- |
    | a | 1 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_tables(page: str, named: Mapping[str, str]) -> str:
    """Return a page with each table put between its two marks, ``<!-- name -->`` and ``<!-- /name -->``."""
    for name, table in named.items():
        head, start, rest = page.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition(f"<!-- /{name} -->")
        if end:
            page = f"{head}{start}\n{table}\n\n{end}{tail}"
    return page
