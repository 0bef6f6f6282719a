"""A part of an input: records chosen by their numbers, such as those held out for evaluation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.numeric import is_number
from psflow.ps_runtime.tables.initial_rows import mix_bits


@dataclass(frozen=True, slots=True)
class InputPart:
    """The records whose numbers a hash maps into ``[start, stop)``, a part of [0, 1).

    Raises UsageError if the bounds are invalid.

    Notes
    -----
    The hash is that of SplitMix64, without a seed: a record has the same position in each run, on each machine, and
    disjoint parts have no record in common. Records that are appended to an input do not move those before them.

    Examples
    --------
    >>> InputPart(0, 0.5).has(first_record=0, num_records=8).tolist()
    [True, True, False, True, False, False, False, True]
    """

    start: float
    stop: float

    def __str__(self) -> str:
        return f"[{self.start:g}, {self.stop:g}]"

    def __post_init__(self) -> None:
        if not all(is_number(bound) for bound in (self.start, self.stop)) or not 0 <= self.start < self.stop <= 1:
            raise UsageError(
                (
                    f"part is [{self.start!r}, {self.stop!r}], expected two ascending numbers from 0 to 1, such as "
                    "[0, 0.9] for nine of ten records, and [0.9, 1] for the others",
                )
            )

    def has(self, first_record: int, num_records: int) -> NDArray[np.bool_]:
        """Return which of some consecutive records belong to it, ``(num_records,)``; an input starts with record 0."""
        places = np.arange(first_record, first_record + num_records, dtype=np.uint64)
        mix_bits(places)
        shares = (places >> np.uint64(11)) * 2.0**-53  # float64 has 53 bits
        return np.asarray((shares >= self.start) & (shares < self.stop))
