"""What `make mutate` changes and runs, as ``rooms.toml`` says."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Room:
    """Modules, how many mutants of them are tried, and the tests that are to notice; paths below the checkout."""

    name: str
    num_mutants: int
    modules: tuple[str, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Which mutants are tried in which rooms, and how many of them must be killed."""

    seed: int
    min_killed_percent: float
    excluded_operators: tuple[str, ...]
    rooms: tuple[Room, ...]


def read_plan(root: Path = ROOT) -> Plan:
    """Read ``rooms.toml``; a module that one room names, and another only matches, belongs to the first."""
    facts = tomllib.loads(Path(__file__).with_name("rooms.toml").read_text())
    named = {pattern for room in facts["rooms"] for pattern in room["modules"] if "*" not in pattern}
    rooms = tuple(_room(root, room, named) for room in facts["rooms"])
    return Plan(facts["seed"], facts["min_killed_percent"], tuple(facts["excluded_operators"]), rooms)


def areas_without_room(plan: Plan, root: Path = ROOT) -> list[str]:
    """Return the files of conformance that no room runs; the index has no area of its own."""
    files = {path.relative_to(root).as_posix() for path in root.glob("tests/conformance/test_*.py")}
    return sorted(files - {test for room in plan.rooms for test in room.tests} - {"tests/conformance/test_index.py"})


def _room(root: Path, facts: dict[str, Any], named: set[str]) -> Room:
    modules: list[str] = []
    for pattern in facts["modules"]:
        found = [path.relative_to(root).as_posix() for path in sorted(root.glob(pattern)) if path.stat().st_size]
        modules += [module for module in found if module == pattern or module not in named]
        if not found:
            raise ValueError(f"rooms.toml names {pattern}, but {root} has no such file; name its new place")
    for test in facts["tests"]:
        if not (root / test).exists():
            raise ValueError(f"rooms.toml names {test}, but {root} has no such file; name its new place")
    return Room(facts["name"], facts["num_mutants"], tuple(modules), tuple(facts["tests"]))
