"""The launcher of the examples: it shows what all roles write, ends with them, and leaves none of them behind."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.limits import HANG_SECS

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples"
ROLE = """
import fcntl, json, os, signal, subprocess, sys

def write(text):
    print(text, flush=True)

place = json.loads(os.environ["TF_CONFIG"])
kind = place["task"]["type"]
alive = open("alive")
fcntl.flock(alive, fcntl.LOCK_SH)
"""
WAITS = 'write("ready"); signal.pause()\n'
LEAVES_A_CHILD = """
child = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
subprocess.Popen([sys.executable, "-c", child], pass_fds=[alive.fileno()])
"""
IS_STUBBORN = """
    signal.signal(signal.SIGTERM, lambda *_: write("not now"))
    open("told", "w").close()
    while True:
        signal.pause()
"""

Launch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Return what starts the launcher with a program of a few lines, whose processes hold the lock of a file."""
    launchers: list[subprocess.Popen[str]] = []
    (tmp_path / "alive").touch()
    os.mkfifo(tmp_path / "told")  # from one role to another

    def start(program: str, *arguments: str, options: tuple[str, ...] = ("--workers", "0")) -> subprocess.Popen[str]:
        (tmp_path / "program.py").write_text(ROLE + program)
        command = [sys.executable, str(EXAMPLES / "run_dist.py"), *options, "program.py", *arguments]
        launchers.append(
            subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return launchers[-1]

    yield start
    for launcher in launchers:
        launcher.terminate()
        launcher.communicate()


def end_of(launcher: subprocess.Popen[str], directory: Path) -> tuple[int, list[str], str]:
    """Wait until nothing of a launch is left; return exit code, lines in order of roles, and errors."""
    out, err = launcher.communicate(timeout=HANG_SECS)
    with open(directory / "alive") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)  # waits for ever if a process is left
    return launcher.returncode, sorted(out.splitlines()), err


def test_each_role_is_told_its_place_and_its_lines_have_its_name(launch: Launch, tmp_path: Path) -> None:
    program = 'print(json.dumps([place, sys.argv[1:]]))\nsys.stderr.write("the end")'
    code, lines, _ = end_of(launch(program, "--ps", "7", options=("--workers", "1")), tmp_path)
    told = {role: text for role, _, text in (line.partition(": ") for line in lines) if text != "the end"}
    roles = ["chief-0", "evaluator-0", "ps-0", "worker-0"]
    assert (code, list(told), len(lines)) == (0, roles, 8)
    places, arguments = zip(*map(json.loads, told.values()), strict=True)
    assert [f"{place['task']['type']}-{place['task']['index']}" for place in places] == roles
    assert arguments == (["--ps", "7"],) * 4
    clusters = [place["cluster"] for place in places]
    assert clusters == [clusters[0]] * 4
    assert {kind: len(addresses) for kind, addresses in clusters[0].items()} == {"ps": 1, "worker": 1, "chief": 1}
    assert len({address for addresses in clusters[0].values() for address in addresses}) == 3


def test_older_programs_get_flags(launch: Launch, tmp_path: Path) -> None:
    program = 'print(json.dumps([place["cluster"], sys.argv[1:]]))'
    code, lines, _ = end_of(launch(program, "x", options=("--host-flags", "--ps", "2", "--workers", "0")), tmp_path)
    assert code == 0
    for line in lines:
        role, _, told = line.partition(": ")
        kind, _, index = role.partition("-")
        cluster, flags = json.loads(told)
        hosts = ["--ps-hosts", ";".join(cluster["ps"]), "--worker-hosts", "", "--chief-hosts", *cluster["chief"]]
        assert flags == ["x", *hosts, "--worker-type", kind, "--worker-index", index]
    assert len(lines) == 4


@pytest.mark.parametrize("kinds", [["ps", "worker", "worker"], ["evaluator", "ps", "worker", "worker"]])
def test_programs_whose_first_worker_is_the_chief_get_other_flags(
    kinds: list[str], launch: Launch, tmp_path: Path
) -> None:
    options = ("--job-flags", "--workers", "1", *(() if "evaluator" in kinds else ("--no-evaluator",)))
    code, lines, _ = end_of(launch("print(json.dumps([place, sys.argv[1:]]))", "x", options=options), tmp_path)
    assert code == 0
    assert [line.partition("-")[0] for line in lines] == kinds
    for line in lines:
        place, flags = json.loads(line.partition(": ")[2])
        hosts = place["cluster"]
        assert list(hosts) == ["ps", "worker"]
        assert [len(addresses) for addresses in hosts.values()] == [1, 2]
        kind, index = place["task"]["type"], place["task"]["index"]
        assert line.startswith(f"{kind}-{index}: ")
        given = ["--ps_hosts", *hosts["ps"], "--worker_hosts", ",".join(hosts["worker"])]
        assert flags == ["x", *given, "--job_name", kind, "--task_index", str(index)]


@pytest.mark.parametrize(
    ("failure", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL)]
)
@pytest.mark.timeout(HANG_SECS)
def test_the_first_failure_ends_the_others_and_what_they_have_started(
    failure: str, code: int, launch: Launch, tmp_path: Path
) -> None:
    program = (
        LEAVES_A_CHILD
        + f'if kind == "chief":\n    open("told").read(); {failure}\nif kind == "ps":{IS_STUBBORN}\n{WAITS}'
    )
    found = end_of(launch(program, options=("--workers", "0", "--grace-secs", "0.05")), tmp_path)
    assert found[0] == code
    assert "ps-0: not now" in found[1]
    assert found[2] == f"run_dist: chief-0 ended with exit code {code}\n"


