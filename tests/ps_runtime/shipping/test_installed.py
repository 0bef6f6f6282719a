from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.shipping.installed import is_installed


def test_libraries_are_installed() -> None:
    assert is_installed(Path(np.__file__))
    assert is_installed(Path(json.__file__))


def test_files_of_the_user_are_not(tmp_path: Path) -> None:
    assert not is_installed(tmp_path / "model.py")
    assert not is_installed(Path(__file__))


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_libraries_of_another_environment_are_installed(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "lib" / folder / "somebody" / "__init__.py"
    assert not is_installed(library)
    monkeypatch.syspath_prepend(str(library.parents[1]))
    assert is_installed(library)
