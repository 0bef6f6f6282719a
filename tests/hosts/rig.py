"""Hosts on this machine: each with its own network, name, /tmp, /dev/shm, IPC and processes, at one switch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.hosts.switch import TUN, Link, hardware_address

__all__ = ["ROOT", "Rig", "RigHost", "hosts_on_a_switch", "why_no_rig"]

ROOT = Path(__file__).parents[2]
PROGRAMS = ("ip", "unshare", "nsenter", "setpriv")
ALONE = (
    *("setpriv", "--pdeathsig", "KILL"),  # with this process all hosts end, however it does
    *("unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--propagation", "private"),
)
ADDRESS = "10.213.78.{}"
BOOT = """
own=$1 name=$2; shift 2
hostname "$name"
ip link set lo up
mount -t tmpfs tmpfs "$own"
cat /proc/sys/kernel/random/uuid > "$own/boot_id"
for path; do mkdir -p "$own$path"; mount --bind "$path" "$own$path"; done
mount -t proc proc /proc
mount --bind "$own/boot_id" /proc/sys/kernel/random/boot_id
mount --bind "$HOSTS_FILE" /etc/hosts
for place in /tmp /dev/shm; do mkdir -p "$own$place"; mount --rbind "$own$place" "$place"; chmod 1777 "$place"; done
echo ready
exec sleep infinity
"""
"""What the first process of a host does: the paths after its name are the disk that all hosts share."""
SWITCH = """
ip link add switch type bridge
ip link set switch up
echo ready
exec sleep infinity
"""


@dataclass(frozen=True)
class RigHost:
    """A host, by its first process: once that is killed, the kernel ends all others of the host."""

    name: str
    address: str
    holder: subprocess.Popen[str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def command(self, *command: str) -> list[str]:
        """Return a command that runs `command` there."""
        return ["nsenter", "--target", str(_init_of(self.holder)), "--all", "--wd", "--", *command]

    def start(self, *command: str, directory: Path, log: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a process there, in `directory` and with a home of this host; what it says is in the file `log`."""
        home = {"HOME": "/tmp", "PYTHONPATH": str(ROOT)}
        words = self.command("sh", "-c", 'cd "$0" && exec "$@"', str(directory), *command)
        with open(directory / log, "ab") as out:
            process = subprocess.Popen(words, env={**os.environ, **home, **variables}, stdout=out, stderr=out)
        self.processes.append(process)
        return process

    def kill(self) -> None:
        """Kill all processes of the host at once."""
        self.holder.kill()
        for process in (self.holder, *self.processes):
            process.wait()


@dataclass(frozen=True)
class Rig:
    """The hosts, and the switch that they are connected to."""

    hosts: Sequence[RigHost]
    switch: subprocess.Popen[str]

    def at_switch(self, *command: str) -> list[str]:
        """Return a command that runs `command` in the switch."""
        return ["nsenter", "--target", str(_init_of(self.switch)), "--net", "--", *command]

    def set_link(self, host: RigHost, state: str) -> None:
        """Have the link of a host ``up`` or ``down``: nothing arrives meanwhile, and nobody hears of it."""
        subprocess.run(self.at_switch("ip", "link", "set", host.name, state), check=True, capture_output=True)


def why_no_rig(link: Link | None = None) -> str:
    """Return why `hosts_on_a_switch` cannot be had here; "" if it can."""
    if os.geteuid() != 0:
        return "only root makes the namespaces of hosts"
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"{', '.join(missing)}: not installed"
    if link is not None and not os.path.exists(TUN):
        return f"no {TUN} here, by which a program is a switch"
    test = ["ip", "link", "add", "switch", "type", "bridge"]
    tried = subprocess.run([*ALONE, *test], capture_output=True, text=True, check=False)
    return f"no namespaces or bridges here: {tried.stderr.strip()}" if tried.returncode else ""


@contextmanager
def hosts_on_a_switch(directory: Path, num_hosts: int = 3, link: Link | None = None) -> Iterator[Rig]:
    """Give hosts that reach each other; they share `directory`, and the programs. All is gone after the block.

    The kernel is their switch, at its speed; with `link` a program is, and carries frames as that says.
    """
    addresses = {f"host{i}": ADDRESS.format(i) for i in range(1, num_hosts + 1)}
    names = "".join(f"{address} {name}\n" for name, address in addresses.items())
    hosts_file = directory / "hosts"
    hosts_file.write_text(f"127.0.0.1 localhost\n{names}")
    shared = [str(path) for path in (ROOT, Path(sys.prefix), directory) if path.parts[1] in ("tmp", "dev")]
    with ExitStack() as stack:
        program = ("sh", "-ec", SWITCH) if link is None else link.command(list(addresses))
        switch = stack.enter_context(_alone(*program))
        rig = Rig([], switch)
        hosts = []
        for name, address in addresses.items():
            own = directory / f"disk-of-{name}"
            own.mkdir()
            words = ("sh", "-ec", BOOT, "sh", str(own), name, *shared)
            host = RigHost(name, address, stack.enter_context(_alone(*words, HOSTS_FILE=str(hosts_file))))
            stack.callback(host.kill)
            if link is None:
                _connect(rig, host)
            else:
                _hand_over(rig, host, len(hosts), link)
            hosts.append(host)
        yield Rig(hosts, switch)


def _connect(rig: Rig, host: RigHost) -> None:
    """Lay the cable of a host to the switch of the kernel."""
    _run(
        rig.at_switch("ip", "link", "add", host.name, "type", "veth", "peer", "name", "eth0", *_moved_to(host)),
        rig.at_switch("ip", "link", "set", host.name, "master", "switch", "up"),
    )
    _configure(host)


def _hand_over(rig: Rig, host: RigHost, port: int, link: Link) -> None:
    """Give a host the device that is its cable to the switch in user space."""
    _run(
        rig.at_switch("ip", "link", "set", host.name, "address", hardware_address(port), "mtu", str(link.mtu)),
        rig.at_switch("ip", "link", "set", host.name, "name", "eth0", *_moved_to(host)),
    )
    _configure(host)


def _moved_to(host: RigHost) -> tuple[str, str]:
    return "netns", str(_init_of(host.holder))


def _configure(host: RigHost) -> None:
    inside = ["nsenter", "--target", str(_init_of(host.holder)), "--net", "--", "ip"]
    _run([*inside, "address", "add", f"{host.address}/24", "dev", "eth0"], [*inside, "link", "set", "eth0", "up"])


def _run(*commands: Sequence[str]) -> None:
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)


@contextmanager
def _alone(*command: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run the first process of new namespaces, which says that it is ready."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*ALONE, *command], stdout=pipe, stderr=pipe, text=True, env={**os.environ, **variables}
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stderr is not None
            if holder.stdout.readline() != "ready\n":
                holder.kill()
                raise RuntimeError(f"no host: {holder.stderr.read()}")
            yield holder
        finally:
            holder.kill()


def _init_of(holder: subprocess.Popen[str]) -> int:
    """Return the first process in the namespaces of a holder, which is its only child."""
    return int(Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text())
