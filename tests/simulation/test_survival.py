"""Whatever is lost when: a checkpoint counts each update once, and the job comes to its end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from psflow.ps_runtime.errors import BrokenPeerError
from psflow.ps_runtime.protocol.message import Kind
from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Sync
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.roles import Role
from tests.simulation.processes import OwnError, Process
from tests.simulation.ps import Plan, PsProcess
from tests.simulation.trainers import Chief, Trainer
from tests.simulation.wires import Fault, Trap
from tests.simulation.world import START_TIMEOUT_SECS, World

ROLES = st.integers(0, 5)
ROUNDS = st.integers(0, 6)
OF_REPLICAS = (Kind.PUSH, Kind.PULL, Kind.NEXT, Kind.STOP, Kind.LEAVE)
OF_THE_CHIEF = (
    *(Kind.INITIALIZE, Kind.RESTORE, Kind.OPEN, Kind.AWAIT_SNAPSHOT),
    *(Kind.SNAPSHOT, Kind.RESUME, Kind.WRITE, Kind.COMMITTED, Kind.FINISH),
)
KINDS = st.sampled_from((*OF_REPLICAS, *OF_THE_CHIEF))
MANY = 10_000
MAX_ROUNDS = 3000
"""In which a job comes to its end: 1,091 of them take the largest input, 270 batches with a checkpoint after each."""
CONSISTENCIES = st.sampled_from([Async(), Sync(), Sync(1), Sync(4), BoundedStaleness(0), BoundedStaleness(2)])
INPUTS = st.builds(
    InputSpec,
    num_records=st.integers(4, 30),
    batch_size=st.integers(1, 2),
    num_epochs=st.integers(1, 3),
    split_batches=st.integers(1, 3),
    each_worker_reads_all=st.booleans(),
)


class Survival(RuleBasedStateMachine):
    """A job, and all that may happen to it."""

    @initialize(
        num_ps=st.integers(1, 2),
        num_workers=st.integers(1, 2),
        input_spec=INPUTS,
        max_steps=st.none() | st.integers(1, 40),
        save_steps=st.none() | st.integers(1, 6),
        consistency=CONSISTENCIES,
        pipeline_depth=st.integers(0, 1),
        num_spare=st.integers(0, 2),
        num_rounds=st.integers(0, 20),
    )
    def begin(self, pipeline_depth, consistency, num_spare, num_rounds, **facts):
        depth = pipeline_depth if consistency.may_pipeline else 0
        self.plan = Plan(consistency=consistency, pipeline_depth=depth, **facts)
        self.world = World(self.plan, num_spare, MANY)
        self.hanging: set[Process | None] = set()
        self.num_hung = 0
        self.num_faults = 0
        self.is_stopped = False
        self.rounds(num_rounds)

    def process(self, index):
        """Return the last life of a role, if it has had any."""
        return self.world.present.get(self.world.roles[index % len(self.world.roles)])

    @property
    def ps_0(self):
        process = self.process(0)
        return process if process is not None and process.is_serving else None

    # what goes on

    def go_on(self, process):
        if isinstance(process, Chief):
            process.save()
        process.run()

    def rounds(self, number):
        """Let all go on by some steps, but for those that hang."""
        world = self.world
        for _ in range(number):
            for process in list(world.processes):
                if process not in self.hanging:
                    self.go_on(process)
                if isinstance(process, PsProcess):
                    process.see()
            for process in list(world.processes):
                world.hear_events(process)
                world.hear_outcome(process)
            world.hear_losses()
            world.look()

    @rule(num_rounds=st.integers(1, 10))
    def all_go_on(self, num_rounds):
        self.rounds(num_rounds)

    @rule(index=ROLES, num_steps=st.integers(1, 9))
    def one_goes_on(self, index, num_steps):
        process = self.process(index)
        for _ in range(num_steps if process else 0):
            self.go_on(process)

    @rule(index=ROLES, hears=st.sets(st.sampled_from(["events", "outcome", "losses"])), looks=st.booleans())
    def owner_hears(self, index, hears, looks):
        """Have the owner hear a part of what there is to hear, in any order."""
        process = self.process(index)
        if process is not None and "events" in hears:
            self.world.hear_events(process)
        if process is not None and "outcome" in hears:
            self.world.hear_outcome(process)
        if "losses" in hears:
            self.world.hear_losses()
        if looks:
            self.world.look()

    @rule()
    def a_minute_passes_at_the_owner(self):
        """Which is more than any event takes to come."""
        for process in list(self.world.processes):
            self.world.hear_events(process)
        self.world.now += START_TIMEOUT_SECS
        self.world.supervisor.lose_late(START_TIMEOUT_SECS)
        self.world.look()

    @rule(num_rounds=ROUNDS)
    def chief_requests_a_cut(self, num_rounds):
        chief = self.process(self.plan.num_ps)
        if isinstance(chief, Chief) and chief.can_ask:
            chief.request_snapshot()
        self.rounds(num_rounds)

    # what goes wrong

    @rule(index=ROLES, is_silent=st.booleans(), num_rounds=ROUNDS)
    def a_process_is_killed(self, index, is_silent, num_rounds):
        process = self.process(index)
        if process is not None:
            self.world.kill(process.slot, is_silent=is_silent)
        self.rounds(num_rounds)

    @rule(index=ROLES, num_rounds=ROUNDS)
    def code_of_the_user_raises(self, index, num_rounds):
        """In a worker, or in the chief once a step was made; the owner hears of it at once."""
        process, supervisor = self.process(index), self.world.supervisor
        is_replica = isinstance(process, Trainer) and process.can_ask and not supervisor.is_trained
        if is_replica and (supervisor._has_stepped or not isinstance(process, Chief)):
            self.num_faults += 1
            process.fail(OwnError(self.num_faults))
            self.world.hear_outcome(process)
        self.rounds(num_rounds)

    @rule(index=ROLES, kind=KINDS, fault=st.sampled_from(list(Fault)), num_before=st.integers(0, 2), num_rounds=ROUNDS)
    def something_happens_at_a_message(self, index, kind, fault, num_before, num_rounds):
        """The sender dies, and what it sends arrives later or never; or the connection breaks, before it or after."""
        process = self.process(index if kind in OF_REPLICAS else self.plan.num_ps)
        if isinstance(process, Trainer):
            process.trap = Trap(kind, num_before, fault)
        self.rounds(num_rounds)

    @rule(index=ROLES, fault=st.sampled_from(list(Fault)), num_before=st.integers(0, 3), num_rounds=ROUNDS)
    def something_happens_at_a_push(self, index, fault, num_before, num_rounds):
        """A push is torn, comes late, or is made again."""
        self.something_happens_at_a_message(index, Kind.PUSH, fault, num_before, num_rounds)

    @rule(index=ROLES, which=st.integers(0, 5), num_rounds=ROUNDS)
    def a_connection_breaks(self, index, which, num_rounds):
        process = self.process(index)
        if isinstance(process, Trainer) and process.wires:
            process.wires[-1 - which % len(process.wires)].break_()
        self.rounds(num_rounds)

    @rule(index=ROLES, num_rounds=ROUNDS)
    def a_replica_cannot_reach_its_ps_for_long(self, index, num_rounds):
        """It gives up the ps, though that lives, once it has trained with it."""
        process = self.process(index)
        if isinstance(process, Trainer) and process.can_ask and process.taken:
            process.stop()
            process.fail(BrokenPeerError("ps-0", "nobody listens there"))
        self.rounds(num_rounds)

    @rule(index=st.integers(0, 1))
    def what_was_late_arrives(self, index):
        process = self.process(index)
        if isinstance(process, PsProcess):
            process.see(is_late=True)

    @rule()
    def ps_0_gives_up_who_is_away(self):
        if self.ps_0 is not None:
            self.ps_0.declare_lost()

    @rule(index=ROLES, is_long=st.booleans(), num_rounds=ROUNDS)
    def a_process_hangs(self, index, is_long, num_rounds):
        """Have a process do nothing, and time pass; not so often that three lives are lost at a batch."""
        process = self.process(index)
        self.hanging = {process}
        self.rounds(num_rounds)
        if self.ps_0 is not None and self.ps_0 is not process and self.num_hung < 2:
            self.num_hung += is_long
            self.ps_0.tick(1e9 if is_long else 0.4)
        self.rounds(num_rounds)

    @rule(num_rounds=ROUNDS)
    def all_are_awake(self, num_rounds):
        self.hanging.clear()
        self.rounds(num_rounds)

    @rule(index=ROLES, num_rounds=ROUNDS, closes=st.booleans())
    def a_slot_is_told_to_close(self, index, num_rounds, closes):
        process = self.process(index)
        if process is not None and process.is_running and process.has_begun and not process.is_shutting_down:
            process.is_shutting_down = True
            process.emit("leaving")
            self.rounds(num_rounds)
            if closes:
                self.world.kill(process.slot, in_order=True)

    @rule(index=st.integers(0, 9), num_rounds=ROUNDS)
    def a_slot_returns(self, index, num_rounds):
        self.world.bring_back(self.world.slots[index % len(self.world.slots)])
        self.rounds(num_rounds)

    @rule(index=ROLES)
    def a_hook_requests_the_end(self, index):
        process = self.process(index)
        if isinstance(process, Trainer) and process.can_ask:
            process.stop_reason = "enough"
            self.is_stopped = True

    @rule(index=ROLES)
    def a_ps_waits_no_longer(self, index):
        """Ten seconds pass, in which the owner hears all."""
        process = self.process(index)
        if isinstance(process, PsProcess) and self.world.has_told_all and self.world.supervisor.is_trained:
            process.linger()

    # what holds all the while

    @invariant()
    def steps_and_pushes_agree(self):
        if not hasattr(self, "plan") or self.ps_0 is None:
            return
        job, lineage = self.ps_0.job, self.ps_0.lineage
        assert self.plan.max_steps is None or job.global_step <= self.plan.max_steps
        assert job.input.num_repeats == 0
        counts = job.statistics()
        match self.plan.consistency:
            case Async():
                assert job.global_step == len(lineage.counted)
            case Sync():
                assert job.global_step <= len(lineage.counted)
            case BoundedStaleness(bound):
                assert job.global_step <= len(lineage.counted)
                assert counts["max_staleness"] <= bound

    @invariant()
    def nothing_fails_the_job(self):
        if hasattr(self, "plan"):
            assert not self.world.supervisor.errors(), self.world.supervisor.errors()

    def teardown(self):
        """Let all be fair: nothing more is lost, and everybody goes on; the job does not need its lost workers."""
        if not hasattr(self, "plan"):
            return
        world = self.world
        self.hanging.clear()
        for process in world.processes:
            process.trap = None
        for _ in range(MAX_ROUNDS):
            if world.has_ended or world.supervisor.errors():
                break
            self.be_fair()
        self.check_end()

    def be_fair(self):
        world = self.world
        waiting = world.supervisor.waiting()
        is_needed = self.plan.input_spec.each_worker_reads_all or any(r.role is not Role.WORKER for r in waiting)
        for slot in world.slots:
            if any(process.is_shutting_down for process in world.running(slot)):
                world.kill(slot, in_order=True)
            if is_needed:
                world.bring_back(slot)
        self.rounds(1)
        for process in list(world.processes):
            if isinstance(process, PsProcess) and process.is_serving:
                process.see(is_late=True)
                process.declare_lost()
                if world.supervisor.is_trained and world.has_told_all:
                    process.linger()

    def check_end(self):
        world, plan, spec = self.world, self.plan, self.plan.input_spec
        assert not world.supervisor.errors(), world.supervisor.errors()
        assert world.has_ended, (world.present, world.supervisor.waiting(), world.disk.latest)
        assert world.disk.is_over
        assert world.disk.finished == world.disk.latest
        counted = world.disk.checkpoints[world.disk.latest].lineage.counted
        num_queues = plan.num_workers + 1 if spec.each_worker_reads_all else 1
        num_records = spec.num_records * spec.num_epochs * num_queues
        num_used = sum(push.records.stop - push.records.start for push in counted)
        if not self.is_stopped and world.disk.latest != plan.max_steps:
            assert num_used == num_records, "the input is used up"


TestSurvival = Survival.TestCase
TestSurvival.settings = settings(max_examples=60, stateful_step_count=20, derandomize=True, report_multiple_bugs=False)


def test_a_request_is_made_a_third_time_where_two_connections_break():
    """A chief whose connection is broken already pushes on the next one, which breaks before the push arrives."""
    job = Survival()
    spec = InputSpec(num_records=4, batch_size=1, num_epochs=1, split_batches=1, each_worker_reads_all=False)
    job.begin(
        0, Async(), num_spare=0, num_rounds=6, num_ps=1, num_workers=1, input_spec=spec, max_steps=None, save_steps=None
    )
    job.something_happens_at_a_message(1, Kind.PUSH, Fault.REQUEST_LOST, num_before=0, num_rounds=0)
    job.a_connection_breaks(1, which=0, num_rounds=2)
    job.teardown()


def test_the_largest_input_with_a_checkpoint_after_each_step_comes_to_its_end():
    job = Survival()
    spec = InputSpec(num_records=30, batch_size=1, num_epochs=3, split_batches=1, each_worker_reads_all=True)
    job.begin(
        0, Async(), num_spare=0, num_rounds=0, num_ps=2, num_workers=2, input_spec=spec, max_steps=None, save_steps=1
    )
    job.teardown()
