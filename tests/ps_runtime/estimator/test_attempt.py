"""One job on a model_dir at a time, of one model; a job that was interrupted goes on as if it had not been."""

from __future__ import annotations

import errno
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.records import write_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import CheckpointError, ModelDirError, StorageError
from psflow.ps_runtime.estimator import attempt as attempt_module
from psflow.ps_runtime.estimator.attempt import Attempt, job_seed
from psflow.ps_runtime.estimator.model_dir import Fork
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.spec import EstimatorSpec
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.optimizers import Momentum
from psflow.ps_runtime.roles.ps import PsParts
from tests.ps_runtime.estimator.regression import BatchRows, FailAt, arrays_of, batches, regression, shuffled, steps_of

# Resuming


@pytest.mark.parametrize("input_fn", [shuffled, batches])
@pytest.mark.parametrize("interrupted_at", [[3, 8], [5]])
def test_a_resumed_job_ends_with_the_same_bits(make, input_fn, interrupted_at):
    whole, broken = make("whole"), make("broken")
    whole.train(input_fn, max_steps=10)
    seen = []
    for step in interrupted_at:
        with pytest.raises(ZeroDivisionError, match="as planned"):
            broken.train(input_fn, [FailAt(step)], max_steps=10)
        seen.append(steps_of(broken.model_dir)[-1])
        assert seen[-1] % 5 == 0
        assert seen[-1] <= step
    rows = BatchRows()
    broken.train(input_fn, [rows], max_steps=10)
    assert rows.steps[0] == seen[-1] + 1
    arrays = arrays_of(whole.model_dir, 10)
    assert arrays_of(broken.model_dir, 10) == arrays
    assert {slot for _, slot in arrays} == {None, "m", "v"}


def test_a_second_seed_gives_other_weights(make):
    first, second = make("first"), make("second", tf_random_seed=2)
    first.train(shuffled, max_steps=2)
    second.train(shuffled, max_steps=2)
    assert arrays_of(first.model_dir, 2) != arrays_of(second.model_dir, 2)


def test_a_job_keeps_the_seed_of_its_first_attempt(make):
    estimator = make(tf_random_seed=None)
    estimator.train(shuffled, max_steps=1)
    seed = job_seed(estimator.model_dir, None)
    assert job_seed(estimator.model_dir, None) == seed
    assert job_seed(estimator.model_dir, 12) == 12


# One job at a time


def test_an_attempt_that_is_made_again_holds_its_lease(make, monkeypatch):
    renewed = threading.Event()
    monkeypatch.setattr(attempt_module, "RENEW_SECS", 0.001)
    monkeypatch.setattr(attempt_module.JobFile, "renew", lambda self: renewed.set())
    attempt = Attempt(make(), TrainSpec(shuffled, 3), None)
    for number in (1, 2):
        renewed.clear()
        with attempt:
            assert renewed.wait(200)
            assert attempt.number == number


def test_a_lease_that_cannot_be_renewed_is_told_of_once(make, monkeypatch, caplog):
    tries = threading.Semaphore(0)

    def renew(self: object) -> None:
        tries.release()
        raise StorageError("job.json", "No space left on device", 0)

    monkeypatch.setattr(attempt_module, "RENEW_SECS", 0.001)
    monkeypatch.setattr(attempt_module.JobFile, "renew", renew)
    with Attempt(make(), TrainSpec(shuffled, 3), None):
        assert all(tries.acquire(timeout=200) for _ in range(4))
    [told] = [record for record in caplog.records if "cannot renew the lease of" in record.getMessage()]
    assert "No space left on device" in told.getMessage()
    assert told.exc_info is None


def test_a_second_job_on_a_living_model_dir_is_refused(make):
    estimator, other = make(), make()
    with Attempt(estimator, TrainSpec(shuffled, 5), None) as attempt:
        with pytest.raises(ModelDirError, match="model"):
            other.train(shuffled, max_steps=5)
        assert attempt.number == 1
    other.train(shuffled, max_steps=5)
    assert steps_of(estimator.model_dir)[-1] == 5


def test_a_copy_of_a_model_dir_is_refused_before_anything_is_planned(make, tmp_path):
    original = make()
    original.train(shuffled, max_steps=1)
    shutil.copytree(original.model_dir, tmp_path / "copy")
    with pytest.raises(ModelDirError, match=f"model_dir .*/copy is a copy of {original.model_dir}, but both would"):
        Attempt(make("copy"), TrainSpec(lambda: 1 / 0, 3), None)
    fork = Fork(str(tmp_path / "copy"), str(tmp_path / "fork"))
    with Attempt(make("fork"), TrainSpec(shuffled, 3), None, fork=fork):
        assert steps_of(str(tmp_path / "fork")) == [1]


def test_an_attempt_that_fails_lets_go_of_the_model_dir(make):
    estimator = make()
    with pytest.raises(ZeroDivisionError):
        estimator.train(shuffled, [FailAt(1)], max_steps=5)
    with Attempt(estimator, TrainSpec(shuffled, 5), None) as attempt:
        first = attempt.job()
    with Attempt(estimator, TrainSpec(shuffled, 5), None) as attempt:
        second = attempt.job()
    assert first.job_id == second.job_id
    assert (first.attempt, second.attempt) == (2, 3)
    assert first.token != second.token
    assert first.token not in repr(first)


