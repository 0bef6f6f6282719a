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


def test_what_pip_has_put_into_a_folder_is_installed_and_what_lies_beside_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "some_body-1.0.dist-info" / "RECORD"  # as `pip install --target` writes it
    record.parent.mkdir()
    record.with_name("METADATA").write_text("Metadata-Version: 2.1\nName: some-body\nVersion: 1.0\n")
    record.write_text("somebody/__init__.py,,\nalone.py,,\n../bin/tool,,\nsome_body-1.0.dist-info/RECORD,,\n")
    (tmp_path / "somebody").mkdir()
    (tmp_path / "somebody" / "__init__.py").touch()  # some versions leave files out of the record that are not there
    (tmp_path / "alone.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert is_installed(tmp_path / "somebody" / "core.py")
    assert is_installed(tmp_path / "alone.py")
    assert not is_installed(tmp_path / "model.py")
    assert not is_installed(tmp_path / "somebody_else.py")


def test_a_checkout_that_is_installed_as_editable_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.egg-info").mkdir()  # as setuptools leaves it beside the code
    (tmp_path / "mine.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (tmp_path / "mine.egg-info" / "SOURCES.txt").write_text("mine/__init__.py\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not is_installed(tmp_path / "mine" / "__init__.py")
