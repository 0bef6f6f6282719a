"""The files of ``docs/extending.md``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
BLOCK = re.compile(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES: dict[str, str] = dict(BLOCK.findall(PAGE.read_text()))


def write_project(folder: Path) -> list[float]:
    """Write the files of the page and ``plane.jsonl``; return the label of each row."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    inputs = np.random.default_rng(1).normal(size=(200, 2))
    labels: list[float] = (inputs @ [2.0, -1.0] + 0.5).tolist()
    rows = [{"a": a, "b": b, "y": y} for (a, b), y in zip(inputs.tolist(), labels, strict=True)]
    (folder / "plane.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return labels


def load(name: str) -> ModuleType:
    """Return a module of the page, under its own name: what it defines can be pickled."""
    if name not in sys.modules:
        module = sys.modules[name] = ModuleType(name)
        exec(compile(FILES[f"{name}.py"], f"{name}.py", "exec"), module.__dict__)
    return sys.modules[name]
