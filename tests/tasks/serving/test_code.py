"""Caches of the code of an export, and their invalidation."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from psflow.tasks.exports import code as module
from psflow.tasks.exports.code import ModelFnSource, RequiredCode


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the one file of an engine of which nothing is known yet."""
    (tmp_path / "psflow").mkdir()
    (tmp_path / "psflow" / "__init__.py").touch()
    monkeypatch.setattr(module, "ENGINE_ROOT", tmp_path)
    monkeypatch.setattr(module, "ENTRY_POINTS", ())
    monkeypatch.setattr(module, "_distributions", {})
    return tmp_path / "psflow" / "models.py"


def required(engine: Path, text: str, changed_at_ns: int) -> RequiredCode:
    engine.write_text(text)
    os.utime(engine, ns=(changed_at_ns, changed_at_ns))
    return RequiredCode(ModelFnSource("psflow.models", "line", engine, engine.parents[1]))


def test_a_file_of_the_engine_that_has_changed_is_read_again(engine: Path) -> None:
    assert required(engine, "import numpy", 1).libraries == {"numpy"}
    assert required(engine, "import scipy", 1).libraries == {"numpy"}
    assert required(engine, "import scipy", 2).libraries == {"scipy"}


def test_what_is_installed_is_searched_when_there_is_a_library_that_was_not_found_before(
    engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = {"numpy": ["numpy"]}
    searched: list[int] = []

    def search() -> dict[str, list[str]]:
        searched.append(len(installed))
        return installed

    monkeypatch.setattr(module.metadata, "packages_distributions", search)
    monkeypatch.setattr(module.metadata, "version", lambda name: "1.0")
    for _ in range(2):
        assert required(engine, "import numpy", 1).requirements() == ["numpy==1.0"]
    assert searched == [1]
    assert required(engine, "import numpy, yaml", 2).requirements() == ["numpy==1.0"]
    installed["yaml"] = ["PyYAML"]
    assert required(engine, "import numpy, yaml", 2).requirements() == ["PyYAML==1.0", "numpy==1.0"]
    assert searched == [1, 1, 2]
