"""The client of a training replica: pull, push, next batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps_runtime.client.link import Links
from ps_runtime.errors import InputError, RefusedError
from ps_runtime.server.input_position import RecordRange
from ps_runtime.specs.layout import piece_views, place
from ps_runtime.specs.variables import ModelSpec
from ps_runtime.transport.message import Kind, Message
from ps_runtime.transport.payloads import GRANT, PushBuffer, PushLayout

__all__ = ["Grant", "JobEnd", "TrainingClient"]

REPLY_TIMEOUT_SECS = 60.0
"""For replies that no ps ever holds."""
HOLD_TIMEOUT_SECS = 7200.0
GOOD_BYE_SECS = 5.0


@dataclass(frozen=True, slots=True)
class Grant:
    """The permission for one push, and the batch to compute it on; `staleness` is that of the last push."""

    global_step: int
    records: RecordRange
    staleness: int


@dataclass(frozen=True, slots=True)
class JobEnd:
    """No more pushes: the job is finished."""

    global_step: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a piece of a variable lies: its rows, and its views in the pulled arena and in the push."""

    shard: int
    piece: int
    rows: slice | None
    pulled: NDArray[Any]
    gradient: NDArray[Any] | None


class TrainingClient:
    """Pulls and pushes all shards of a model.

    Parameters
    ----------
    links : Links
        Opened, with the purpose TRAIN.
    model : ModelSpec
    start_timeout_secs : float
        How long ps-0 may hold the first grant: until the variables have their values.
    hold_timeout_secs : float
        How long it may hold a later one: while a cut is made, or while others use the last tickets.

    Notes
    -----
    Not thread-safe. `variables` holds views that `pull` refreshes in place; with one worker the whole is deterministic.
    """

    def __init__(
        self, links: Links, model: ModelSpec, start_timeout_secs: float, hold_timeout_secs: float = HOLD_TIMEOUT_SECS
    ) -> None:
        self._links = links
        self._grant_timeout_secs = start_timeout_secs
        self._hold_timeout_secs = hold_timeout_secs
        self._layouts = place(model, len(links))
        self._arenas = [np.zeros(layout.nbytes, np.uint8) for layout in self._layouts]
        self._pushes = [PushBuffer(PushLayout.of(layout, len(model.optimizers))) for layout in self._layouts]
        self._versions = [0] * len(links)
        self._sequence = links[0].sequence
        self._log = b""
        """What was decided about pushes, which other ps may not have heard of yet."""
        self._places = self._find_places()
        self._split = {v.name: np.zeros(v.shape, v.dtype) for v in model.variables if len(self._places[v.name]) > 1}
        self.variables: Mapping[str, NDArray[Any]] = {
            name: self._split.get(name, places[0].pulled) for name, places in self._places.items()
        }

    def pull(self) -> None:
        """Refresh `variables`: one version of each shard. Blocks."""
        for link in self._each():
            self._links[link].send(Message(Kind.PULL, body=self._log if link else b""))
        for link in self._each():
            into = self._arenas[link].data
            reply = self._links[link].receive("the parameters", REPLY_TIMEOUT_SECS, into)
            self._versions[link] = reply.version
        for name, whole in self._split.items():
            for place_ in self._places[name]:
                whole[place_.rows] = place_.pulled

    def push(
        self, gradients: Mapping[str, NDArray[Any]], learning_rates: Sequence[float], num_examples: int
    ) -> Grant | JobEnd:
        """Push one gradient: to the other shards first, then to ps-0, which decides on it. Blocks.

        Before the next push there must be a pull: it tells the other shards what ps-0 has decided.

        Parameters
        ----------
        gradients : mapping of variable name to array
            Variables that are not named are left alone.
        learning_rates : sequence of float
            Of each optimizer of the model.
        num_examples : int
            Rows of the batch.

        Returns
        -------
        Grant or JobEnd
            What to do next.
        """
        sequence = self._sequence + 1
        self._fill(gradients, learning_rates, num_examples)
        for index in self._each(beyond_ps_0=True):
            self._links[index].send(self._push_message(index, sequence))
        for index in self._each(beyond_ps_0=True):
            self._links[index].receive("to take a push", REPLY_TIMEOUT_SECS)
        answer = self._granted(self._push_message(0, sequence), "the next ticket")
        self._sequence = sequence
        return answer

    def next_grant(self) -> Grant | JobEnd:
        """Ask for a ticket when holding none: at the start, or when a stream ended. Blocks."""
        return self._granted(Message(Kind.NEXT), "the first ticket")

    def stop(self, reason: str) -> JobEnd | Grant:
        """Give the ticket back and ask the job to end. Blocks until it has."""
        return self._granted(Message.of(Kind.STOP, {"reason": reason}), "the end of the job")

    def fetch(self, index: int) -> memoryview | None:
        """Fetch batch `index` of a stream; None if the stream ended before it. Blocks.

        Raises
        ------
        InputError
            If the input_fn failed.
        """
        message = Message(Kind.FETCH, step=index)
        try:
            reply = self._links[0].request(message, "a batch of the input", self._hold_timeout_secs)
        except RefusedError as error:
            if error.code == "input":
                raise InputError((error.reason,)) from error
            raise
        return memoryview(reply.body) if reply.kind is Kind.BATCH else None

    def request_cut(self) -> None:
        """Ask for a cut as soon as the tickets given are used. For the chief alone."""
        self._links[0].request(Message(Kind.REQUEST_CUT), "to prepare a cut", REPLY_TIMEOUT_SECS)

    def leave(self) -> None:
        """Tell every ps that this replica will not come back. The job is over: a ps that is gone is no error."""
        for index in range(len(self._links)):
            self._links[index].say_last(Message(Kind.LEAVE), GOOD_BYE_SECS)

    def statistics(self) -> dict[str, Any]:
        """Return counters, as plain data."""
        return self._links.statistics() | {"pushes": self._sequence, "versions": list(self._versions)}

    def _find_places(self) -> dict[str, list[_Place]]:
        places: dict[str, list[_Place]] = {}
        for shard, layout in enumerate(self._layouts):
            pulled = piece_views(layout, self._arenas[shard])
            gradients = piece_views(layout, self._pushes[shard].gradients)
            for index, piece in enumerate(layout.pieces):
                rows = slice(piece.row_start, piece.row_stop) if piece.shape else None
                gradient = gradients[index] if index < len(gradients) else None
                places.setdefault(piece.variable, []).append(_Place(shard, index, rows, pulled[index], gradient))
        return places

    def _each(self, beyond_ps_0: bool = False) -> list[int]:
        """Return the shards that hold something; ps-0 counts always, because it commits."""
        return [i for i, layout in enumerate(self._layouts) if (not i and not beyond_ps_0) or (i and layout.nbytes)]

    def _fill(self, gradients: Mapping[str, NDArray[Any]], learning_rates: Sequence[float], num_examples: int) -> None:
        for push in self._pushes:
            push.mask[:] = 0
            push.learning_rates[:] = learning_rates
            push.num_examples = num_examples
        for name, gradient in gradients.items():
            places = self._places[name]
            for place_ in places:
                assert place_.gradient is not None
                part = gradient if len(places) == 1 else gradient[place_.rows]
                np.copyto(place_.gradient, part, casting="same_kind")
                self._pushes[place_.shard].mask[place_.piece] = 1

    def _push_message(self, index: int, sequence: int) -> Message:
        body = self._pushes[index].bytes.data
        return Message(Kind.PUSH, sequence=sequence, version=self._versions[index], body=body)

    def _granted(self, message: Message, what: str) -> Grant | JobEnd:
        reply = self._links[0].request(message, what, self._grant_timeout_secs)
        self._grant_timeout_secs = self._hold_timeout_secs
        if reply.kind is Kind.FINISHED:
            return JobEnd(reply.step)
        step, epoch, start, stop, staleness = GRANT.unpack_from(reply.body)
        self._log = bytes(reply.body[GRANT.size :])
        return Grant(step, RecordRange(epoch, start, stop), staleness)
