"""The mutants that are tried: a sample that a seed decides, of all that Cosmic Ray can make."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from cosmic_ray.commands.init import init
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, WorkItem

from tests.mutation.rooms import Plan, Room


def draw(plan: Plan, room: Room) -> list[WorkItem]:
    """Return the mutants of `room` that are in the sample; the copy must be the working directory.

    A mutant is in the sample by a hash of the seed and its line, not by its place among all of them: where other
    lines change, the sample stays.
    """
    excluded = re.compile("|".join(plan.excluded_operators))
    with use_db(":memory:", WorkDB.Mode.create) as db:
        init([Path(module) for module in room.modules], db, {})
        items = [item for item in db.work_items if not excluded.match(item.mutations[0].operator_name)]
    return sorted(items, key=lambda item: _rank(plan.seed, item.mutations[0]))[: room.num_mutants]


def _rank(seed: int, mutation: MutationSpec) -> tuple[str, int, str]:
    row, column = mutation.start_pos
    line = mutation.module_path.read_text().splitlines()[row - 1].strip()
    words = (seed, mutation.definition_name, mutation.operator_name, line, column)
    return hashlib.sha256(repr(words).encode()).hexdigest(), mutation.occurrence, str(mutation.module_path)
