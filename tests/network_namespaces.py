"""Two hosts on this machine: network namespaces with a cable between them, and a firewall that forgets connections."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Host", "forget", "two_hosts", "why_no_hosts"]

FORGET = """
add table inet forgetful
add chain inet forgetful arriving {{ type filter hook prerouting priority -300; }}
add rule inet forgetful arriving tcp sport {port} drop
add rule inet forgetful arriving tcp dport {port} drop
"""
"""What arrives of a connection is dropped without a word: neither end hears of it."""


@dataclass(frozen=True)
class Host:
    """A network namespace and its address."""

    name: str
    address: str

    def command(self, *command: str) -> list[str]:
        """Return a command that runs `command` there; it becomes the same process."""
        return ["ip", "netns", "exec", self.name, *command]

    def ports_to(self, other: Host, process_id: int) -> dict[int, int]:
        """Return the ports of the connections that a process has opened to `other`: how many pieces it has sent."""
        found, listening = {}, set(re.findall(r":(\d+) ", self._ask("ss", "-OHtnl")))
        for line in self._ask("ss", "-OHtnpi", "state", "established", "dst", other.address).splitlines():
            local, sent = re.search(r":(\d+) +\S+:\d+ ", line), re.search(r"data_segs_out:(\d+)", line)
            if f"pid={process_id}," in line and local is not None and local[1] not in listening:
                found[int(local[1])] = int(sent[1]) if sent else 0
        return found

    def _ask(self, *command: str, text: str = "") -> str:
        done = subprocess.run(self.command(*command), input=text, capture_output=True, text=True, check=True)
        return done.stdout


def why_no_hosts() -> str:
    """Return why `two_hosts` cannot be had here; "" if they can."""
    missing = [program for program in ("ip", "ss", "nft") if shutil.which(program) is None]
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    if missing:
        return f"{', '.join(missing)}: not installed"
    name = f"psflow-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"no network namespaces here: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return ""


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Give two hosts that reach each other; they are gone after the block."""
    number = os.getpid()
    hosts = Host(f"psflow-a-{number}", "10.213.77.1"), Host(f"psflow-b-{number}", "10.213.77.2")
    try:
        for host in hosts:
            _ip("netns", "add", host.name)
            _ip("-n", host.name, "link", "set", "lo", "up")
        a, b = (host.name for host in hosts)
        _ip("link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b)
        for host in hosts:
            _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "cable")
            _ip("-n", host.name, "link", "set", "cable", "up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True, check=False)


def forget(hosts: tuple[Host, Host], port: int) -> None:
    """Have the firewall between the hosts forget the connection from `port`, as one does that was silent for long."""
    for host in hosts:
        host._ask("nft", "-f", "-", text=FORGET.format(port=port))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
