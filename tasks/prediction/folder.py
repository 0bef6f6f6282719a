"""The folder of a prediction: parts that appear whole, in the order of the input, and what is known of them."""

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
from psflow.tasks.prediction.owner import OutputClaim
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
"""How the names of files end that a process was writing when it was killed."""


class PredictionFolder:
    """A local folder, or any fsspec URL, that holds the parts of one prediction.

    ======================  ==========================================================================
    ``_job.json``           what is predicted with what; a folder belongs to that
    ``_index``              the record index of the input
    ``part-00000.parquet``  a part: the predictions of one partition
    ``_parts/``             for each part that is finished what is known of it, written after the part
    ``_rejects/``           records that could not be read or predicted
    ``_manifest.json``      all of these facts, written when all parts are there
    ``_SUCCESS``            empty; written last
    ======================  ==========================================================================
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._files = FileStore(url)

    def claim(self) -> OutputClaim:
        """Return what holds the folder for the time of a ``with`` block."""
        return OutputClaim(self._files)

    def check(self, job: Mapping[str, Any]) -> None:
        """Raise UsageError if the folder holds anything but parts of `job`; change nothing."""
        record = self.record()
        if record is None:
            begun = (".", "_owner", INDEX)  # what a prediction leaves that was killed as it began
            names = [name for name in self._files.names("") if not name.startswith(begun)]
            if names:
                raise UsageError(
                    (f"the output {self.shown} holds other files, such as {names[0]}: choose another folder",)
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
                    f"the output {self.shown} holds predictions of another job: choose another folder, or empty it",
                    *(f"  {line}" for line in differences),
                )
            )

    def record(self) -> dict[str, Any] | None:
        """Return what `begin` has noted; None if nothing has begun here. UsageError if that is damaged."""
        if self._files.size(JOB) is None:
            return None
        try:
            found = json.loads(self._files.read(JOB))
        except ValueError:
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("job"), dict):
            raise UsageError(
                (
                    f"{self.shown}/{JOB}, which says what was predicted, is damaged: choose another folder as output, "
                    "or empty this one",
                )
            )
        return found

    def begun(self) -> str:
        """Return what tells the prediction that has begun here from any other one."""
        return json.dumps(self.record(), sort_keys=True)

    def mark(self, owner: Owner, who: str, check: Callable[[], None]) -> OwnerMark:
        """Return the mark of the prediction of `owner`; the parameters are those of `OwnerMark`."""

        def read() -> Marked | None:
            return None if self.record() is None else Marked(self.begun(), "another prediction")

        return OwnerMark(self._files, JOB, owner, who, read, check)

    def begin(
        self, job: Mapping[str, Any], index: RecordIndex | None, about: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Make this the folder of `job`, or go on with it; remove what processes were writing when they were killed.

        Whoever calls this holds the folder. UsageError as in `check`. `about` is noted beside the job.
        """
        self.check(job)
        self._files.create()
        self._remove_unfinished()
        if self.record() is None:
            if index is not None:
                self._files.put(INDEX, index.to_bytes())
            self._files.put(JOB, json.dumps({"job": job, **about}, indent=1).encode())

    def index(self) -> RecordIndex | None:
        """Return the record index of the input; None if it is no tabular files, or nothing has begun here.

        InputError if it is damaged.
        """
        return None if self._files.size(INDEX) is None else RecordIndex.from_bytes(self._files.read(INDEX))

    def writing(self, name: str) -> AbstractContextManager[HashedStream]:
        """Give a stream whose bytes become a part after the block, or never."""
        return writing(self._files, name)

    def writing_rejects(self, part: Partition) -> AbstractContextManager[HashedStream]:
        """Give a stream whose bytes become the rejects of a partition after the block, or never."""
        return writing(self._files, f"{REJECTS}/{part.name}.jsonl")

    def note_part(self, part: Partition, facts: PartFacts) -> None:
        """Write down that a part is finished: from now on it counts."""
        self._files.put(f"{PARTS}/{part.name}.json", facts.to_json())

    def finished(self, parts: Sequence[Partition]) -> dict[int, PartFacts]:
        """Return the facts of the parts that are finished, by their numbers.

        A part counts if its facts are there, those of this partition, and its file has the size that they say.
        """
        noted = set(self._files.names(PARTS))
        found = {}
        for part in parts:
            if f"{part.name}.json" not in noted:
                continue
            try:
                facts = PartFacts.from_json(self._files.read(f"{PARTS}/{part.name}.json"))
            except ValueError:
                continue  # it is written again
            is_of_it = (facts.first_record, facts.num_records) == (part.start, part.num_records)
            if is_of_it and self._files.size(facts.name) == facts.num_bytes:
                found[part.index] = facts
        return found

    def complete(self, parts: Sequence[Partition], about: Mapping[str, Any]) -> list[PartFacts]:
        """Verify that each record is there once, then write the manifest and the mark of success; return all facts.

        Raises
        ------
        OutputError
            If a part is missing, has another size or other rows, or is there without being wanted.
        """
        found = self.finished(parts)
        missing = [part.name for part in parts if part.index not in found]
        if missing:
            raise OutputError(self.shown, f"{len(missing)} parts are missing, such as {missing[0]}")
        facts = [found[part.index] for part in parts]
        wanted = {one.name for one in facts}
        if strange := [n for n in self._files.names("") if n.startswith("part-") and n not in wanted]:
            raise OutputError(self.shown, f"{strange[0]} is none of its {len(parts)} parts")
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
        """Take back the mark of success: a part that was finished is missing."""
        self._files.remove(SUCCESS)

    @property
    def is_complete(self) -> bool:
        """Whether the mark of success is there."""
        return self._files.size(SUCCESS) is not None

    @property
    def shown(self) -> str:
        """The place of the folder as people read it."""
        return shown_path(self.url)

    def preview(self, facts: Sequence[PartFacts], num_rows: int) -> pa.Table | None:
        """Return the first rows of the first part that has some; None if none has."""
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
        """Remove what processes were writing when they were killed; what a living one writes is written again."""
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
    """Predictions that were written are not what they should be."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"predictions in {self.path} are not complete: {self.reason}; empty the folder and start again"
