"""Runs trials for some minutes, or one of them again: the command behind ``make chaos``."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from psflow.ps_runtime.cluster.fork_server import start_fork_server
from psflow.ps_runtime.config.environment import prepare_environment
from psflow.ps_runtime.errors import PsflowError
from tests.chaos.around import run_around
from tests.chaos.disk import begin_with_own_mounts
from tests.chaos.outcome import Outcome
from tests.chaos.report import report
from tests.chaos.running import run_roles
from tests.chaos.schedule import schedule, trial_at
from tests.chaos.trials import Fault, Trial, name_of
from tests.leak_guard import no_leaks


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="of the schedule")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes", type=float, help="no trial begins after that")
    length.add_argument("--trials", type=int, help="the first so many trials of the schedule, however long they take")
    length.add_argument("--trial", type=int, help="run this trial of the schedule alone")
    faults = [name_of(fault) for fault in Fault]
    parser.add_argument("--fault", choices=faults, help="with --minutes or --trials: of these, those with this fault")
    arguments = parser.parse_args()
    begin_with_own_mounts("tests.chaos", sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="psflow-chaos-") as own:
        os.environ["TMPDIR"] = tempfile.tempdir = own  # so that what is left there is of these trials
        start_fork_server()
        if arguments.trial is not None:
            outcomes = {arguments.trial: _run(arguments.trial, trial_at(arguments.seed, arguments.trial))}
        else:
            ends = math.inf if arguments.minutes is None else time.monotonic() + 60 * arguments.minutes
            outcomes = _run_all(islice(schedule(arguments.seed), arguments.trials), ends, arguments.fault)
            print(report(arguments.seed, outcomes))
    return 1 if any(outcome.violations for outcome in outcomes.values()) else 0


def _run_all(trials: Iterable[Trial], ends: float, fault: str | None) -> dict[int, Outcome]:
    outcomes = dict[int, Outcome]()
    for number, trial in enumerate(trials, start=1):
        if time.monotonic() >= ends:
            break
        if fault is None or name_of(trial.fault) == fault:
            outcomes[number] = _run(number, trial)
    return outcomes


def _run(number: int, trial: Trial) -> Outcome:
    """Run a trial, and look for what it leaves behind."""
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp())
    outcome = Outcome(trial)
    try:
        runner = _runner_of(trial)
        with no_leaks():
            outcome = runner(trial, directory)
    except pytest.fail.Exception as leak:
        outcome.violations.append(str(leak))
    except (PsflowError, OSError) as error:  # a scene that does not come up: the other trials go on
        outcome.violations.append(f"{type(error).__name__}: {error}")
    shutil.rmtree(directory)
    found = "; ".join(outcome.violations) or ("held" if outcome.has_hit else "missed its phase")
    print(f"{number}: {trial}: {found}, {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
    return outcome


def _runner_of(trial: Trial) -> Callable[[Trial, Path], Outcome]:
    if trial.target.is_server:
        return _beside()
    return run_around if trial.target.is_around else run_roles


@cache
def _beside() -> Callable[[Trial, Path], Outcome]:
    """Return what runs trials of servers. It loads MLflow and Prefect, which takes seconds, and makes new databases."""
    prepare_environment()
    from tests.chaos.servers import run_beside
    from tests.new_databases import share_among_workers

    share_among_workers(Path(tempfile.gettempdir()) / "new")
    return run_beside


if __name__ == "__main__":
    sys.exit(main())
