"""What the network costs, beside what it must cost: ``python -m tests.hosts.figures [tls] [arena] [delay]``.

It needs root, and a machine that does nothing else. The limits are arithmetic on the bytes of arenas alone: frames of
1,500 bytes add 6 % of headers to them. The congestion control is that of the machine: bbr spreads a message of 19 KB
over most of a round trip, cubic does not (``sysctl net.ipv4.tcp_congestion_control``).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

from psflow.ps_runtime.cluster.own_security import new_pem
from tests.hosts.conftest import DaskOnHosts
from tests.hosts.rig import ROOT, Rig, RigHost, hosts_on_a_switch, why_no_rig
from tests.hosts.switch import Link

PORT = 5000
GIGABIT, ROUND_BYTES = 1e9, 4_000_000
SLOW, ARENA_BYTES = 1e8, 4_000_000
DELAYS_SECS, SHORT_ARENA_BYTES = (0.01, 0.02), 19_000
NUM_REPLICAS = 3
WARM = 0.25
"""Part of the steps that is not measured."""
TIMEOUT_SECS = 600.0
Row = Sequence[str]


@contextmanager
def _rig(link: Link) -> Iterator[tuple[Rig, Path]]:
    with tempfile.TemporaryDirectory() as name, hosts_on_a_switch(Path(name), link=link) as rig:
        yield rig, Path(name)


def encrypted() -> Iterator[Row]:
    """Yield the rates of the socket of the data plane, and of a plain one, on a network of 1 Gbit/s."""
    yield "socket", "pull and push of 4 MB", "Mbit/s", "of plain"
    with _rig(Link(bits_per_sec=GIGABIT, mtu=9000)) as (rig, directory):
        certificate_file = _certificate_file(directory)
        [plain] = secs_of_rounds(rig, ROUND_BYTES)
        yield "plain", *_rate(plain, plain)
        yield "TLS", *_rate(*secs_of_rounds(rig, ROUND_BYTES, certificate_file), plain)
        yield "plain, again", *_rate(*secs_of_rounds(rig, ROUND_BYTES), plain)


def _certificate_file(directory: Path) -> str:
    file = directory / "certificate"
    file.write_text(new_pem())
    return str(file)


def _rate(secs: float, plain: float) -> Row:
    return f"{secs:.4f} s", f"{2 * ROUND_BYTES * 8 / secs / 1e6:.0f}", f"{plain / secs:.2f}"


def secs_of_rounds(rig: Rig, num_bytes: int, certificate_file: str | None = None, num_clients: int = 1) -> list[float]:
    """Return how long a pull and a push of so many bytes take between the first host and each client at once."""
    server, *others = rig.hosts
    common = {"address": server.address, "num_bytes": num_bytes, "certificate_file": certificate_file}

    def start(host: RigHost, client: int, *, is_server: bool) -> subprocess.Popen[str]:
        told = json.dumps({**common, "port": PORT + client, "is_server": is_server})
        words = host.command(sys.executable, "-m", "tests.hosts.streaming", told)
        return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    clients = range(num_clients)
    with ExitStack() as stack:
        for client in clients:
            serving = stack.enter_context(start(server, client, is_server=True))
            stack.callback(serving.kill)
            assert serving.stdout is not None
            serving.stdout.readline()
        asking = [start(others[client % len(others)], client, is_server=False) for client in clients]
        return [float(one.communicate(timeout=TIMEOUT_SECS)[0]) for one in asking]


def arena() -> Iterator[Row]:
    """Yield the rates of a training that moves 4 MB in each direction and step, on a network of 100 Mbit/s."""
    yield "updates", "steps/s", "one direction at a time", "both at once", "of both"
    link, limit = Link(bits_per_sec=SLOW), SLOW / (8 * ARENA_BYTES)
    with _rig(link) as (rig, directory):
        rounds = secs_of_rounds(rig, ARENA_BYTES, _certificate_file(directory), NUM_REPLICAS)
    yield "none: bare loops", *_beside(sum(1 / secs for secs in rounds), limit)
    gradients, both = {"gradients": "bfloat16"}, {"gradients": "bfloat16", "parameters": "bfloat16"}
    for name, wire, depth in (("", {}, 0), (", pipeline_depth 1", {}, 1), (", bfloat16", both, 0)):
        rate = _steps_per_sec(link, ARENA_BYTES, 80, is_sync=False, wire=wire, pipeline_depth=depth)
        yield f"async{name}", *_beside(rate, limit)
    for name, wire in (("", {}), (", bfloat16 gradients", gradients), (", bfloat16", both)):
        rate = _steps_per_sec(link, ARENA_BYTES, 24, is_sync=True, wire=wire)
        yield f"sync{name}", *_beside(rate, limit / NUM_REPLICAS)


def _beside(steps_per_sec: float, limit: float) -> Row:
    return f"{steps_per_sec:.2f}", f"{limit / 2:.2f}", f"{limit:.2f}", f"{steps_per_sec / limit:.2f}"


def delay() -> Iterator[Row]:
    """Yield the rate of a replica whose messages are short, on networks that are long."""
    yield "one way", "steps/s of a replica", "1 / round trip", "of that"
    for secs in DELAYS_SECS:
        steps_per_sec = _steps_per_sec(Link(delay_secs=secs), SHORT_ARENA_BYTES, 1000, is_sync=False) / NUM_REPLICAS
        limit = 1 / (2 * secs)
        yield f"{1000 * secs:g} ms", f"{steps_per_sec:.1f}", f"{limit:.1f}", f"{steps_per_sec / limit:.2f}"


def _steps_per_sec(
    link: Link,
    num_bytes: int,
    num_steps: int,
    *,
    is_sync: bool,
    wire: Mapping[str, str] = MappingProxyType({}),
    pipeline_depth: int = 0,
) -> float:
    """Train with a ps on one host and replicas on two others; return the steps of all replicas in a second."""
    with _rig(link) as (rig, directory):
        dask = DaskOnHosts(rig, directory)
        dask.start_scheduler()
        first, *others = rig.hosts
        dask.start_workers(first, 1, resource="psflow-ps")
        for host in others:
            dask.start_workers(host)
        options = {"num_parameters": num_bytes // 4, "max_steps": num_steps, "is_sync": is_sync}
        options |= {"wire": dict(wire), "pipeline_depth": pipeline_depth}
        training = dask.train("tests.hosts.dense", num_ps=1, num_workers=NUM_REPLICAS - 1, **options)
        if training.wait(TIMEOUT_SECS):
            raise RuntimeError(dask.log)
        made = [(int(step), float(time)) for step, time in re.findall(r"^step (\d+) at (.+)$", dask.log, re.MULTILINE)]
    made = [(step, time) for step, time in made if step >= WARM * num_steps]
    (first_step, began), (last_step, ended) = made[0], made[-1]
    return (last_step - first_step) / (ended - began)


TABLES: Mapping[str, Callable[[], Iterator[Row]]] = {"tls": encrypted, "arena": arena, "delay": delay}


def main(names: Sequence[str]) -> None:
    """Print the tables of these names."""
    if why_not := why_no_rig(Link()):
        sys.exit(f"figures: {why_not}")
    for name in names or TABLES:
        for row in TABLES[name]():
            print("".join(f"{cell:<26}" for cell in row), flush=True)
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