@pytest.mark.timeout(HANG_SECS)
def test_what_a_role_leaves_behind_ends_with_it(launch: Launch, tmp_path: Path) -> None:
    assert end_of(launch(LEAVES_A_CHILD), tmp_path) == (0, [], "")


@pytest.mark.timeout(HANG_SECS)
def test_after_a_failure_others_may_end_by_themselves(launch: Launch, tmp_path: Path) -> None:
    program = 'if kind == "chief":\n    sys.exit(4)\nif kind == "ps":\n    open("told").read(); write("bye")\n'
    launcher = launch(program, options=("--workers", "0", "--grace-secs", "60"))
    assert launcher.stderr is not None
    assert launcher.stderr.readline() == "run_dist: chief-0 ended with exit code 4\n"
    (tmp_path / "told").write_text("end")
    assert end_of(launcher, tmp_path) == (4, ["ps-0: bye"], "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.timeout(HANG_SECS)
def test_a_signal_ends_all(number: signal.Signals, launch: Launch, tmp_path: Path) -> None:
    launcher = launch(WAITS)
    assert launcher.stdout is not None
    ready = sorted(launcher.stdout.readline() for _ in range(3))
    assert ready == ["chief-0: ready\n", "evaluator-0: ready\n", "ps-0: ready\n"]
    launcher.send_signal(number)
    assert end_of(launcher, tmp_path) == (128 + number, [], f"run_dist: {number.name}, ending all roles\n")


@pytest.mark.timeout(HANG_SECS)
def test_where_nobody_reads_any_more_all_end(launch: Launch, tmp_path: Path) -> None:
    launcher = launch('import time\nwhile True:\n    write("more"); time.sleep(0.02)\n')
    assert launcher.stdout is not None
    assert launcher.stderr is not None
    launcher.stdout.readline()
    launcher.stdout.close()
    assert launcher.stderr.read() == "run_dist: SIGPIPE, ending all roles\n"
    assert launcher.wait() == 128 + signal.SIGPIPE
    with open(tmp_path / "alive") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)  # waits for ever if a process is left


@pytest.mark.timeout(HANG_SECS)
def test_where_nobody_reads_errors_either_all_end_in_order(launch: Launch, tmp_path: Path) -> None:
    program = f"""
def leave(number, frame):
    write("bye")
    open(f"{{kind}} left", "w").close()
    sys.exit()

signal.signal(signal.SIGTERM, leave)
if kind == "chief":
    write("ready"); open("told").read(); write("more")
{WAITS}"""
    launcher = launch(program)
    assert launcher.stdout is not None
    assert launcher.stderr is not None
    ready = [launcher.stdout.readline() for _ in range(3)]
    assert len(set(ready)) == 3
    launcher.stdout.close()
    launcher.stderr.close()
    (tmp_path / "told").write_text("nobody reads")
    assert launcher.wait() == 128 + signal.SIGPIPE
    assert sorted(path.name for path in tmp_path.glob("* left")) == ["chief left", "evaluator left", "ps left"]


def test_an_address_is_free_for_its_role_alone(launch: Launch, tmp_path: Path) -> None:
    program = """
import socket
port = int(place["cluster"]["chief"][0].rpartition(":")[2])
if kind == "evaluator":
    try:
        socket.socket().bind(("127.0.0.1", port))  # as the system does for who has no port yet
    except OSError as error:
        print(error.strerror)
if kind == "chief":
    print(socket.create_server(("127.0.0.1", port)).getsockname()[1] == port)
"""
    assert end_of(launch(program), tmp_path) == (0, ["chief-0: True", "evaluator-0: Address already in use"], "")


@pytest.mark.parametrize(
    ("program", "arguments", "remedy"),
    [
        ("run_dist", ["program.py"], "end programs that use ports, or start fewer roles"),
        ("coordinator", [], "end programs that use ports"),
    ],
)
def test_without_free_ports_nothing_starts(program: str, arguments: list[str], remedy: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").touch()
    bind = "def bind(self, address):\n    raise OSError(98, 'Address already in use')\n"
    code = f"import runpy, socket, sys\n{bind}socket.socket.bind = bind\nsys.argv = {[program, *arguments]}\n"
    path = str(EXAMPLES / f"{program}.py")
    command = [sys.executable, "-c", f"{code}runpy.run_path({path!r}, run_name='__main__')"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    words = "expected 4 free ports on this machine, found fewer: Address already in use"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{program}: {words}; {remedy}\n")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (("--ps", "0"), "expected 1 ps or more and 0 workers or more, got 0 and 2"),
        (("--workers", "-1"), "expected 1 ps or more and 0 workers or more, got 1 and -1"),
        (("--grace-secs", "nan"), "--grace-secs should be 0 or more, got nan"),
        (("--job-flags", "--host-flags"), "argument --host-flags: not allowed with argument --job-flags"),
        (("other.py",), "no such file: other.py; name the Python program to run"),
    ],
)
def test_what_is_refused(options: tuple[str, ...], fault: str, launch: Launch, tmp_path: Path) -> None:
    code, lines, said = end_of(launch("", options=options), tmp_path)
    assert (code, lines, said.splitlines()[-1]) == (2, [], f"run_dist.py: error: {fault}")