def test_another_model_is_refused_with_each_difference(make):
    def other(features, labels, mode):
        get_variable("w", (3,))
        get_variable("c")
        train_op = Momentum(learning_rate=0.1, momentum=0.9).apply_gradients({})
        return EstimatorSpec(mode, loss=0.0, train_op=train_op)

    estimator = make()
    estimator.train(shuffled, max_steps=5)
    before = arrays_of(estimator.model_dir, 5)
    with pytest.raises(ModelDirError) as caught:
        make(model_fn=other).train(shuffled, max_steps=10)
    text = str(caught.value)
    assert "holds checkpoints of another model (the latest is of step 5)" in text
    assert "variable 'w' is float32[3], expected float32[2]" in text
    assert "variable 'b' is missing" in text
    assert "variable 'c' is new" in text
    assert arrays_of(estimator.model_dir, 5) == before


def test_another_optimizer_is_refused(make):
    def other(features, labels, mode):
        spec = regression(features, labels, mode)
        train_op = Momentum(learning_rate=0.1, momentum=0.9).apply_gradients({"w": np.zeros(2), "b": 0.0})
        return EstimatorSpec(mode, loss=spec.loss, train_op=train_op)

    make().train(shuffled, max_steps=5)
    with pytest.raises(ModelDirError, match=r"variable 'w' is trained by .*Momentum.*, expected .*Adam"):
        make(model_fn=other).train(shuffled, max_steps=10)


# A disk that fails


def test_a_full_disk_fails_training_and_leaves_the_last_checkpoint_whole(make, monkeypatch):
    write = CheckpointStore.write_shard

    def full(self, step, *arguments):
        if step < 10:
            return write(self, step, *arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CheckpointStore, "write_shard", full)
    estimator = make()
    with pytest.raises(CheckpointError, match=r"ps-0 could not write its part of checkpoint 10: OSError: .*No space"):
        estimator.train(shuffled, max_steps=100_000)
    assert steps_of(estimator.model_dir) == [0, 5]
    assert arrays_of(estimator.model_dir, 5)
    monkeypatch.undo()
    estimator.train(shuffled, max_steps=10)
    whole = make("whole")
    whole.train(shuffled, max_steps=10)
    assert arrays_of(estimator.model_dir, 10) == arrays_of(whole.model_dir, 10)


def test_a_manifest_that_cannot_be_written_fails_training(make, monkeypatch):
    def full(self, manifest):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CheckpointStore, "commit", full)
    estimator = make()
    with pytest.raises(OSError, match="No space left on device"):
        estimator.train(shuffled, max_steps=100_000)
    assert steps_of(estimator.model_dir) == []


def test_a_claim_that_cannot_be_taken_over_is_released(make, monkeypatch):
    def full(model_dir):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(attempt_module, "clear_finished", full)
    estimator = make()
    with pytest.raises(OSError, match="No space left"):
        estimator.train(shuffled, max_steps=5)
    monkeypatch.undo()
    estimator.train(shuffled, max_steps=5)
    assert steps_of(estimator.model_dir)[-1] == 5


def test_what_a_dead_job_left_unfinished_is_removed(make):
    estimator = make()
    estimator.train(shuffled, max_steps=5)
    leftover = Path(estimator.latest_checkpoint()).with_name("step_00000007")
    leftover.mkdir()
    (leftover / "shard_00000_of_00001.safetensors").write_bytes(b"half")
    estimator.train(shuffled, max_steps=6)
    assert not leftover.exists()


def test_a_ps_that_begins_again_after_the_end_was_saved_trains_no_further(make):
    estimator = make()
    estimator.train(shuffled, max_steps=5)
    with Attempt(estimator, TrainSpec(shuffled), None) as attempt:
        write_finished(estimator.model_dir, 5, "a hook asked to stop")
        parts = PsParts(attempt.job(), 0, lambda event: None)
        parts.close()
        assert parts.handler.job_requests.job.stop_reason == "a hook asked to stop"


def test_an_attempt_that_trains_no_step_leaves_the_reason_of_the_end_as_it_was(make):
    def reason(max_steps):
        with Attempt(estimator, TrainSpec(shuffled, max_steps=max_steps), None) as attempt:
            attempt.run_here(lambda event: None)
            return attempt.end_reason()

    estimator = make()
    assert [reason(5), reason(5), reason(5)] == ["all steps are done"] * 3
    with Attempt(estimator, TrainSpec(shuffled, max_steps=9), None) as attempt:
        assert attempt.end_reason() is None
        write_finished(estimator.model_dir, 7, "a hook asked to stop")
        assert attempt.end_reason() == "a hook asked to stop"


def test_job_json_tells_versions_of_the_code_apart(make):
    digests = []
    for model_dir, hook in (("one", BatchRows()), ("one", BatchRows()), ("other", FailAt(7))):
        estimator = make(model_dir)
        estimator.train(shuffled, [hook], steps=1)
        digests.append(JobFile(estimator.model_dir).read().facts["code_digest"])
    assert digests[0] == digests[1] != digests[2]
