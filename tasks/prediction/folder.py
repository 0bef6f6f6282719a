"""Folder of a prediction: its parts in input order, and their facts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.job_file import Owner
from psflow.ps_runtime.checkpoint.owner_mark import Marked, OwnerMark
from psflow.ps_runtime.errors import PsflowError, UsageError
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.tasks.prediction.output_claim import OutputClaim
from psflow.tasks.prediction.part_facts import PartFacts
from psflow.tasks.prediction.partitions import Partition
from psflow.tasks.prediction.parts import HashedStream, writing

if TYPE_CHECKING:
    import pyarrow as pa

JOB = "_job.json"
INDEX = "_index"
PARTS = "_parts"
REJECTS = "_rejects"
MANIFEST = "_manifest.json"
SUCCESS = "_SUCCESS"
TEMPORARY = ".tmp"
"""Suffix of unfinished files of a killed process."""


class PredictionFolder:
    """A local folder, or an ``s3://`` URL, that holds the parts of one prediction.

    ======================  ==========================================================================
    ``_job.json``           the identity of the prediction: its model, input and options
    ``_index``              the record index of the input
    ``part-00000.parquet``  a part: the predictions of one partition
    ``_parts/``             the facts of each finished part, written after the part
    ``_rejects/``           records that could not be read or predicted
    ``_manifest.json``      all of these facts, written when all parts are finished
    ``_SUCCESS``            empty; written last
    ======================  ==========================================================================
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._files = FileStore(url)

    def claim(self) -> OutputClaim:
        """Return a claim that holds the folder during a ``with`` block."""
        return OutputClaim(self._files)

    def check(self, job: Mapping[str, Any]) -> None:
        """Raise UsageError if the folder holds anything but parts of `job`; changes nothing."""
        record = self.record()
        if record is None:
            begun = (".", "_owner", INDEX)  # left by a prediction that was killed at its start
            names = [name for name in self._files.names("") if not name.startswith(begun)]
            if names:
                raise UsageError(
                    (f"the output {self.shown} holds other files, such as {names[0]}; choose another folder",)
                )
            return
        there = record["job"]
        differences = [
            f"{key} is {_shown(there.get(key))} there, here {_shown(job.get(key))}"
            for key in {**there, **job}
            if there.get(key) != job.get(key)
        ]
        if differences:
            raise UsageError(
                (
                    f"the output {self.shown} holds predictions of another job; choose another folder, or empty it",
                    *(f"  {line}" for line in differences),
                )
            )

    def record(self) -> dict[str, Any] | None:
        """Return the record of `begin`, or None without one; UsageError if it is damaged."""
        if self._files.size(JOB) is None:
            return None
        try:
            found = json.loads(self._files.read(JOB))
        except ValueError:
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("job"), dict):
            raise UsageError(
                (
                    f"{self.shown}/{JOB}, which describes the prediction, is damaged; choose another output folder, or "
                    "empty this one",
                )
            )
        return found

    def begun(self) -> str:
        """Return the unique id of the prediction in this folder."""
        return json.dumps(self.record(), sort_keys=True)

    def mark(self, owner: Owner, who: str, check: Callable[[], None]) -> OwnerMark:
        """Return the mark of the prediction of `owner`, with the parameters of `OwnerMark`."""

        def read() -> Marked | None:
            return None if self.record() is None else Marked(self.begun(), "another prediction")

        return OwnerMark(self._files, JOB, owner, who, read, check)

    def begin(
        self, job: Mapping[str, Any], index: RecordIndex | None, about: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Start or resume `job` in this folder; remove unfinished files of killed processes.

        The caller must hold the claim. UsageError as in `check`. `about` is recorded with the job.
        """
        self.check(job)
        self._files.create()
        self._remove_unfinished()
        if self.record() is None:
            if index is not None:
                self._files.put(INDEX, index.to_bytes())
            self._files.put(JOB, json.dumps({"job": job, **about}, indent=1).encode())

    def index(self) -> RecordIndex | None:
        """Return the record index of the input; None for arrays, or before `begin`.

        InputError if it is damaged.
        """
        return None if self._files.size(INDEX) is None else RecordIndex.from_bytes(self._files.read(INDEX))

    def writing(self, name: str) -> AbstractContextManager[HashedStream]:
        """Give a stream whose bytes become a part at the end of the block, unless it fails.

        The name of the part is durable with that of the manifest, in the same directory; a part that is missing before
        is written again.
        """
        return writing(self._files, name, syncs_directory=False)

    def writing_rejects(self, part: Partition) -> AbstractContextManager[HashedStream]:
        """Give a stream whose bytes become the rejects of a partition at the end of the block, unless it fails."""
        return writing(self._files, f"{REJECTS}/{part.name}.jsonl")

    def note_part(self, part: Partition, facts: PartFacts) -> None:
        """Record that a part is finished.

        The bytes of the part are durable before. After a power failure its name may be missing, and its facts may be
        missing or damaged; then it is written again.
        """
        self._files.put(f"{PARTS}/{part.name}.json", facts.to_json(), is_durable=False)

    def finished(self, parts: Sequence[Partition]) -> dict[int, PartFacts]:
        """Return the facts of the finished parts by index.

        A part is finished if its facts exist and match the partition, and its file has the recorded size.
        """
        noted = set(self._files.names(PARTS))
        found = {}
        for part in parts:
            if f"{part.name}.json" not in noted:
                continue
            try:
                facts = PartFacts.from_json(self._files.read(f"{PARTS}/{part.name}.json"))
            except ValueError:
                continue  # the part is written again
            is_of_it = (facts.first_record, facts.num_records) == (part.start, part.num_records)
            if is_of_it and self._files.size(facts.name) == facts.num_bytes:
                found[part.index] = facts
        return found

    def complete(self, parts: Sequence[Partition], about: Mapping[str, Any]) -> list[PartFacts]:
        """Verify that each record is present once, then write manifest and success mark; return all facts.

        Raises OutputError if a part is missing or unexpected, or has another size or number of rows.
        """
        found = self.finished(parts)
        missing = [part.name for part in parts if part.index not in found]
        if missing:
            raise OutputError(self.shown, f"{len(missing)} parts are missing, such as {missing[0]}")
        facts = [found[part.index] for part in parts]
        wanted = {one.name for one in facts}
        if strange := [n for n in self._files.names("") if n.startswith("part-") and n not in wanted]:
            raise OutputError(self.shown, f"{strange[0]} is not one of its {len(parts)} parts")
        for one in facts:
            if one.name.endswith(".parquet") and (num_rows := self._rows_in(one.name)) != one.rows:
                raise OutputError(f"{self.shown}/{one.name}", f"it has {num_rows} rows, expected {one.rows}")
        self._remove_unfinished()
        if self._files.size(SUCCESS) is None:
            totals = {"rows": sum(one.rows for one in facts), "rejects": sum(one.rejects for one in facts)}
            listed = [json.loads(one.to_json()) for one in facts]
            self._files.put(MANIFEST, json.dumps({**about, **totals, "parts": listed}, indent=1).encode())
            self._files.put(SUCCESS, b"")
        return facts

    def reopen(self) -> None:
        """Remove the success mark: a finished part is missing."""
        self._files.remove(SUCCESS)

    @property
    def is_complete(self) -> bool:
        """Whether the success mark exists."""
        return self._files.size(SUCCESS) is not None

    @property
    def shown(self) -> str:
        """Path of the folder for display."""
        return shown_path(self.url)

    def preview(self, facts: Sequence[PartFacts], num_rows: int) -> pa.Table | None:
        """Return the first rows of the first nonempty part; None without one."""
        from pyarrow import Table, csv, parquet

        name = next((one.name for one in facts if one.rows), None)
        if name is None:
            return None
        with self._files.fs.open(self._files.path(name), "rb") as stream:
            if name.endswith(".parquet"):
                batch = next(parquet.ParquetFile(stream).iter_batches(num_rows, use_threads=False))
            else:
                options = csv.ParseOptions(newlines_in_values=True)
                batch = csv.open_csv(stream, parse_options=options).read_next_batch()
            return Table.from_batches([batch]).slice(0, num_rows)

    def _remove_unfinished(self) -> None:
        """Remove unfinished files of killed processes; a live process writes its file again."""
        for directory in ("", PARTS, REJECTS):
            for name in self._files.names(directory):
                if name.startswith(".") and name.endswith(TEMPORARY):
                    self._files.remove(f"{directory}/{name}" if directory else name)

    def _rows_in(self, name: str) -> int:
        from pyarrow import parquet

        with self._files.fs.open(self._files.path(name), "rb") as stream:
            return int(parquet.read_metadata(stream).num_rows)


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)


@dataclass(eq=False)
class OutputError(PsflowError):
    """Written predictions are incomplete or inconsistent."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"predictions in {self.path} are not complete: {self.reason}; empty the folder and start again"
