"""Reads an open text file in chunks that end with a record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping

from psflow.ps_runtime.tabular_files.base import CHUNK_BYTES, ChunkRange, OpenRecords, RecordError
from psflow.ps_runtime.tabular_files.files import DataFile, open_file, read_bytes

INFERRED_ROWS = 10_000
"""The types of text are inferred over this number of rows, of at most `CHUNK_BYTES`."""
MAX_RECORD_BYTES = 16 * 1024**2
"""A longer record is refused, probably caused by an unclosed quote."""

BOM = b"\xef\xbb\xbf"
OTHER_CONTENT = {
    b"\x1f\x8b": "is compressed by gzip: decompress it first, or convert it to Parquet",
    b"BZh": "is compressed by bzip2: decompress it first, or convert it to Parquet",
    b"\xfd7zXZ\0": "is compressed by xz: decompress it first, or convert it to Parquet",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd: decompress it first, or convert it to Parquet",
    b"PK\x03\x04": "is a zip file, as spreadsheets are: export it as CSV or Parquet",
    b"PAR1": "is a Parquet file, not text: read it as such",
    b"ARROW1": "is an Arrow file, not text: read it as such",
    b"\xff\xfe\0\0": "is UTF-32: convert it to UTF-8",
    b"\xff\xfe": "is UTF-16: convert it to UTF-8",
    b"\xfe\xff": "is UTF-16: convert it to UTF-8",
}
"""First bytes of files that are not supported text, and what to do."""


class OpenText(OpenRecords):
    """An open file of text.

    Raises InputError or RecordError if it cannot be read, or is not text.
    """

    def __init__(self, file: DataFile) -> None:
        self.file = file
        self._opened = open_file(file)
        self._last: tuple[ChunkRange, bytes] = (ChunkRange(0, 0), b"")
        try:
            head = read_bytes(file, self._opened, 0, min(file.size, 8))
            for magic, what in OTHER_CONTENT.items():
                if head.startswith(magic):
                    raise RecordError(f"the file {what}")
        except BaseException:
            self.close()
            raise
        self.first_byte = len(BOM) if head.startswith(BOM) else 0
        """The start of the first record."""

    @abstractmethod
    def record_end(self, text: bytes) -> int:
        """Return the end of the last whole record of `text`; 0 if there is none."""

    @abstractmethod
    def check_end(self, text: bytes) -> None:
        """Raise RecordError if the file cannot end with `text`."""

    def places(self, chunk_bytes: int) -> Iterator[ChunkRange]:
        """Yield the range of each chunk; see `OpenRecords.places`."""
        start = self.first_byte
        while start < self.file.size:
            place = self.place_from(start, chunk_bytes)
            yield place
            start = place.stop

    def place_from(self, start: int, chunk_bytes: int) -> ChunkRange:
        """Return the range of the chunk that begins at a byte: about `chunk_bytes`, at least one record."""
        length = chunk_bytes
        while start + length < self.file.size:
            text = read_bytes(self.file, self._opened, start, start + length)
            if end := self.record_end(text):
                self._last = ChunkRange(start, start + end), text[:end]
                return self._last[0]
            if length >= MAX_RECORD_BYTES:
                raise RecordError(
                    f"the record is longer than {MAX_RECORD_BYTES} bytes; is a quote in it not closed?", record=0
                )
            length = min(2 * length, max(MAX_RECORD_BYTES, chunk_bytes))
        text = read_bytes(self.file, self._opened, start, self.file.size)
        self.check_end(text)
        self._last = ChunkRange(start, self.file.size), text
        return self._last[0]

    def text_of(self, place: ChunkRange) -> bytes:
        """Return the bytes of a chunk."""
        if self._last[0] != place:
            self._last = place, read_bytes(self.file, self._opened, *place)
        return self._last[1]

    def inferred_text(self) -> bytes:
        """Return the first records of the file, over which types are inferred; empty if it has none."""
        if self.first_byte == self.file.size:
            return b""
        return self.text_of(self.place_from(self.first_byte, CHUNK_BYTES))

    def parts(self, place: ChunkRange) -> tuple[ChunkRange, ...]:
        """Return the halves of a chunk, divided near its middle; see `OpenRecords.parts`."""
        text = self.text_of(place)
        length = len(text) // 2
        while 0 < length < len(text):
            if end := self.record_end(text[:length]):
                middle = place.start + end
                return ChunkRange(place.start, middle), ChunkRange(middle, place.stop)
            length += max(1, (len(text) - length) // 2)
        return ()

    def text(self, place: ChunkRange) -> str:
        """Return a chunk as text, with invalid bytes replaced."""
        return self.text_of(place).decode("utf-8", "replace")

    def check_types(self, types: Mapping[str, str]) -> None:
        """Accept all: text has no types before it is read."""

    def bytes_up_to(self, place: ChunkRange) -> int:
        """Return how many bytes of the file have been read after the chunk."""
        return place.stop

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._opened.close()
