"""One word for a thing: the terms of the field, in the product and in what people read about it.

docs/glossary.md has the words that psflow gives a sense of its own.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OLD = {
    r"\bli(fe|ves)\b": "incarnation; lifetime of an object; alive",
    r"\bbeg[iau]n(s|ning)? again\b": "restart",
    r"\b(go|goes|going|gone|went) back\b|\brecall(s|ed) (the|a) (ps|role|worker|chief)": "roll back",
    r"\btak(e|es|ing|en) note\b|\btook note\b": "record; mark",
    r"\bhave the turn\b|\bhas the turn\b": "ClusterLock",
    r"\blent sessions?\b": "session handoff",
    r"\bown streams?\b": "private stream",
    r"\bblanks?\b": "missing value",
    r"\brecord files?\b": "tabular files",
    r"\bby hand\b": "manually; manual cluster",
    r"\blookalikes?\b": "near-numeric strings",
    r"\bstrangers?\b": "unauthenticated connections",
    r"\bdials?\b": "connect functions",
    r"\blets? go of\b": "abandon; release",
}
NAMES = {
    "Turn",
    "Returning",
    "Departure",
    "OwnStream",
    "LentSession",
    "Life",
    "RoleLife",
    "RunningLife",
    "Cut",
    "Strangers",
}


def product() -> Iterator[Path]:
    for folder in ("flows", "tasks", "ps_runtime", "psflow"):
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if not path.is_symlink())


def pages() -> Iterator[Path]:
    yield ROOT / "README.md"
    yield from (path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts)


@pytest.mark.parametrize("old", OLD)
def test_an_old_word_is_gone(old: str) -> None:
    pattern = re.compile(old, re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in (*product(), *pages())
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == [], f"the field says: {OLD[old]}"


def test_a_class_name_means_one_thing() -> None:
    names = Counter(
        node.name
        for path in product()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name[0] != "_"
    )
    assert {name for name, count in names.items() if count > 1} == set()
    assert NAMES.isdisjoint(names)
