"""An exported model has a copy of this room, where there is little else to import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import psflow.ps_runtime.columns

ALLOWED = ("numpy", "psflow.ps_runtime.columns", "psflow.ps_runtime.errors", "psflow.ps_runtime.keys")
FILES = sorted(Path(psflow.ps_runtime.columns.__file__).parent.glob("*.py"))


def imported_at_once(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that are imported with this one: not those of functions, nor those for annotations."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def imported_later(tree: ast.Module) -> set[str]:
    names = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    return names - {*imported_at_once(tree)}


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_little_is_imported_and_pyarrow_only_where_it_is_used(path: Path) -> None:
    tree = ast.parse(path.read_text())
    at_once = {name for name in imported_at_once(tree) if name.partition(".")[0] not in sys.stdlib_module_names}
    assert [name for name in at_once if not name.startswith(ALLOWED)] == []
    assert {name.partition(".")[0] for name in imported_later(tree)} <= {"pyarrow"}
