"""Tries a sample of mutants, and updates ``docs/mutation.md``: the command behind ``make mutate``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from cosmic_ray.work_item import WorkItem

from tests.mutation.copies import copy_checkout
from tests.mutation.outcomes import Outcome
from tests.mutation.page import killed_percent, unexplained, untried, updated
from tests.mutation.rooms import ROOT, Plan, Room, areas_without_room, read_plan
from tests.mutation.running import measure, try_all
from tests.mutation.sample import draw

NUM_COPIES = 2
SCRATCH = ROOT / "runs" / "mutate"
PAGE = ROOT / "docs" / "mutation.md"


def main() -> int:
    """Run the command; return its exit code."""
    plan = read_plan()
    names = [room.name for room in plan.rooms]
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"{', '.join(names)}; all of them by default")
    chosen = parser.parse_args().rooms or names
    if unknown := sorted({*chosen} - {*names}):
        parser.error(f"there is no room {', '.join(unknown)}; expected some of {', '.join(names)}")
    copies = [SCRATCH / f"copy-{i}" for i in range(NUM_COPIES)]
    copy_checkout(ROOT, copies[0])
    os.chdir(copies[0])  # mutants are of the copy: the checkout may change meanwhile
    rooms = [room for room in plan.rooms if room.name in chosen]
    timeouts = {room: 20 + 4 * measure(room, copies[0]) for room in rooms}
    for copy in copies[1:]:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(copies[0], copy, symlinks=True)
    for room in rooms:
        start = time.monotonic()
        outcomes = _try(room, draw(plan, room), copies, timeouts[room])
        num_survivors = sum(not outcome.is_killed for outcome in outcomes)
        secs = time.monotonic() - start
        print(f"{room.name}: {num_survivors} of {len(outcomes)} mutants survive, {secs:.0f} s", flush=True)
        PAGE.write_text(updated(PAGE.read_text(), outcomes, names))
    return _verdict(PAGE.read_text(), plan)


def _try(room: Room, items: list[WorkItem], copies: list[Path], timeout_secs: float) -> list[Outcome]:
    parts = [items[i :: len(copies)] for i in range(len(copies))]
    with ThreadPoolExecutor(len(copies)) as pool:
        return list(chain(*pool.map(lambda part, copy: try_all(room, part, copy, timeout_secs), parts, copies)))


def _verdict(page: str, plan: Plan) -> int:
    percent, rest = killed_percent(page), unexplained(page)
    missing = untried(page, [room.name for room in plan.rooms])
    print(f"{percent:.1f} % of the mutants are killed; expected at least {plan.min_killed_percent} %")
    for mutant in rest:
        print(f"docs/mutation.md does not explain why this mutant survives; write a test or the reason: {mutant}")
    if missing:
        print(f"docs/mutation.md has no figures for {', '.join(missing)}; run make mutate for them")
    areas = areas_without_room(plan)
    if areas:
        print(f"rooms.toml has no room for {', '.join(areas)}; add one of 20 mutants for each")
    return 1 if rest or missing or areas or percent < plan.min_killed_percent else 0


if __name__ == "__main__":
    sys.exit(main())
