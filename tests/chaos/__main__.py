"""Runs trials for some minutes, or one of them again: the command behind ``make chaos``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest

from psflow.ps_runtime.cluster.fork_server import start_fork_server
from tests.chaos.report import report
from tests.chaos.running import Outcome, run_trial
from tests.chaos.schedule import schedule, trial_at
from tests.chaos.trials import Trial
from tests.leak_guard import no_leaks


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="of the schedule")
    parser.add_argument("--minutes", type=float, help="no trial begins after that")
    parser.add_argument("--trial", type=int, help="run this trial of the schedule alone")
    arguments = parser.parse_args()
    if (arguments.minutes is None) == (arguments.trial is None):
        parser.error("expected either --minutes or --trial")
    with tempfile.TemporaryDirectory(prefix="psflow-chaos-") as own:
        os.environ["TMPDIR"] = tempfile.tempdir = own  # so that what is left there is of these trials
        start_fork_server()
        if arguments.trial is not None:
            outcomes = {arguments.trial: _run(arguments.trial, trial_at(arguments.seed, arguments.trial))}
        else:
            outcomes = _run_all(arguments.seed, 60 * arguments.minutes)
            print(report(arguments.seed, outcomes))
    return 1 if any(outcome.violations for outcome in outcomes.values()) else 0


def _run_all(seed: int, secs: float) -> dict[int, Outcome]:
    ends, outcomes = time.monotonic() + secs, dict[int, Outcome]()
    for number, trial in enumerate(schedule(seed), start=1):
        if time.monotonic() >= ends:
            break
        outcomes[number] = _run(number, trial)
    return outcomes


def _run(number: int, trial: Trial) -> Outcome:
    """Run a trial, and look for what it leaves behind."""
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp())
    outcome = Outcome(trial)
    try:
        with no_leaks():
            outcome = run_trial(trial, directory)
    except pytest.fail.Exception as leak:
        outcome.violations.append(str(leak))
    shutil.rmtree(directory)
    found = "; ".join(outcome.violations) or ("held" if outcome.has_hit else "missed its phase")
    print(f"{number}: {trial}: {found}, {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
