"""Everything importable is ``psflow.*``: a user's own ``tasks.py`` or ``flows/`` meets nothing of the same name."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("flows", "tasks", "ps_runtime")
PROGRAM = re.compile(r"(?:^|[;\n])\s*(?:from|import) (flows|tasks|ps_runtime)\b")
BARE = re.compile(r"(?<!psflow\.)\b(flows|tasks|ps_runtime)\b")
NAME = re.compile(r"(?!.*\.py$)(flows|tasks|ps_runtime)(\.[a-z_]\w*)+(:\w+)?")


def bare_names(text: str) -> list[str]:
    """Return what a file imports, or names in a string, as if a room of psflow were a package at the top."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)) if BARE.search(text) else ():
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in ROOMS]
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] in ROOMS:
            found.append(str(node.module))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value] * bool(NAME.fullmatch(node.value) or PROGRAM.search(node.value))
    return found


def python_files() -> Iterator[Path]:
    for folder in (*ROOMS, "benchmarks", "examples", "docs", "tests"):
        yield from (ROOT / folder).rglob("*.py")
    yield from (ROOT / "psflow").glob("*.py")


def test_nothing_imports_a_room_by_its_bare_name() -> None:
    files = [path for path in python_files() if path != Path(__file__)]
    assert len(files) > 400
    assert {str(path): names for path in files if (names := bare_names(path.read_text()))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import flows.cli",
        "def f():\n    from tasks import plots",
        "from ps_runtime.errors import UsageError as E",
        "setattr('flows.train.invoke', None)",
        "run('import sys, json; from tasks.plots import draw')",
    ],
)
def test_a_bare_name_would_be_found(text: str) -> None:
    assert bare_names(text)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git would check out, its links as links."""
    path = tmp_path_factory.mktemp("checkout") / "psflow"
    path.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, path)
    for name in (*ROOMS, "psflow", "conf", "examples", "tests"):
        shutil.copytree(ROOT / name, path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return path


def build(checkout: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """Build a wheel with what is installed here: nothing is downloaded."""
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation"]
    command = [*pip, "--disable-pip-version-check", "--wheel-dir", str(into), str(checkout)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


@pytest.mark.process
def test_a_wheel_holds_every_module_once_and_nothing_beside_psflow(checkout: Path, tmp_path: Path) -> None:
    done = build(checkout, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = tmp_path.glob("psflow-*.whl")
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    own = {f"psflow/{path.relative_to(ROOT)}" for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    own |= {f"psflow/{path.name}" for path in (ROOT / "psflow").glob("*.py*")} | {"psflow/py.typed"}
    assert sorted(names) == sorted(own)


@pytest.mark.process
def test_a_checkout_without_links_is_not_built(checkout: Path, tmp_path: Path) -> None:
    broken = tmp_path / "checkout"
    shutil.copytree(checkout, broken, symlinks=True, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    (broken / "psflow" / "tasks").unlink()
    (broken / "psflow" / "tasks").write_text("../tasks")  # as git leaves a link where it cannot make one
    done = build(broken, tmp_path / "wheels")
    assert done.returncode == 1
    assert "psflow/tasks does not lead to the folder tasks/: this checkout has no symbolic links" in done.stderr
    assert not list(tmp_path.glob("wheels/*"))
