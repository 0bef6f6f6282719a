"""A ps without a transport: the real handler, shard and job, and what the ledger makes of the messages that arrive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import CheckpointError
from psflow.ps_runtime.protocol.message import Incarnation
from psflow.ps_runtime.server.handler import JobKey, PsHandler
from psflow.ps_runtime.server.instructions import Phase
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.server.job_requests import JobRequests
from psflow.ps_runtime.server.shard import Shard
from psflow.ps_runtime.specs.consistency import Consistency, Sync
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.roles import RoleId
from psflow.ps_runtime.transport.in_process import InProcessServer
from tests.ps_runtime.rules import rules_of
from tests.simulation.ledger import MODEL, Checkpoint, Lineage, Push
from tests.simulation.processes import Process

if TYPE_CHECKING:
    from tests.simulation.wires import Wire

JOB_ID, TOKEN = "job", "token"


@dataclass(frozen=True)
class Plan:
    """What all roles of a job are given alike."""

    num_ps: int
    num_workers: int
    input_spec: InputSpec
    max_steps: int | None
    save_steps: int | None
    consistency: Consistency
    pipeline_depth: int

    @property
    def key(self) -> JobKey:
        return JobKey(JOB_ID, TOKEN, MODEL.digest, self.num_workers + 1)


@dataclass
class Disk:
    """The model_dir: checkpoints, files of those that are not committed, the mark of the end."""

    plan: Plan
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    files: dict[tuple[int, int], NDArray[np.uint8]] = field(default_factory=dict)
    finished: int | None = None
    is_over: bool = False
    """Whether a chief has come to its end."""

    @property
    def latest(self) -> int | None:
        return max(self.checkpoints, default=None)


class Storage:
    """The files of one shard."""

    def __init__(self, ps: PsProcess) -> None:
        self._ps = ps

    def load(self, step: int, shard: Shard) -> Mapping[str, Any]:
        saved = self._ps.disk.checkpoints.get(step)
        if saved is None:
            raise CheckpointError(f"of step {step}", "there is none")
        shard.snapshot_arrays.arena[:] = saved.arenas[shard.layout.index]
        self._ps.lineage = saved.lineage.copy()
        return saved.facts

    def write(self, step: int, shard: Shard) -> None:
        ps, index = self._ps, shard.layout.index
        ps.disk.files[step, index] = shard.snapshot_arrays.arena.copy()
        ps.server.post(lambda: ps.handler.written(step, {"shard": index}))


class PsProcess(Process):
    """One life of a ps; ps-0 holds the job."""

    def __init__(self, role: RoleId, incarnation: int, slot: str, disk: Disk) -> None:
        super().__init__(role, incarnation, slot)
        self.disk = disk
        self.unseen: list[Wire] = []
        """Connections that have broken, which the ps has not seen yet."""
        self.lineage = Lineage()
        self.frozen: tuple[int, Lineage] | None = None
        """The step of the last snapshot that was copied, and what it holds."""
        self.lost_replicas: list[Incarnation] = []
        """What the owner says, not read yet."""
        self.job: Job | None = None
        self._has_left = False
        self._newest: dict[int, Wire] = {}
        self._lives: dict[int, int] = {}
        self._sequences: dict[Incarnation, int] = {}
        self._over: set[Incarnation] = set()

    @property
    def is_serving(self) -> bool:
        """Whether the ps can be reached."""
        return self.is_running and self.has_begun

    def begin(self) -> None:
        plan, index = self.disk.plan, self.role.index
        shard = Shard(place(MODEL, plan.num_ps)[index], rules_of(MODEL), (), plan.num_ps)
        requests = None
        if index == 0:
            self.job = self._new_job(plan)
            requests = JobRequests(self.job, None, shard)
        self.requests = requests
        self.handler = PsHandler(plan.key, shard, Storage(self), requests)
        self.server = InProcessServer(self.handler)
        self.emit("listening")

    def _new_job(self, plan: Plan) -> Job:
        job = Job(
            plan.input_spec,
            plan.max_steps,
            plan.save_steps,
            None,
            plan.consistency,
            num_replicas=plan.num_workers + 1,
            num_shards=plan.num_ps,
        )
        self.disk.files.clear()
        if self.disk.finished is not None and self.disk.finished == self.disk.latest:
            job.stop("an earlier chief has marked the end")
        else:
            self.disk.finished = None
        return job

    def step(self) -> None:
        """Read what the owner says; end once all replicas have said good-bye."""
        assert self.requests is not None or not self.lost_replicas
        for key in self.lost_replicas:
            self.note_end(key)
            self.server.post(lambda key=key: self.requests.lost(*key))
        self.lost_replicas.clear()
        if self.handler.is_finished and len(self.handler.left) >= self.disk.plan.num_workers + 1:
            self.finish()

    def linger(self) -> None:
        """Wait no longer for replicas that do not say good-bye."""
        if self.is_serving and self.handler.is_finished:
            self.finish()

    def see(self, *, is_late: bool = False) -> None:
        """See that connections have broken; with `is_late` also those on which something was on its way still."""
        due = [wire for wire in self.unseen if is_late or wire.late is None]
        for wire in due if self.is_serving else ():
            self.unseen.remove(wire)
            if wire.late is not None:
                wire.deliver(wire.late)
            wire.inner.close()

    def declare_lost(self) -> None:
        """Give up the replicas that have not come back."""
        if self.requests is None:
            return
        for key in list(self.requests.absent.values()):
            self.note_end(key)
            self.server.post(lambda key=key: self.requests.lost(*key))

    def tick(self, secs: float) -> None:
        """Let time pass; who is too late is lost."""
        if self.requests is None:
            return
        before = dict(self.requests.job.replicas)
        self.server.post(lambda: self.requests.tick(secs))
        for key in before.items() - self.requests.job.replicas.items():
            self.note_end(key)

    # what the ledger notes as messages arrive

    def note_hello(self, wire: Wire, key: Incarnation) -> None:
        """Note a new connection; it is that of the replica only if no later life has come."""
        replica, incarnation = key
        if wire.trains and incarnation >= self._lives.get(replica, 0) and key not in self._over:
            if self._lives.get(replica, incarnation) != incarnation:
                self.note_end((replica, self._lives[replica]))
            self._newest[replica], self._lives[replica] = wire, incarnation

    def note_end(self, key: Incarnation) -> None:
        """Note that a life is over: whatever comes of it counts never."""
        self._over.add(key)

    def note_push(self, wire: Wire, key: Incarnation, sequence: int, push: Push) -> None:
        """Note a push: it counts if its life goes on, it is the next one of it, and, with rounds, not too late."""
        if self.role.index or key in self._over or self._newest.get(key[0]) is not wire:
            return
        if sequence != self._sequences.get(key, 0) + 1:
            return
        self._sequences[key] = sequence
        assert self.job is not None
        if not isinstance(self.disk.plan.consistency, Sync) or push.step == self.job.global_step:
            assert self.job.phase in (Phase.TRAINING, Phase.SNAPSHOT_REQUESTED)
            self.lineage.counted.append(push)

    def note_snapshot(self, step: int) -> None:
        """Note what the snapshot of `step` has to hold."""
        self.frozen = (step, self.lineage.copy())
