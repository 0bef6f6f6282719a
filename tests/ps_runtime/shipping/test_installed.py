from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.shipping.own_modules import is_installed


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


def put_by_pip(folder: Path, *files: str, encoding: str = "utf-8") -> None:
    """Leave the files of a library, and the record of them, as ``pip install --target`` does."""
    info = folder / "some_body-1.0.dist-info"
    for name in (*files, f"{info.name}/RECORD"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    text = "".join(f"{name},sha256=c0de,7\n" for name in (*files, "../bin/tool", f"{info.name}/RECORD"))
    (info / "RECORD").write_text(text, encoding)


def test_what_pip_has_put_into_a_folder_is_installed_and_what_lies_beside_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_by_pip(tmp_path, "somebody/__init__.py", "somebody/data/table.csv", "alone.py", "bin/tool", "__init__.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert is_installed(tmp_path / "somebody" / "core.py")
    assert is_installed(tmp_path / "alone.py")
    assert not is_installed(tmp_path / "model.py")
    assert not is_installed(tmp_path / "somebody_else.py")
    assert not is_installed(tmp_path / "bin" / "train.py")


def test_files_of_the_user_in_a_namespace_that_they_share_with_a_library_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_by_pip(tmp_path, "shared/lib/__init__.py", "shared/one.py", "shared/deep/two.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert all(is_installed(tmp_path / "shared" / name) for name in ("lib/core.py", "one.py", "deep/two.py"))
    assert not any(is_installed(tmp_path / "shared" / name) for name in ("mine.py", "deep/mine.py", "own/__init__.py"))


def test_a_record_is_read_whatever_its_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_by_pip(tmp_path, "somebody/__init__.py", "somebody/caf\u00e9.txt", encoding="latin-1")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert is_installed(tmp_path / "somebody" / "core.py")
    assert not is_installed(tmp_path / "model.py")


def test_a_checkout_that_is_installed_as_editable_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.egg-info").mkdir()  # as setuptools leaves it beside the code
    (tmp_path / "mine.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (tmp_path / "mine.egg-info" / "SOURCES.txt").write_text("mine/__init__.py\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not is_installed(tmp_path / "mine" / "__init__.py")
