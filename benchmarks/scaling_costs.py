"""The costs of the parts of a step on this machine, each measured separately, outside of a job.

Messages and bytes: a replica that computes nothing beside two ps, in separate processes, with two sizes of shards.
Transferred decisions: the handlers of two ps in this process, with one replica and with many. Computing: training in
this process, minus a replica that computes nothing there. All but one are CPU seconds, which other work on the machine
affects less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from benchmarks.processes import clock_secs
from benchmarks.scaling_jobs import LocalJob, PsProcess, Pushers, bare_job, give_values, open_shards
from benchmarks.scaling_model import Costs, Linear, WayCosts
from benchmarks.systems.base import System
from benchmarks.workloads import Workload
from psflow import Estimator, RunConfig, SessionRunHook
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.protocol.message import Purpose

__all__ = ["TRANSPORTS", "CostBench", "PsPair", "Rounds", "Spent", "way_costs"]

SMALL_BYTES = 16 * 1024
TRANSPORTS = ("shm", "tcp")
WARM_STEPS = 20
LOOP_SECS = 0.1
CHUNK_STEPS = 10
LOCAL_STEPS = 400
MANY_REPLICAS = 64


class CostBench(System):
    """Measures `Costs`, again and again, between measurements of other systems.

    Parameters
    ----------
    workload : Workload
        Whose gradient is computed.
    large_bytes : int
        Bytes of a shard in the larger of the two sizes; the costs are good for shards up to about this.
    num_replicas : int
        How many ask the ps at once: 1 if it sleeps between messages, more if it always finds one.
    loop_secs : float
        How long each loop is repeated.
    """

    def __init__(
        self, workload: Workload, large_bytes: int, num_replicas: int = 1, loop_secs: float = LOOP_SECS
    ) -> None:
        super().__init__("costs of a step")
        self._workload = workload
        self._sizes = (SMALL_BYTES, large_bytes)
        self._num_replicas = num_replicas
        self._loop_secs = loop_secs
        self._pairs: dict[int, PsPair] = {}

    @property
    def roles(self) -> Mapping[str, int]:
        """The ps, by size and index."""
        return {f"{size}-{i}": pid for size, pair in self._pairs.items() for i, pid in enumerate(pair.pids)}

    def start(self) -> None:
        """Start the ps, all at once."""
        self._pairs = {size: PsPair(size, self._num_replicas) for size in self._sizes}
        for pair in self._pairs.values():
            pair.connect()

    def check(self) -> None:
        """Raise nothing: its ps are watched by those who talk to them."""

    def hold(self) -> None:
        """Do nothing: a ps without requests sleeps."""

    def let_go(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """End the ps."""
        for pair in self._pairs.values():
            pair.close()
        self._pairs = {}

    def costs(self) -> Costs:
        """Measure everything once. Takes about 2 s."""
        with threadpool_limits(limits=1):
            ways, wake_secs = {}, 0.0
            for transport in TRANSPORTS:
                small, large = ((size, self._pairs[size].spend(transport, self._loop_secs)) for size in self._sizes)
                ways[transport] = way_costs(small, large, num_asked=1 if transport == "shm" else 2)
                if transport == "shm":
                    pull = small[1].pull
                    wake_secs = max(0.0, pull.wall_secs - pull.replica_secs - pull.ps_secs)
            log_0_secs, log_secs = _log_secs(self._loop_secs)
            return Costs(_compute_secs(self._workload, self._loop_secs), ways, log_secs, log_0_secs, wake_secs)


class Spent(NamedTuple):
    """What one replica took once: of the clock, and CPU seconds of the replica, ps-0 and ps-1."""

    wall_secs: float
    replica_secs: float
    ps_0_secs: float
    ps_secs: float


class Rounds(NamedTuple):
    """What a pull, and what a whole step of a replica that computes nothing took, of two shards of one size."""

    pull: Spent
    step: Spent


def way_costs(small: tuple[int, Rounds], large: tuple[int, Rounds], num_asked: int) -> WayCosts:
    """Return the costs of a transport from measurements at two sizes: bytes of a shard, and what was spent.

    Parameters
    ----------
    small, large : tuple of int and Rounds
        Bytes of a shard, and what the rounds at that size spent.
    num_asked : int
        How many of the two ps a pull asks; the bytes of both come in any case.
    """

    def line(secs_of: Callable[[Rounds], float]) -> Linear:
        return Linear.through((small[0], secs_of(small[1])), (large[0], secs_of(large[1])))

    def each(of_both: Linear, num_messages: int) -> Linear:
        return Linear(of_both.fixed_secs / num_messages, of_both.secs_per_byte / 2)

    return WayCosts(
        replica_pull=each(line(lambda r: r.pull.replica_secs), num_asked),
        replica_push=each(line(lambda r: r.step.replica_secs - r.pull.replica_secs), 2),
        ps_pull=line(lambda r: r.pull.ps_secs),
        ps_push=line(lambda r: r.step.ps_secs - r.pull.ps_secs),
        ps_0_push=line(lambda r: r.step.ps_0_secs - r.pull.ps_0_secs),
    )


class PsPair:
    """Two ps in processes of their own, and replicas for each transport.

    Parameters
    ----------
    shard_nbytes : int
        Of each ps.
    num_replicas : int
        For each transport.
    """

    def __init__(self, shard_nbytes: int, num_replicas: int) -> None:
        self._job = bare_job(shard_nbytes, num_ps=2, num_replicas=len(TRANSPORTS) * num_replicas)
        self._num_replicas = num_replicas
        self._all_ps = [PsProcess(self._job, index) for index in range(2)]
        self._resources = ExitStack()
        for ps in self._all_ps:
            self._resources.callback(ps.close)
        self._pushers: dict[str, Pushers] = {}

    @property
    def pids(self) -> list[int]:
        """The processes of the ps."""
        return [ps.pid for ps in self._all_ps]

    def connect(self) -> None:
        """Wait for the ps, and let the replicas come."""
        addresses = [ps.address() for ps in self._all_ps]
        give_values(self._job, [PsProcess.connect_function(self._job, address, "tcp") for address in addresses])
        replicas = iter(range(len(TRANSPORTS) * self._num_replicas))
        for transport in TRANSPORTS:
            connect_functions = [PsProcess.connect_function(self._job, address, transport) for address in addresses]
            shards = [
                open_shards(self._job, connect_functions, Purpose.TRAIN, next(replicas))
                for _ in range(self._num_replicas)
            ]
            self._pushers[transport] = Pushers(self._job, [self._resources.enter_context(each) for each in shards])

    def close(self) -> None:
        """End the ps, and wait for them. Idempotent."""
        self._resources.close()

    def spend(self, transport: str, secs: float) -> Rounds:
        """Pull for so many seconds, then pull and push for as many."""
        pushers = self._pushers[transport]
        return Rounds(self._spent(pushers.pull, secs), self._spent(pushers.step, secs))

    def _spent(self, act: Callable[[], object], secs: float) -> Spent:
        def clocks() -> list[float]:
            return [time.monotonic(), time.thread_time(), *(clock_secs(pid) for pid in self.pids)]

        return Spent(*(each / self._num_replicas for each in _repeat(act, secs, clocks)))


def _repeat(act: Callable[[], object], secs: float, clocks: Callable[[], list[float]]) -> list[float]:
    """Repeat `act` for so many seconds, at least once; return how far each clock went for each time."""
    for _ in range(WARM_STEPS):
        act()
    number, deadline = 0, Deadline(secs)
    before = clocks()
    while not number or not deadline.has_passed:  # it may have passed while this process waited for a core
        for _ in range(CHUNK_STEPS):
            act()
        number += CHUNK_STEPS
    return [(after - start) / number for after, start in zip(clocks(), before, strict=True)]


def _log_secs(secs: float) -> tuple[float, float]:
    """Return the CPU seconds of ps-0 and of another ps for each replica more at each step."""
    with LocalJob(SMALL_BYTES, 2, 1) as one, LocalJob(SMALL_BYTES, 2, MANY_REPLICAS) as many:
        _, few_0, few_1 = _step_secs(one, secs)
        _, many_0, many_1 = _step_secs(many, secs)
    more = MANY_REPLICAS - 1
    return max(0.0, many_0 - few_0) / more, max(0.0, many_1 - few_1) / more


def _compute_secs(workload: Workload, secs: float) -> float:
    """Return the CPU seconds of a replica for all of a step but its messages."""
    hook = _ThreadTimeHook()
    config = RunConfig(tf_random_seed=1, save_checkpoints_secs=None, save_summary_steps=workload.report_steps)
    with TemporaryDirectory(prefix="psflow-bench-") as directory:
        estimator = Estimator(workload.module.model_fn, directory, config, dict(workload.params))
        estimator.train(lambda: workload.module.input_fn(workload.params), [hook], max_steps=LOCAL_STEPS)
    with LocalJob(hook.nbytes, 1, 1) as alone:
        return max(0.0, hook.step_secs - _step_secs(alone, secs)[0])


def _step_secs(job: LocalJob, secs: float) -> list[float]:
    """Return the CPU seconds of a step of a replica: all of it, and of the handler of each ps."""
    spent = _repeat(job.pushers.step, secs, lambda: [time.thread_time(), *job.handler_secs])
    return [each / len(job.pushers) for each in spent]


class _ThreadTimeHook(SessionRunHook):
    """Takes the CPU seconds of a step, but for the first ones."""

    def __init__(self) -> None:
        self.step_secs = 0.0
        self.nbytes = 0
        self._number = 0
        self._started = 0.0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Look at the clock."""
        self._number += 1
        if self._number == WARM_STEPS:
            self._started = time.thread_time()
            self.nbytes = sum(value.nbytes for value in run_context.session.variables.values())
        elif self._number > WARM_STEPS:
            self.step_secs = (time.thread_time() - self._started) / (self._number - WARM_STEPS)
