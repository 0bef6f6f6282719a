"""Supplies the steps of a training replica with tickets, batches and values, and takes its gradients.

A replica pulls, computes and pushes in turn, or it is one ahead: it has the next ticket, and pulls for it while it
computes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.client.push_writer import Gradients
from psflow.ps_runtime.client.training import Grant, JobEnd, TrainingClient
from psflow.ps_runtime.model.calls.gradients import StepResult
from psflow.ps_runtime.model.calls.scope import KeyPath
from psflow.ps_runtime.model.lookups import Lookups
from psflow.ps_runtime.specs.input import RecordRange
from psflow.ps_runtime.specs.variables import TableSpec


class Reader(Protocol):
    """Reads the batch of a grant."""

    def read(self, records: RecordRange) -> tuple[Any, Any] | None:
        """Return features and labels, or None if the input ended before them."""

    def name_of(self, records: RecordRange) -> str:
        """Return the name of the batch of `records` in error messages."""

    def first_non_finite_cell(self, records: RecordRange, batch: tuple[Any, Any]) -> str:
        """Return column and row of a missing, NaN or infinite value in the batch of `records`, or ""."""


@dataclass(slots=True)
class Work:
    """A ticket, its batch, and the known ids in it."""

    grant: Grant
    batch: tuple[Any, Any]
    lookups: Lookups = field(default_factory=Lookups)
    versions: tuple[int, ...] = ()
    """Of each shard, as pulled for it; empty before that."""


class KnownIds:
    """The ids of tables that are known before model_fn is called, so that all rows are pulled at once."""

    def __init__(self, tables: Sequence[TableSpec], table_features: Mapping[str, Sequence[KeyPath]]) -> None:
        found = [(table, table_features.get(table.name, ())) for table in tables]
        self.are_known = all(len(paths) == 1 for _, paths in found)
        self._paths = [(table, paths[0]) for table, paths in found] if self.are_known else []

    def of(self, work: Work) -> dict[str, NDArray[np.int64]]:
        """Return the unique ids that `work` will look up, by table; empty if they are not known.

        Raises InputError if an id is not in its table.
        """
        if not self._paths:
            return {}
        features, lookups = work.batch[0], work.lookups
        return {table.name: lookups.of(table, _at(features, path)).unique for table, path in self._paths}


def next_work(client: TrainingClient, reader: Reader, answer: Grant | JobEnd) -> Work | JobEnd:
    """Read the batch of a grant; where a stream has ended, ask for the next answer. Blocks."""
    while isinstance(answer, Grant):
        batch = reader.read(answer.records)
        if batch is not None:
            return Work(answer, batch)
        answer = client.next_grant()
    return answer


class StepSource(ABC):
    """Supplies work and its values, and takes the gradients.

    Each step is `pull`, `compute`, `push`, `following`, in this order, for one piece of work; `push` may be left out.

    Notes
    -----
    Not thread-safe.
    """

    @abstractmethod
    def pull(self, work: Work) -> None:
        """Pull the values for `work`. Blocks."""

    @abstractmethod
    def compute(self, work: Work) -> StepResult:
        """Return the result of model_fn for `work`; its gradients are valid until they are pushed."""

    @abstractmethod
    def push(self, work: Work, result: StepResult, num_examples: int) -> tuple[int, int | None]:
        """Push the gradients of `work`. Blocks."""

    @abstractmethod
    def following(self) -> Work | JobEnd:
        """Return the work after this step: the same ticket if nothing was pushed for it. Blocks."""


@final
class InTurn(StepSource):
    """Pulls, computes and pushes in turn: each gradient is computed on the result of the last push."""

    _answer: Grant | JobEnd
    """Last answer of ps-0, from the first pull on."""

    def __init__(
        self, client: TrainingClient, reader: Reader, call_model_fn: Callable[[Work], StepResult], known: KnownIds
    ) -> None:
        self._client = client
        self._reader = reader
        self._call_model_fn = call_model_fn
        self._known = known

    def pull(self, work: Work) -> None:  # noqa: D102
        self._answer = work.grant
        self._client.start_pull(self._known.of(work))
        work.versions = self._client.finish_pull()

    def compute(self, work: Work) -> StepResult:  # noqa: D102
        return self._call_model_fn(work)

    def push(self, work: Work, result: StepResult, num_examples: int) -> tuple[int, int | None]:  # noqa: D102
        self._client.start_push(result.gradients, result.learning_rates, num_examples, work.versions)
        answer = self._client.finish_push()
        assert answer is not None, "a replica that holds no other ticket is answered with one, or with the end"
        self._answer = answer
        return answer.global_step, answer.staleness if isinstance(answer, Grant) else None

    def following(self) -> Work | JobEnd:  # noqa: D102
        return next_work(self._client, self._reader, self._answer)


@final
class OneAhead(StepSource):
    """Reads the next batch and pulls for it while a gradient is computed: each gradient is staler by one.

    Where there is no further ticket now, a step is as `InTurn`.
    """

    _answer: Grant | JobEnd
    """Last answer of ps-0 while no further ticket was held."""

    def __init__(
        self, client: TrainingClient, reader: Reader, call_model_fn: Callable[[Work], StepResult], known: KnownIds
    ) -> None:
        self._client = client
        self._reader = reader
        self._call_model_fn = call_model_fn
        self._known = known
        self._ahead: Work | None = None
        """The work after the present one."""
        self._further: Grant | None = None
        """The ticket after that, which came as the answer to a push."""

    def pull(self, work: Work) -> None:  # noqa: D102
        self._answer = work.grant
        if not work.versions:  # otherwise that was done while the last gradient was computed
            self._client.start_pull(self._known.of(work))
            work.versions = self._client.finish_pull()
        self._ahead = self._look_ahead()

    def compute(self, work: Work) -> StepResult:  # noqa: D102
        ahead = self._ahead
        if ahead is None:
            return self._call_model_fn(work)
        if self._known.are_known:
            self._client.start_pull(self._known.of(ahead))
        result = self._call_model_fn(work)
        result = result._replace(gradients=_kept(result.gradients))
        if not self._known.are_known:
            self._client.start_pull()
        ahead.versions = self._client.finish_pull()
        return result

    def push(self, work: Work, result: StepResult, num_examples: int) -> tuple[int, int | None]:  # noqa: D102
        self._client.start_push(result.gradients, result.learning_rates, num_examples, work.versions)
        answer = self._client.finish_push()
        ahead = self._ahead
        if ahead is None:
            assert answer is not None, "a replica that holds no other ticket is answered with one, or with the end"
            self._answer = answer
        elif answer is None:
            return ahead.grant.global_step, None
        elif isinstance(answer, Grant):
            self._further = answer
        return answer.global_step, answer.staleness if isinstance(answer, Grant) else None

    def following(self) -> Work | JobEnd:  # noqa: D102
        return next_work(self._client, self._reader, self._answer) if self._ahead is None else self._ahead

    def _look_ahead(self) -> Work | None:
        """Return the work after this step, if there is a ticket for it now."""
        grant = self._further or self._client.further_grant()
        self._further = None
        if not isinstance(grant, Grant):
            return None
        batch = self._reader.read(grant.records)
        assert batch is not None, "a stream has no pipeline"
        return Work(grant, batch)


def _kept(gradients: Gradients) -> Gradients:
    """Return `gradients` safe from later pulls: a read-only array may be a view of a variable."""
    return {
        name: gradient.copy() if isinstance(gradient, np.ndarray) and not gradient.flags.writeable else gradient
        for name, gradient in gradients.items()
    }


def _at(features: Any, path: KeyPath) -> Any:
    for key in path:
        features = features[key]
    return features
