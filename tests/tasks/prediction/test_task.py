"""The partitions of a prediction, interrupted: without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.tasks.prediction import task as module
from psflow.tasks.prediction.task import predict_partitions


@pytest.mark.parametrize(("batches", "num_rows"), [([["one"], ["two"]], 20), ([["one"]], None), ([["one", "two"]], 20)])
def test_an_interrupt_with_the_last_partition_leaves_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch, batches: list[list[str]], num_rows: int | None
) -> None:
    def completed(client: Any, futures: Any) -> Iterator[list[Any]]:
        for batch in batches:
            is_stopped.value = len(batch) + is_stopped.done == 2 or batch is batches[-1]
            is_stopped.done += len(batch)
            yield [SimpleNamespace(result=lambda: 10) for _ in batch]

    is_stopped = SimpleNamespace(value=False, done=0)
    client: Any = SimpleNamespace(submit=lambda *given, **options: None, cancel=lambda futures: None)
    job: Any = SimpleNamespace(model=None, input=None, digest="", output="")
    monkeypatch.setattr(module, "completed_batches", completed)
    monkeypatch.setattr(module, "_Progress", lambda total: SimpleNamespace(tell=lambda num_done: None))
    answer: Any = predict_partitions.fn(client, job, ["one", "two"], lambda: is_stopped.value)
    if num_rows is None:
        assert answer.name == "Cancelled"
    else:
        assert answer == num_rows
