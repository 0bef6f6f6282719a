"""Workers and chiefs that train by the real clients and step sources, a step at a time."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from psflow.ps_runtime.client.checkpoints import SavingClient
from psflow.ps_runtime.client.shard_client import Identity
from psflow.ps_runtime.client.training import JobEnd
from psflow.ps_runtime.errors import BrokenPeerError, StoppedError
from psflow.ps_runtime.model.calls.gradients import StepResult
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.protocol.job_state import JobState, Snapshot
from psflow.ps_runtime.protocol.message import Incarnation, Purpose
from psflow.ps_runtime.roles.step_source import InTurn, KnownIds, OneAhead, Work, next_work
from psflow.ps_runtime.specs.consistency import Sync
from psflow.ps_runtime.specs.input import RecordRange
from psflow.ps_runtime.specs.layout import piece_views, place
from psflow.ps_runtime.specs.roles import Role, RoleId
from tests.simulation.ledger import MODEL, NUM_PUSHES, ZEROS, Checkpoint, Push, check
from tests.simulation.processes import Killed, Process
from tests.simulation.ps import JOB_ID, TOKEN, Disk, PsProcess
from tests.simulation.wires import NotYet, PatientClient, PatientShards, Wire

SECS = 1.0


class Surroundings:
    """What a trainer asks of the world around it."""

    def __init__(self, kill: Callable[[str], None], may_give_up: Callable[[], bool], places: Iterator[int]) -> None:
        self.kill = kill
        self.may_give_up = may_give_up
        self.places = places


class Reader:
    """Gives records as the batch of their grant."""

    def read(self, records: RecordRange) -> tuple[Any, Any]:
        return {"x": np.zeros(records.stop - records.start)}, None

    def first_non_finite_cell(self, records: RecordRange, batch: tuple[Any, Any]) -> str:
        return ""


class Trainer(Process):
    """A training replica."""

    def __init__(
        self,
        role: RoleId,
        incarnation: int,
        slot: str,
        disk: Disk,
        all_ps: Sequence[PsProcess],
        around: Surroundings,
    ) -> None:
        super().__init__(role, incarnation, slot)
        self.key: Incarnation = (role.replica, incarnation)
        self.disk = disk
        self.all_ps = all_ps
        self.around = around
        self.wires: list[Wire] = []
        self.stop_reason: str | None = None
        self.work: Work | JobEnd | None = None
        self.result: StepResult | None = None
        self.computed: list[Push] = []
        """Of which no push is done yet, the next one first."""
        self.taken: list[int] = []
        """The places of those that ps-0 has answered."""
        self.broken: BrokenPeerError | None = None

    @property
    def pushing(self) -> Push:
        return self.computed[0]

    @property
    def can_ask(self) -> bool:
        """Whether it is connected, as far as it knows."""
        return self.is_running and self.has_begun and not self.is_cancelled and self.broken is None

    def die(self) -> None:
        """Be killed in the midst of a step."""
        self.around.kill(self.slot)
        raise Killed

    def stop(self) -> None:
        for wire in self.wires:
            wire.break_()

    def shards(self, purpose: Purpose) -> PatientShards:
        """Return clients of all ps, which have said HELLO."""
        identity = Identity(JOB_ID, TOKEN, MODEL.digest, str(self.role), purpose, *self.key)
        return PatientShards(self, self.all_ps, identity).__enter__()

    def begin(self) -> None:
        plan = self.disk.plan
        self.client = PatientClient(self.shards(Purpose.TRAIN), MODEL, SECS, clock=lambda: 0.0)
        source = OneAhead if plan.pipeline_depth else InTurn
        self.source = source(self.client, Reader(), self._compute, KnownIds((), {}))

    def run(self) -> None:
        if self.broken is None:
            super().run()
        elif self.is_cancelled or self.around.may_give_up():
            self.wires.clear()
            super().run() if self.is_cancelled else self.fail(self.broken)

    def _guarded(self, work: Any) -> None:
        try:
            super()._guarded(work)
        finally:
            if isinstance(self.outcome, BrokenPeerError):
                raise AssertionError("a trainer tries for some time to reach a ps")

    def fail(self, error: BaseException) -> None:
        """End with an error; of a ps that is gone only once its owner knows."""
        if isinstance(error, BrokenPeerError) and self.broken is None:
            self.broken = error
        else:
            super().fail(error)

    def step(self) -> None:
        if self.is_shutting_down and self.result is None and self.role.role is Role.WORKER:
            self.client.leave(begins_again=True)
            raise StoppedError(str(self.role), "its Dask worker closes")
        with contextlib.suppress(NotYet):
            self.train()

    def train(self) -> None:
        """Ask for work, compute, or push."""
        if isinstance(self.work, JobEnd):
            self.client.leave()
            self.finish()
        elif self.stop_reason is not None and self.result is None:
            answer = self.client.stop(self.stop_reason)
            self.work = answer if isinstance(answer, JobEnd) else self.work
        elif self.work is None:
            self.work = next_work(self.client, Reader(), self.client.next_grant())
        elif self.result is None:
            self._pull_and_compute(self.work)
        else:
            self.source.push(self.work, self.result, self.pushing.records.stop - self.pushing.records.start)
            self.taken.append(self.computed.pop(0).place)
            if len(self.taken) == 1:
                self.emit("step")
            self.result, self.work = None, self.source.following()

    def _pull_and_compute(self, work: Work) -> None:
        try:
            self.source.pull(work)
            self.result = self.source.compute(work)
        except NotYet as error:
            raise AssertionError("no reply to a replica that has a ticket is ever held") from error

    def _compute(self, work: Work) -> StepResult:
        """Return a gradient that counts itself; what this replica has pushed must be among what it has pulled."""
        depth = self.disk.plan.pipeline_depth
        if not isinstance(self.disk.plan.consistency, Sync):
            own = self.taken[: len(self.taken) - depth]
            for name, value in self.client.variables.items():
                assert (value[own] == 1).all(), (self, name, own, value[own])
        place = next(self.around.places)
        assert place < NUM_PUSHES
        self.computed.append(Push(place, self.key, work.grant.global_step, work.grant.records))
        spec = EstimatorSpec(ModeKeys.PREDICT, predictions={"x": np.zeros(1)})
        return StepResult(spec, 0.0, self.computed[-1].gradients(), (1.0,), {}, {})


class Chief(Trainer):
    """A trainer that gives the variables their values, saves, and ends the job."""

    def begin(self) -> None:
        self.saving = SavingClient(self.shards(Purpose.SAVE), MODEL, SECS)
        super().begin()
        latest = self.disk.latest
        self.last_step = -1 if latest is None else latest
        state = self.saving.job_state()
        if state.is_open:
            pass  # it takes over
        elif latest is None:
            self.saving.initialize(ZEROS)
            self.saving.request_snapshot()
        else:
            self.saving.restore(latest)
        self.saving.open()
        self.saver = self._save(state)
        self.is_saved = False
        """Whether the job is finished."""

    def request_snapshot(self) -> None:
        """Ask for a snapshot by a connection of its own."""
        self._guarded(lambda: SavingClient(self.shards(Purpose.SAVE), MODEL, SECS).request_snapshot())

    def step(self) -> None:
        """Train; at the end wait for the saver."""
        if self.is_shutting_down:
            raise StoppedError(str(self.role), "its Dask worker closes")
        if not isinstance(self.work, JobEnd):
            super().step()
        elif self.is_saved:
            self.disk.is_over = True
            super().step()

    def save(self) -> None:
        """Have the saver go on by a step."""
        if self.is_running and self.has_begun and self.broken is None:  # it may have been cancelled, and not looked yet
            self._guarded(lambda: next(self.saver, None))

    def _save(self, state: JobState) -> Iterator[None]:
        """Save as `ChiefSaver` does, and stop after each request."""
        is_final = state.is_finished
        if state.uncommitted is not None:
            yield from self._take_up(state.uncommitted)
        while not is_final:
            while True:
                try:
                    snapshot, is_final = self.saving.await_snapshot(math.inf)
                    break
                except NotYet:
                    pass
                yield
            if is_final:
                self.disk.finished = snapshot.step
            if snapshot.step == self.last_step:
                self.saving.resume(snapshot)
                continue
            yield
            self.saving.snapshot(snapshot)
            yield
            yield from self._write(snapshot)
        yield
        self.saving.finish()
        self.is_saved = True

    def _take_up(self, snapshot: Snapshot) -> Iterator[None]:
        """Commit what the shards have copied for an earlier life of the chief."""
        if snapshot.step != self.last_step:
            yield from self._write(snapshot)
        else:
            self.saving.committed(snapshot.step)
            yield

    def _write(self, snapshot: Snapshot) -> Iterator[None]:
        self.saving.write(snapshot.step)
        yield
        self._commit(snapshot.step, snapshot.to_facts())
        yield
        self.saving.committed(snapshot.step)

    def _commit(self, step: int, facts: dict[str, Any]) -> None:
        disk, plan = self.disk, self.disk.plan
        assert disk.latest is None or step > disk.latest, "a step is committed once"
        assert plan.max_steps is None or step <= plan.max_steps
        assert all((step, index) in disk.files for index in range(plan.num_ps)), "a later life has removed the files"
        arenas = tuple(disk.files[step, index] for index in range(plan.num_ps))
        variables = {name: np.full_like(zeros, np.nan) for name, zeros in ZEROS.items()}
        for layout, arena in zip(place(MODEL, plan.num_ps), arenas, strict=True):
            for piece, view in zip(layout.pieces, piece_views(layout, arena), strict=True):
                variables[piece.variable][piece.row_start : piece.row_stop] = view
        frozen = self.all_ps[0].frozen
        assert frozen is not None
        assert frozen[0] == step
        saved = Checkpoint(arenas, variables, facts, frozen[1])
        check(saved, plan.consistency, plan.input_spec)
        disk.checkpoints[step] = saved
        self.last_step = step
