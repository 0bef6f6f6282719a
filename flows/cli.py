"""The ``psflow`` command line: registers the commands, prints their answers and sets the exit codes."""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any, NoReturn, TextIO

import typer

from psflow.flows.commands.inspect import bench, clean, config, diff, doctor, scale, status
from psflow.flows.commands.servers import down, role, serve, up
from psflow.flows.commands.training import evaluate, export, init, pipeline, plan, predict, train
from psflow.flows.output import Answer, ExitCode, exit_codes_text, signalled
from psflow.flows.stopping.watchdog import Watchdog, write_now
from psflow.ps_runtime.collector import freeze_after_rests
from psflow.ps_runtime.deadline import stop_clock
from psflow.ps_runtime.errors import PsflowError, UsageError
from psflow.ps_runtime.redaction import public, redact_logs, without_secrets

EPILOG = exit_codes_text()
LEFT_TO_RECORD = "the next psflow command records what Prefect or MLflow did not store in time"

app = typer.Typer(
    help="Estimator-style parameter-server training on Dask, scheduled by Prefect, recorded in MLflow.",
    epilog=EPILOG,
    rich_markup_mode=None,  # importing rich would take longer than everything else
    pretty_exceptions_enable=False,
)

for command in (
    init,
    train,
    evaluate,
    export,
    predict,
    pipeline,
    serve,
    up,
    down,
    status,
    scale,
    plan,
    config,
    diff,
    doctor,
    clean,
    bench,
):
    app.command(epilog=EPILOG)(command)
app.command(epilog=EPILOG, context_settings={"allow_interspersed_args": False})(role)  # later options are the program's


def _on_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Record a signal, then raise it: class creation may replace an exception raised in it with another error."""
    stop_clock.begin(signal.Signals(number))
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(ExitCode.TERMINATED)


def main() -> NoReturn:
    """Run the command line of this process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)
    arguments = sys.argv[1:]
    sys.path.insert(0, os.getcwd())  # user modules may be here, too
    answer = _reserve_stdout() if "--json" in arguments and arguments[0] != "role" else None  # of its program
    Watchdog(stop_clock, partial(_report_end, arguments, answer)).start()
    freeze_after_rests()  # else the first collection scans all of Prefect, and the next ones all of MLflow
    exit_code = run(arguments, answer)
    _end_helpers()
    gc.freeze()  # else the collector scans all imported modules at exit, for seconds
    sys.exit(exit_code)


def run(arguments: Sequence[str], answer: TextIO | None = None) -> int:
    """Run a command, and return its exit code."""
    redact_logs()
    outcome = _attempt(arguments)
    if outcome.error is not None:
        print(f"psflow: {outcome.error[1]}", file=sys.stderr)
    if answer is not None and outcome.facts is not None:
        print(json.dumps(_finite(outcome.facts)), file=answer, flush=True)
    elif outcome.answer is not None:
        for line in _lines(outcome.answer.facts) if outcome.answer.lines is None else outcome.answer.lines:
            print(line)
    if outcome.exit_code == ExitCode.INCOMPLETE:
        print(f"psflow: {ExitCode.INCOMPLETE.meaning}", file=sys.stderr)
    return outcome.exit_code


def _report_end(arguments: Sequence[str], answer: TextIO | None, exit_code: int) -> None:
    """Report a command that the watchdog ends, as `run` does, but without blocking."""
    outcome = _ended(arguments, exit_code)
    assert outcome.error is not None
    write_now(2, f"psflow: {outcome.error[1]}; {LEFT_TO_RECORD}\n")
    if answer is not None:
        write_now(answer.fileno(), json.dumps(outcome.facts) + "\n")


def _end_helpers() -> None:
    """End helper processes of multiprocessing, which would otherwise outlive this process for a moment."""
    if "multiprocessing.forkserver" in sys.modules:
        from psflow.ps_runtime.cluster.fork_server import stop_fork_server

        stop_fork_server()
    module = sys.modules.get("multiprocessing.resource_tracker")
    if module is not None:
        module._resource_tracker._stop()


@dataclass(frozen=True, slots=True)
class _Outcome:
    exit_code: int
    answer: Answer | None = None
    error: tuple[str, str] | None = None
    """Type and message."""

    @property
    def facts(self) -> Mapping[str, Any] | None:
        if self.error is not None:
            return {"error": dict(zip(("type", "message"), self.error, strict=True))}
        return None if self.answer is None else self.answer.facts


def _attempt(arguments: Sequence[str]) -> _Outcome:
    try:
        result = app(list(arguments), prog_name="psflow", standalone_mode=False)
    except typer.TyperException as error:
        message = f"{error.format_message()}\nTry 'psflow --help'."
        return _Outcome(ExitCode.USAGE, error=("UsageError", message))
    except SystemExit as error:
        return _ended(arguments, error.code if isinstance(error.code, int) else ExitCode.FAILED)
    except Exception as error:
        return _failed(arguments, error)
    if isinstance(result, int):
        return _ended(arguments, result)
    answer = result if isinstance(result, Answer) else Answer(result)
    return _Outcome(answer.exit_code, answer if answer.has_password else _public(answer))


def _public(answer: Answer) -> Answer:
    """Return an answer without credentials in its addresses and paths."""
    lines = answer.lines if answer.lines is None else [without_secrets(line) for line in answer.lines]
    return replace(answer, facts=public(answer.facts), lines=lines)


def _failed(arguments: Sequence[str], error: Exception) -> _Outcome:
    """Return the outcome of a failed command; errors of psflow are shown without a traceback."""
    if stop_clock.received is not None:
        return _ended(arguments, 128 + stop_clock.received)
    if not isinstance(error, PsflowError):
        print(without_secrets("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    exit_code = ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.FAILED
    return _Outcome(exit_code, error=(type(error).__name__, without_secrets(str(error))))


def _ended(arguments: Sequence[str], exit_code: int) -> _Outcome:
    """Return the outcome of a command without a result: help, or a signal."""
    purpose = "serve again" if "serve" in arguments[:1] else "resume"
    words: dict[int, tuple[str, str] | None] = {
        ExitCode.INTERRUPTED: ("KeyboardInterrupt", signalled(ExitCode.INTERRUPTED, purpose)),
        ExitCode.TERMINATED: ("SystemExit", signalled(ExitCode.TERMINATED, purpose)),
        ExitCode.OK: None,
    }
    return _Outcome(exit_code, error=words.get(exit_code, ("SystemExit", f"ended with exit code {exit_code}")))


def _reserve_stdout() -> TextIO:
    """Reserve standard output for the answer; all other writers, children included, now write to stderr.

    This lasts until the process ends: libraries also write when the interpreter exits.
    """
    sys.stdout.flush()
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return answer


def _finite(value: Any) -> Any:
    """Return `value` with null for each NaN and infinity, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _lines(facts: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _lines(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix + key:<32} {', '.join(map(str, value)) or 'none'}"
        else:
            yield f"{prefix + key:<32} {value}"


if __name__ == "__main__":
    main()
