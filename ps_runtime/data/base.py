"""The base class of input formats, frozen descriptions of data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.record_input import RecordInput


@dataclass(frozen=True, kw_only=True)
class Format(ABC):
    """Data of one form. Its fields are the configuration keys of the format.

    A field named ``path``, or with a name that ends in ``_path``, is a file; a relative path starts at the directory in
    which training was started.
    """

    suffixes: ClassVar[tuple[str, ...]]
    """Suffixes of its file names, by which a prediction detects it: ``(".csv",)``; empty: only by its name."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        parts = {name for parent in cls.__mro__[: cls.__mro__.index(Format)] for name in vars(parent)}
        missing = [part for part in ("suffixes", "read", "for_prediction") if part not in parts]
        if missing:
            raise TypeError(f"the input format {cls.__name__} does not define {', '.join(missing)}; see Format")

    @abstractmethod
    def read(self) -> Dataset | RecordInput:
        """Return the data in order, as one batch, or as tabular files that are not open yet.

        Raises
        ------
        InputError
            If they cannot be read; it names the file and the place in it.
        """

    def selecting(self, columns: Sequence[str], arrays: Sequence[str]) -> Self:
        """Return how to read these data for a trained model, which may skip everything else.

        Parameters
        ----------
        columns, arrays : sequence of str
            As in `for_prediction`.

        Notes
        -----
        By default all is read, and psflow selects by name.
        """
        return self

    @classmethod
    @abstractmethod
    def for_prediction(cls, location: str, columns: Sequence[str], arrays: Sequence[str]) -> Self:
        """Return how to read the data that a model needs: features as they are stored, without labels.

        Parameters
        ----------
        location : str
            A path or URL, or another location that the format understands.
        columns : sequence of str
            The columns of a table that the model reads; empty: all.
        arrays : sequence of str
            The arrays that the model reads, by name, if the data are not a table; empty: all.
        """

    @classmethod
    def reads_a_file(cls) -> bool:
        """Return whether a field named ``path`` gives the file to read."""
        return any(field.name == "path" for field in fields(cls))
