"""The page of commands is what the command line says of itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from psflow.flows.output import ExitCode

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_of_commands_is_what_is_generated() -> None:
    spec = importlib.util.spec_from_file_location("generate_commands", DOCS / "generate_commands.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (DOCS / "commands.md").read_text()
    assert page == module.commands(), "run python docs/generate_commands.py"
    assert all(f"| {code.value} | {code.meaning} |" in page for code in ExitCode)
