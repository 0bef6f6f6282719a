"""Modules of a user in a folder of their own, which a test writes, imports, edits and reloads."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

__all__ = ["Program", "writing_modules"]

Program = Callable[[Mapping[str, str]], ModuleType]


def writing_modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """Yield what writes files of modules, imports or reloads them, and returns the first module."""
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(texts: Mapping[str, str]) -> ModuleType:
        for path, text in texts.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)
        importlib.invalidate_caches()
        names = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in texts]
        modules = [importlib.reload(sys.modules[n]) if n in sys.modules else importlib.import_module(n) for n in names]
        return modules[0]

    yield write
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
