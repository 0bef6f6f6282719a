"""What is wrong with a description of a cluster: a sentence for each fault, with the field, what is there, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import TypeGuard

__all__ = ["address_faults", "duplicate_faults", "index_fault", "num_addresses", "whole_fault"]

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
"""One part of the name of a host: DNS allows 63 characters."""
_ADDRESS = re.compile(rf"(?:\[(?P<ip>[0-9A-Fa-f:.%]+)\]|{_LABEL}(?:\.{_LABEL})*):(?P<port>[0-9]+)", re.ASCII)
EXPECTED = "a host and a port, such as 'host:2222'"
MAX_PORT = 65535


def address_faults(name: str, addresses: Sequence[object]) -> list[str]:
    """Return what is wrong with the addresses in `name`.

    Examples
    --------
    >>> address_faults("cluster.ps", ["a:1", "b"])
    ["cluster.ps[1] should be a host and a port, such as 'host:2222', got 'b'"]
    """
    faults = []
    for place, address in enumerate(addresses):
        found = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
        if found is None or not _is_ip(found["ip"]):
            faults.append(f"{name}[{place}] should be {EXPECTED}, got {address!r}")
        elif len(found["port"]) > len(str(MAX_PORT)) or not 1 <= int(found["port"]) <= MAX_PORT:
            faults.append(f"{name}[{place}] should have a port from 1 to {MAX_PORT}, got {address!r}")
    return faults


def _is_ip(host: str | None) -> bool:
    """Whether what stands in brackets is an address; None: there are none."""
    try:
        return host is None or bool(ip_address(host))
    except ValueError:
        return False


def duplicate_faults(by_name: Mapping[str, Sequence[object]]) -> list[str]:
    """Return which addresses stand twice, and where.

    Examples
    --------
    >>> duplicate_faults({"cluster.ps": ["a:1"], "cluster.worker": ["b:1", "a:1"]})
    ["cluster.worker[1] is 'a:1', as cluster.ps[0] is: each process needs an address of its own"]
    """
    first: dict[object, str] = {}
    faults = []
    for name, addresses in by_name.items():
        for place, address in enumerate(addresses):
            here = f"{name}[{place}]"
            before = first.setdefault(repr(address), here)
            if before != here:
                faults.append(f"{here} is {address!r}, as {before} is: each process needs an address of its own")
    return faults


def whole_fault(name: str, index: object) -> str | None:
    """Return what is wrong with an index that is no whole number; None if it is one."""
    return None if _is_whole(index) else f"{name} should be a whole number, got {index!r}"


def _is_whole(index: object) -> TypeGuard[int]:
    return isinstance(index, int) and not isinstance(index, bool)


def index_fault(name: str, index: object, num_tasks: int, why: str) -> str | None:
    """Return what is wrong with the index of a process; None if nothing is.

    Examples
    --------
    >>> index_fault("task.index", 3, 2, "cluster.worker has 2 addresses")
    'task.index should be from 0 to 1, as cluster.worker has 2 addresses, got 3'
    """
    if not _is_whole(index):
        return whole_fault(name, index)
    if not 0 <= index < num_tasks:
        return f"{name} should be {'0' if num_tasks == 1 else f'from 0 to {num_tasks - 1}'}, as {why}, got {index}"
    return None


def num_addresses(name: str, num: int) -> str:
    """Return how many addresses `name` has, as words."""
    return f"{name} has {num} address{'' if num == 1 else 'es'}"
