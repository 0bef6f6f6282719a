"""What the job machine does with single events."""

from __future__ import annotations

import pytest

from psflow.ps_runtime.server.instructions import Granted, Phase, Refusal, SnapshotReady
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.specs.consistency import Sync
from psflow.ps_runtime.specs.input import InputSpec


def cutting(max_steps: int | None = None) -> Job:
    """Return a job of one replica that stands at step 1, whose saver knows that a snapshot is due."""
    job = Job(InputSpec(1000, num_epochs=None), max_steps, None)
    job.open()
    job.join(0, 5)
    job.ask(0, 5)
    job.due()
    job.push(0, 5, 1, 1)
    job.request_snapshot()
    assert isinstance(job.due(saver_waits=True)[-1], SnapshotReady)
    return job


@pytest.mark.parametrize("step", [0, 2, 1000])
def test_a_resume_of_another_step_is_refused(step: int) -> None:
    job = cutting()
    with pytest.raises(Refusal, match=f"no snapshot of step {step} is under way; the job is at step 1"):
        job.resume(step)
    assert (job.phase, job.due(), job.num_given) == (Phase.SNAPSHOT_ANNOUNCED, [], 0)
    job.resume(1)
    assert job.phase is Phase.TRAINING


def test_a_resume_of_a_cut_that_the_saver_has_not_heard_of_is_refused() -> None:
    job = cutting()
    job.forget_saver()
    with pytest.raises(Refusal, match="no snapshot of step 1 is under way"):
        job.resume(1)
    assert job.phase is Phase.SNAPSHOT_DUE


@pytest.mark.parametrize(("max_steps", "phase"), [(1, Phase.DRAINED), (2, Phase.TRAINING)])
def test_after_the_last_cut_nothing_is_trained(max_steps: int, phase: Phase) -> None:
    job = cutting(max_steps)
    job.resume(1)
    assert job.phase is phase
    job.resume(1)
    assert job.phase is phase


def test_an_earlier_life_that_is_lost_takes_nothing_from_the_present_one() -> None:
    job = cutting()
    job.lost(0, 4)
    assert job.replicas == {0: 5}
    job.lost(0, 5)
    assert job.replicas == {}


def test_a_ticket_whose_grant_was_lost_is_granted_again_though_an_older_one_is_void() -> None:
    job = Job(InputSpec(1000, num_epochs=None), None, None, consistency=Sync(1), num_replicas=2)
    job.open()
    for replica in (0, 1):
        job.join(replica, 5)
        job.ask(replica, 5)
        job.due()
    job.push(1, 5, 1, 1)  # closes the round: the ticket of replica 0 is void
    job.due()
    job.ask(0, 5, num_known=1)
    [granted] = job.due()
    assert isinstance(granted, Granted)
    job.ask(0, 5, num_known=1)
    assert job.due() == [granted]


def test_synchronous_training_waits_for_no_replica_whose_last_life_was_lost_unseen() -> None:
    job = Job(InputSpec(1000, num_epochs=None), None, None, consistency=Sync(), num_replicas=2)
    job.open()
    job.join(0, 5)
    job.ask(0, 5)
    job.due()
    job.push(0, 5, 1, 1)
    job.due()
    assert job.global_step == 0
    job.lost(1, 5)  # as the owner says: it never came
    job.lost(1, 5)
    job.due()
    assert job.global_step == 1
    job.join(1, 6)
    assert job.replicas == {0: 5, 1: 6}
    job.lost(1, 5)
    assert job.replicas == {0: 5, 1: 6}


@pytest.mark.parametrize(("num_epochs", "said"), [(1, "1 epoch"), (2, "2 epochs")])
def test_the_end_of_the_input_says_what_was_read(num_epochs: int, said: str) -> None:
    job = Job(InputSpec(4, num_epochs=num_epochs, batch_size=2), 100, None)
    job.open()
    job.join(0, 5)
    for sequence in range(1, 2 * num_epochs + 1):
        job.ask(0, 5)
        job.due()
        job.push(0, 5, sequence, 2)
    job.ask(0, 5)
    job.due()
    ended = f"the input ended after {2 * num_epochs} of 100 steps ({4 * num_epochs} examples in {said})"
    assert job.statistics()["input_end"] == f"{ended}; repeat() reads it again"


@pytest.mark.parametrize("leaves", [True, False])
def test_a_replica_that_waits_for_the_others_ends_the_job_once_they_are_gone(leaves):
    job = Job(InputSpec(None), None, None, num_replicas=3)
    job.open()
    for replica in (0, 1):
        job.join(replica, 1)
    job.ask(1, 1)
    job.return_tickets(0, 1)
    job.stop_after_others(0, "its loop has ended")
    assert [instruction.replica for instruction in job.due()] == [1]
    assert job.stop_reason is None
    (job.left if leaves else job.lost)(1, 1)
    assert job.stop_reason is None, "replica 2 has not joined yet"
    job.join(2, 1)
    job.left(2, 1)
    assert job.stop_reason == "its loop has ended"
