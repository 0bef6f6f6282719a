"""The files and commands of ``docs/tutorial.md``."""

from __future__ import annotations

import re
from pathlib import Path

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write_files(folder: Path) -> list[str]:
    """Write each block that begins with the name of a file; return the names."""
    names = []
    for kind, text in BLOCK.findall(TUTORIAL.read_text()):
        if kind:
            name = text.partition("\n")[0].removeprefix("# ")
            (folder / name).write_text(text)
            names.append(name)
    return names


def commands() -> list[list[str]]:
    """Return the commands, in the order of the page, each as its words."""
    blocks = [text for kind, text in BLOCK.findall(TUTORIAL.read_text()) if not kind]
    return [line.split() for text in blocks for line in text.splitlines()]
