"""Errors as people and other processes get them: whole sentences, which survive pickling."""

from __future__ import annotations

import pickle

import pytest

from psflow.ps_runtime.errors import (
    CapacityError,
    CellError,
    ClusterError,
    ConfigError,
    NanGradientError,
    PsflowError,
    RefusedError,
    StorageError,
    WaitTimeoutError,
)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (WaitTimeoutError("ps-0", "start listening", 60.0), "ps-0 did not start listening within 60 s"),
        (
            WaitTimeoutError("the Prefect API", "answer", 0.5, "timed out; start it"),
            "the Prefect API did not answer within 0.5 s: timed out; start it",
        ),
        (RefusedError("ps-0", "key", "the token is wrong"), "ps-0 refused: the token is wrong"),
        (
            ClusterError(4, "only 3 of 4 Dask workers started within 60 s"),
            "a Dask cluster of 4 workers did not start on this machine: only 3 of 4 Dask workers started within 60 s; "
            "check that this machine has enough memory, then run the same command again",
        ),
        (
            StorageError("/d/x", "No space left on device", 2_000_000),
            "/d/x could not be written: No space left on device (2.0 MB are free); free some space, "
            "or correct the permissions of /d/x, then run the same command again",
        ),
        (
            NanGradientError("worker-0", "items", 7, float("inf"), 40),
            "worker-0 computed a gradient of row 7 of table 'items' that is inf at global_step 40, although the loss "
            "is finite; look for a logarithm or root of 0, or a division by 0, in model_fn, or lower the learning rate",
        ),
        (
            CellError("age", 7, "expected a number, got 'x'"),
            "column 'age', row 7 (counted from 0): expected a number, got 'x'",
        ),
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
