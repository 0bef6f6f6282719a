from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a directory with nothing in it."""
    monkeypatch.chdir(tmp_path)
