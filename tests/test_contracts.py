"""What the layout of the repository promises, beyond what types and lint can say."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "tasks", "ps_runtime", "benchmarks")
CONFIG_ROOM = "ps_runtime/config/"

MAX_FILE_LINES = 400
ENVIRONMENT_NAMES = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def sources() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.AST]:
    """The sources outside the config room, parsed once."""
    return {path: ast.parse(text) for path, text in sources() if not path.startswith(CONFIG_ROOM)}


def uses_of_environment(tree: ast.AST) -> list[int]:
    """Return the lines that touch environment variables: ``os.environ``, ``from os import getenv``, and the like."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ("os", "posix") and node.attr in ENVIRONMENT_NAMES:
                lines.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module in ("os", "posix"):
            lines += [node.lineno for name in node.names if name.name in ENVIRONMENT_NAMES]
        elif isinstance(node, ast.Import):
            lines += [node.lineno for name in node.names if name.name == "os" and name.asname]
    return sorted(lines)


def imports_of(tree: ast.AST, *packages: str) -> list[int]:
    lines = []
    for node in ast.walk(tree):
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        if any(name.split(".")[0] in packages for name in names):
            lines.append(node.lineno)
    return lines


@pytest.mark.process
def test_imports_keep_to_their_contracts():
    lint = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
    done = subprocess.run([sys.executable, "-c", lint], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr  # a process of its own: it silences the loggers there are


def test_environment_variables_are_used_in_the_config_room_only(trees):
    found = [f"{path}:{line}" for path, tree in trees.items() for line in uses_of_environment(tree)]
    assert found == []


def test_yaml_is_read_in_the_config_room_only(trees):
    found = [f"{path}:{line}" for path, tree in trees.items() for line in imports_of(tree, "yaml", "ruamel")]
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["import os\nos.environ['A']", "from os import environ", "import os\nos.getenv('A')", "import os as o\no.environ"],
)
def test_a_use_of_the_environment_would_be_found(text):
    assert uses_of_environment(ast.parse(text))


@pytest.mark.parametrize("text", ["import yaml", "from yaml import safe_load", "def f():\n    import yaml.reader"])
def test_an_import_of_yaml_would_be_found(text):
    assert imports_of(ast.parse(text), "yaml")


def test_a_file_has_one_idea():
    assert [path for path, text in sources() if len(text.splitlines()) > MAX_FILE_LINES] == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "strangers"),
    [
        ("psflow.flows.cli", ["prefect", "mlflow", "dask", "distributed", "numpy", "yaml", "rich", "sklearn"]),
        ("psflow", ["prefect", "mlflow", "dask", "distributed", "pydantic", "yaml", "pandas", "numpy"]),
    ],
)
def test_an_import_stays_light(module, strangers):
    code = f"import sys, {module}; print(*sorted(set({strangers}) & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert done.stdout.split() == []
