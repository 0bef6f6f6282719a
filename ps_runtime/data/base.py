"""What an input format is: a frozen description of some data, which reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.record_input import RecordInput


@dataclass(frozen=True, kw_only=True)
class Format(ABC):
    """Data of one form. Its fields are the keys that a configuration has for it.

    A field named ``path``, or with a name that ends in ``_path``, is a file: a relative one is that of the directory
    where training was started.
    """

    suffixes: ClassVar[tuple[str, ...]]
    """How the names of its files end, by which a prediction knows it: ``(".csv",)``; empty: only by its name."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        parts = {name for parent in cls.__mro__[: cls.__mro__.index(Format)] for name in vars(parent)}
        missing = [part for part in ("suffixes", "read", "for_prediction") if part not in parts]
        if missing:
            raise TypeError(f"the input format {cls.__name__} does not define {', '.join(missing)}; see Format")

    @abstractmethod
    def read(self) -> Dataset | RecordInput:
        """Return the data in their order, as one batch, or files of records that are yet to be opened.

        Raises
        ------
        InputError
            If they cannot be read; it names the file and the place in it.
        """

    def selecting(self, columns: Sequence[str], arrays: Sequence[str]) -> Self:
        """Return how to read these data for a model that is trained already: what else there is need not be read.

        Parameters
        ----------
        columns, arrays : sequence of str
            As in `for_prediction`.

        Notes
        -----
        By default all is read. psflow then takes from it what the model reads, by name.
        """
        return self

    @classmethod
    @abstractmethod
    def for_prediction(cls, location: str, columns: Sequence[str], arrays: Sequence[str]) -> Self:
        """Return how to read what a model needs of some data: features as they are stored, no labels.

        Parameters
        ----------
        location : str
            A path or URL, or another location that the format understands.
        columns : sequence of str
            The columns of a table that the model reads; empty: all there are.
        arrays : sequence of str
            The arrays by name that the model reads, where the data are no table; empty: all there are.
        """

    @classmethod
    def reads_a_file(cls) -> bool:
        """Return whether a field named ``path`` says which file is read."""
        return any(field.name == "path" for field in fields(cls))
