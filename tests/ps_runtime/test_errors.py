"""Errors as people and other processes get them: whole sentences, which survive pickling."""

from __future__ import annotations

import pickle

import pytest

from psflow.ps_runtime.errors import CapacityError, ConfigError, PsflowError, RefusedError, WaitTimeoutError


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (WaitTimeoutError("ps-0", "start listening", 60.0), "ps-0 did not start listening within 60 s"),
        (
            WaitTimeoutError("the Prefect API", "answer", 0.5, "timed out; start it"),
            "the Prefect API did not answer within 0.5 s: timed out; start it",
        ),
        (RefusedError("ps-0", "key", "the token is wrong"), "ps-0 refused: the token is wrong"),
        (ConfigError(("one fault", "another")), "one fault\nanother"),
        (
            CapacityError(4, 2, "the cluster"),
            "the job has 4 roles, but the cluster has 2 free slots; "
            "start more Dask workers, or ask for fewer roles (cluster.ps, cluster.workers)",
        ),
    ],
)
def test_an_error_is_a_sentence_that_survives_pickling(error: PsflowError, sentence: str) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(error) == str(copy) == sentence
