"""Start each role of a program as a separate process on this machine, and show their output.

Run as ``python examples/run_dist.py PROGRAM [ARGUMENT ...]``. PROGRAM calls ``train_and_evaluate``, and TF_CONFIG gives
each process its role. Options precede PROGRAM: ``--ps`` and ``--workers`` are the numbers of these roles beside a chief
and an evaluator. Older programs read flags; ``--host-flags`` and ``--job-flags`` pass them, too::

    python examples/run_dist.py --host-flags examples/migrated/roles.py
    python examples/run_dist.py --job-flags --no-evaluator examples/migrated/sigmoid.py

It ends once all roles have ended. The first failure ends the other roles, and determines the exit code.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TextIO, assert_never

GRACE_SECS = 5.0
LAST_LINES_SECS = 1.0
"""Time for the last output of a role that has ended."""
OWN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Line:
    """A line of a role's output."""

    role: str
    text: str


@dataclass(frozen=True)
class Ended:
    """A role whose process has ended, and waits to be reaped."""

    role: str


@dataclass(frozen=True)
class Signalled:
    """A signal to this process."""

    number: int


Events = SimpleQueue[Line | Ended | Signalled]
Cluster = Mapping[str, list[str]]
Process = subprocess.Popen[str]


def main() -> int:
    """Run the program; return the exit code."""
    options = parse_arguments()
    with ExitStack() as reserved:
        return run(options, reserved_addresses(1 + options.ps + options.workers, reserved))


def run(options: argparse.Namespace, addresses: list[str]) -> int:
    """Run all roles of the program at these addresses; return the exit code."""
    chief, *others = addresses
    cluster = {"ps": others[: options.ps], "worker": others[options.ps :], "chief": [chief]}
    if options.job_flags:  # the first worker is the chief
        cluster = {"ps": cluster["ps"], "worker": [chief, *cluster["worker"]]}
    events: Events = SimpleQueue()
    for number in OWN_SIGNALS:  # the handlers do not raise, so no started process is missed
        signal.signal(number, lambda number, _: events.put(Signalled(number)))
    processes: dict[str, Process] = {}
    try:
        for kind, addresses in (cluster if options.no_evaluator else {**cluster, "evaluator": [""]}).items():
            for index in range(len(addresses)):
                command = [sys.executable, options.program, *options.arguments]
                if options.host_flags:
                    command += host_flags(cluster, kind, index)
                if options.job_flags:
                    command += job_flags(cluster, kind, index)
                processes[f"{kind}-{index}"] = start(command, cluster, kind, index)
        for role, process in processes.items():
            Thread(target=follow, args=(role, process, events), daemon=True).start()
        return watch(processes, events, options.grace_secs)
    finally:
        for process in processes.values():
            if process.returncode is None:
                send(process, signal.SIGKILL)
                process.wait()


def parse_arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description="Start each role of a program as a separate process.")
    parser.add_argument("--ps", type=int, default=1, help="number of parameter servers, at least 1")
    parser.add_argument("--workers", type=int, default=2, help="number of workers beside the chief")
    parser.add_argument("--no-evaluator", action="store_true", help="start no evaluator")
    flags = parser.add_mutually_exclusive_group()
    flags.add_argument(
        "--job-flags",
        action="store_true",
        help="also pass --ps_hosts, --worker_hosts, --job_name and --task_index; worker 0 is then the chief",
    )
    flags.add_argument(
        "--host-flags",
        action="store_true",
        help="also pass --ps-hosts, --worker-hosts, --chief-hosts, --worker-type and --worker-index",
    )
    parser.add_argument(
        "--grace-secs",
        type=float,
        default=GRACE_SECS,
        help="time of the other roles to end after a failure, and again after SIGTERM",
    )
    parser.add_argument("program", help="Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to the program unchanged")
    options = parser.parse_args()
    if options.ps < 1 or options.workers < 0:
        parser.error(f"expected 1 ps or more and 0 workers or more, got {options.ps} and {options.workers}")
    if not options.grace_secs >= 0:
        parser.error(f"--grace-secs should be 0 or more, got {options.grace_secs}")
    if not Path(options.program).is_file():
        parser.error(f"no such file: {options.program}; name the Python program to run")
    return options


