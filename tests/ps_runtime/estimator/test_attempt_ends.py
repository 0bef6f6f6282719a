"""An attempt releases its job even if its caller no longer waits, or a store hangs."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from psflow.ps_runtime.checkpoint.job_file import JobFile, JobRecord
from psflow.ps_runtime.errors import ModelDirError
from psflow.ps_runtime.estimator import attempt as module
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.model.training import TrainSpec
from tests.ps_runtime.estimator.regression import shuffled


class Hanging:
    """Replaces a lease renewal: hangs until it may continue, and then finds the job lost."""

    def __init__(self) -> None:
        self.has_begun, self.goes_on = threading.Event(), threading.Event()

    def renew(self, file: JobFile) -> JobRecord:
        self.has_begun.set()
        self.goes_on.wait()
        raise ModelDirError(("another's by now",))


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Hanging:
    hanging = Hanging()
    monkeypatch.setattr(module, "RENEW_SECS", 0.001)
    monkeypatch.setattr(module, "JOIN_SECS", 0.01)
    monkeypatch.setattr(JobFile, "renew", lambda file: hanging.renew(file))
    return hanging


def is_free(attempt: Attempt) -> bool:
    record = JobFile(attempt.model_dir).read()
    assert record is not None
    return record.owner is None


def interrupt(timeout_secs: float | None = None) -> None:
    raise KeyboardInterrupt


def test_who_does_not_wait_for_a_sign_of_life_lets_go_of_the_job(make) -> None:
    attempt = Attempt(make(), TrainSpec(shuffled, 3), None)
    with pytest.raises(KeyboardInterrupt), attempt:
        renewer, attempt._renewer = attempt._renewer, SimpleNamespace(join=interrupt)
    renewer.join()
    assert is_free(attempt)


def test_a_sign_of_life_that_hangs_does_not_keep_the_job(make, hanging: Hanging) -> None:
    attempt = Attempt(make(), TrainSpec(shuffled, 3), None)
    with attempt:
        assert hanging.has_begun.wait(200)
        renewer = attempt._renewer
    assert renewer.is_alive()
    assert is_free(attempt)
    hanging.goes_on.set()
    renewer.join(200)
    assert not renewer.is_alive()


def test_a_loss_of_an_earlier_claim_is_not_one_of_the_next(
    make, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = Attempt(make(), TrainSpec(shuffled, 3), None)
    with attempt:
        assert hanging.has_begun.wait(200)
        renewer = attempt._renewer
    monkeypatch.setattr(module, "RENEW_SECS", 200)
    with attempt:
        hanging.goes_on.set()
        renewer.join(200)
        attempt.check()
