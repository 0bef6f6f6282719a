"""Reuses the scan of an earlier attempt, or the scan of the flow in its roles, instead of reading files again."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.scanned_input import ScannedInput, model_digest
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import InputSchema

if TYPE_CHECKING:
    from psflow.ps_runtime.data.record_input import RecordInput

logger = logging.getLogger(__name__)


class KeptScan(ABC):
    """The scan of an input, as stored bytes."""

    def __init__(self, read: Callable[[], bytes | None], where: str) -> None:
        self._read = read
        self._where = where

    @abstractmethod
    def reopened(
        self, given: RecordInput, non_finite: NonFinite, schema: InputSchema | None, name: str
    ) -> RecordDataset | None:
        """Return an input as it was scanned; None if it has to be scanned.

        Raises InputError if a file cannot be read.
        """


class EarlierScan(KeptScan):
    """The scan of an earlier attempt; it is valid if neither the files nor their description have changed."""

    def reopened(
        self, given: RecordInput, non_finite: NonFinite, schema: InputSchema | None, name: str
    ) -> RecordDataset | None:
        """Return the input if nothing has changed; see `KeptScan.reopened`. A damaged scan is ignored."""
        content = self._read()
        if content is None:
            return None
        try:
            kept = ScannedInput.from_bytes(content, self._where)
        except InputError as error:
            logger.warning("%s; %s is scanned again", error, name)
            return None
        is_same = (
            not kept.left_out  # model_fn may read these columns now
            and given.asked(non_finite) == kept.asked
            and given.files() == kept.scan.index.files
            and (given.vocabularies() == kept.vocabularies if schema is None else _model_of(schema) == kept.model)
        )
        if not is_same:
            return None
        logger.info("%s has not changed since it was scanned", name)
        return RecordDataset(kept, given.batching)


class FlowScan(KeptScan):
    """The scan that the flow has made for its roles; every role must have the same input."""

    def reopened(
        self, given: RecordInput, non_finite: NonFinite, schema: InputSchema | None, name: str
    ) -> RecordDataset:
        """Return the input; see `KeptScan.reopened`.

        Raises InputError if there is no scan, it is damaged, it is of another input, or a file has changed since.
        """
        content = self._read()
        if content is None:
            raise InputError((f"{self._where} is missing, although the flow wrote it; run the command again",))
        try:
            kept = ScannedInput.from_bytes(content, self._where)
        except InputError as error:
            raise InputError((f"{error}; run the command again, which scans the files again",)) from None
        asked = given.asked(non_finite)
        if asked.paths != kept.asked.paths:
            fault = f"{name} is {_some(asked.paths)} here, but was {_some(kept.asked.paths)} in the flow"
            raise InputError((f"{fault}: expected an input_fn that returns the same input in each process",))
        if asked.description != kept.asked.description or (schema is not None and _model_of(schema) != kept.model):
            fault = f"{name} is described differently here than in the flow: its columns, label or options differ"
            raise InputError((f"{fault}; expected an input_fn that returns the same input in each process",))
        kept.scan.index.check_unchanged()
        return RecordDataset(kept, given.batching)


def _model_of(schema: InputSchema) -> str:
    return "" if schema.preprocessing is None else model_digest(schema.preprocessing, schema.text)


def _some(paths: tuple[str, ...]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more paths"