def reserved_addresses(num: int, reserved: ExitStack) -> list[str]:
    """Return addresses for roles on this machine; the system gives them to no other process meanwhile."""
    holders = [reserved.enter_context(socket.socket()) for _ in range(num)]
    for holder in holders:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # roles set it, too, so they may listen
        try:
            holder.bind(("127.0.0.1", 0))
        except OSError as error:
            why = f"expected {num} free ports on this machine, found fewer: {error.strerror}"
            sys.exit(f"run_dist: {why}; end programs that use ports, or start fewer roles")
    return [f"localhost:{holder.getsockname()[1]}" for holder in holders]


def host_flags(cluster: Cluster, kind: str, index: int) -> list[str]:
    """Return the flags that give older programs their role."""
    hosts = [part for name, addresses in cluster.items() for part in (f"--{name}-hosts", ";".join(addresses))]
    return [*hosts, "--worker-type", kind, "--worker-index", str(index)]


def job_flags(cluster: Cluster, kind: str, index: int) -> list[str]:
    """Return the flags of programs whose first worker is the chief."""
    hosts = [part for name, addresses in cluster.items() for part in (f"--{name}_hosts", ",".join(addresses))]
    return [*hosts, "--job_name", kind, "--task_index", str(index)]


def start(command: list[str], cluster: Cluster, kind: str, index: int) -> Process:
    """Start a process of a role in its own process group, so that Ctrl-C reaches only this process."""
    tf_config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
    return subprocess.Popen(
        command,
        env=os.environ | {"TF_CONFIG": tf_config, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def follow(role: str, process: Process, events: Events) -> None:
    """Forward the output and the end of a role; kill the processes that it has left."""
    reader = Thread(target=read_lines, args=(role, process, events), daemon=True)
    reader.start()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # the id stays in use until the process is reaped
    send(process, signal.SIGKILL)
    reader.join(LAST_LINES_SECS)
    events.put(Ended(role))


def read_lines(role: str, process: Process, events: Events) -> None:
    """Forward each line of a role's output."""
    assert process.stdout is not None
    for text in process.stdout:
        events.put(Line(role, text.rstrip("\n")))


def watch(processes: Mapping[str, Process], events: Events, grace_secs: float) -> int:
    """Show the output of roles until all have ended; return the first exit code that is not 0.

    Roles get SIGTERM after the grace time of a failure, or at once after a signal; SIGKILL follows.
    """
    living, first_code = set(processes), 0
    measures, deadline = [signal.SIGTERM, signal.SIGKILL], None
    while living:
        try:
            event = events.get(timeout=None if deadline is None else max(0, deadline - time.monotonic()))
        except Empty:
            measure = measures.pop(0)
            for role in living:
                send(processes[role], measure)
            deadline = time.monotonic() + grace_secs if measures else None
            continue
        match event:
            case Line():
                say(f"{event.role}: {event.text}", sys.stdout, events)
            case Ended(role):
                living.remove(role)
                code = shell_code(processes[role].wait())
                if code and not first_code:
                    say(f"run_dist: {role} ended with exit code {code}", sys.stderr, events)
                    first_code, deadline = code, time.monotonic() + grace_secs
            case Signalled(signal.SIGPIPE) if first_code:  # all roles are ending, within their grace time
                pass
            case Signalled(number):
                say(f"run_dist: {signal.Signals(number).name}, ending all roles", sys.stderr, events)
                first_code = first_code or shell_code(-number)
                deadline = time.monotonic() if measures else None
            case _:
                assert_never(event)
    return first_code


def say(text: str, stream: TextIO, events: Events) -> None:
    """Print a line; a closed pipe, as with ``| head``, ends all roles like a signal."""
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        events.put(Signalled(signal.SIGPIPE))


def send(process: Process, number: int) -> None:
    """Send a signal to a process that has not been reaped, and to its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def shell_code(returncode: int) -> int:
    """Return the exit code of a process as in a shell: 128 plus the number of a signal."""
    return returncode if returncode >= 0 else 128 - returncode


if __name__ == "__main__":
    sys.exit(main())
