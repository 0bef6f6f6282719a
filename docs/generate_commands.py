"""Writes docs/commands.md from the command line itself: python docs/generate_commands.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from psflow.flows.cli import app
from psflow.flows.output import ExitCode

PAGE = Path(__file__).with_name("commands.md")
HEAD = """# Commands

Generated from the command line by `docs/generate_commands.py`; the `--help` of each says the same. `--json` prints
one JSON object as the last line of stdout, and everything else to stderr.

`psflow --install-completion` lets the shell complete commands and options; `--show-completion` shows what it would
install.
"""


def commands() -> str:
    """Return the page."""
    return "\n".join([HEAD, *_exit_codes(), *(line for command in _commands() for line in _section(command))])


def _commands() -> list[Any]:
    group: Any = get_command(app)
    return list(group.commands.values())


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield "| code | means |\n|---|---|"
    for code in ExitCode:
        yield f"| {code.value} | {code.meaning} |"
    yield ""


def _section(command: Any) -> Iterator[str]:
    yield f"## psflow {command.name}\n"
    yield f"{command.help}\n"
    yield "| | default | |\n|---|---|---|"
    for parameter in command.params:
        yield f"| {_name(parameter)} | {_default(parameter)} | {_cell(parameter.help or '')} |"
    yield ""


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_cell(parameter.metavar or parameter.name.upper())}`"
    option = max(parameter.opts, key=len)
    return f"`{option}`" if parameter.is_flag else f"`{option} {_cell(parameter.metavar or 'VALUE')}`"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if parameter.default in (None, False) or callable(parameter.default):
        return ""
    return f"`{parameter.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(commands())
