"""Map-style data sets of torch as batches that workers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset, IterableDataset, Subset, default_collate

from psflow.ps_runtime.data.elements import ElementAddress, Elements
from psflow.ps_runtime.data.lazy_dataset import LazyDataset
from psflow.ps_runtime.data.splittable import batching_faults
from psflow.ps_runtime.data.transformations import check_callable, check_flag
from psflow.ps_runtime.data.user_code import user_error
from psflow.ps_runtime.errors import InputError, did_you_mean
from psflow.ps_runtime.specs.schema_enforcement import listed_names


def batches(
    dataset: Dataset[Any],
    batch_size: int = 1,
    *,
    shuffle_seed: int | None = None,
    drop_last: bool = False,
    collate_fn: Callable[[list[Any]], Any] = default_collate,
    label: str | None = None,
) -> LazyDataset:
    """Return the examples of a map-style data set in batches, for an input_fn to return.

    Parameters
    ----------
    dataset : torch.utils.data.Dataset
        Has ``__len__`` and ``__getitem__``. Each process that reads it has its own, and calls ``__getitem__`` with
        the examples of its batches only. An example is features, or a tuple (features, labels).
    batch_size : int
        Examples of a batch, >= 1. The last batch of an epoch may be smaller.
    shuffle_seed : int or None
        >= 0: each epoch has its own order, the same in every process; None: the order of the data set.
    drop_last : bool
        Whether to leave out a last batch that is smaller.
    collate_fn : callable
        Makes a batch of a list of examples.
    label : str or None
        The name of the labels in batches that are one mapping, as those of Hugging Face are: they become
        (features, labels).

    Returns
    -------
    LazyDataset
        One epoch; its `repeat` returns several. Each example is read once per epoch over all replicas, and a resumed
        job continues at its batch.

    Raises
    ------
    InputError
        If the data set is not map-style or too small for a batch, or another argument is out of range. When it is
        read: for any error of the data set and of `collate_fn`, with the example.

    Notes
    -----
    Random transformations that use torch's global generator also change what dropout draws, and a resumed job repeats
    neither.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> for features, labels in batches(TensorDataset(torch.arange(3.0), torch.arange(3)), 2):
    ...     print(features.tolist(), labels.tolist())
    [0.0, 1.0] [0, 1]
    [2.0] [2]
    """
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise InputError(
            (
                f"batches expects a map-style data set, which has __len__ and __getitem__, got "
                f"{type(dataset).__name__}; for other data, yield batches (features, labels) from a generator input_fn",
            )
        )
    if faults := batching_faults(batch_size, None, shuffle_seed):
        raise InputError(tuple(faults))
    check_flag("batches", "drop_last", drop_last)
    check_callable("batches", collate_fn)
    if not isinstance(label, str | None):
        raise InputError((f"batches: label is {label!r}, expected the name of the labels in a batch, or None",))
    examples = Examples(dataset, collate_fn, label)
    least = batch_size if drop_last else 1
    if examples.num_elements < least:
        number = f"the {type(dataset).__name__} has {examples.num_elements} examples"
        remedy = ", or drop_last=False" if drop_last else ""
        raise InputError((f"{number}: expected at least {least}{remedy}",))
    ordered = LazyDataset(examples)
    if shuffle_seed is not None:
        ordered = ordered.shuffle(examples.num_elements, shuffle_seed)
    return ordered.batch(batch_size, drop_last)


@dataclass(frozen=True, eq=False)
class Examples(Elements):
    """The examples of a map-style data set by index."""

    dataset: Any
    collate_fn: Callable[[list[Any]], Any]
    label: str | None = None

    def count(self) -> int:
        """See `Elements`."""
        return len(self.dataset)

    def each(self, addresses: Iterable[ElementAddress]) -> Iterator[Any]:
        """See `Elements`."""
        for address in addresses:
            try:
                example = self.dataset[address.number]
            except Exception as cause:  # StopIteration, too, which would end the reading
                what = f"for {self.place(address)}"
                raise user_error(_whole(self.dataset).__getitem__, InputError, what, cause) from cause
            yield example

    def block(self, addresses: Sequence[ElementAddress]) -> Any:
        """See `Elements`."""
        examples = list(self.each(addresses))
        try:
            batch = self.collate_fn(examples)
        except Exception as cause:
            what = f"for {self.places(addresses)}"
            faults = user_error(self.collate_fn, InputError, what, cause).faults
            odd = self._first_misfit(examples)
            hint = "" if odd is None else f"; {self.place(addresses[odd])} is the first that does not fit"
            if self.collate_fn is default_collate:
                hint += "; return tensors of one shape or numbers from __getitem__, or give a collate_fn"
            raise InputError(tuple(fault + hint for fault in faults)) from cause
        if self.label is not None:
            return self._labelled(batch)
        return tuple(batch) if isinstance(batch, list) else batch

    def _labelled(self, batch: Any) -> tuple[dict[str, Any], Any]:
        """Return the features and labels of a batch that is one mapping."""
        if not isinstance(batch, Mapping):
            raise InputError(
                (
                    f"batches: label is {self.label!r}, but a batch is a {type(batch).__name__}, expected a mapping "
                    "with that name: leave label out for pairs (features, labels)",
                )
            )
        if self.label not in batch:
            near = did_you_mean(str(self.label), batch) or listed_names("array", list(batch))
            raise InputError((f"batches: label is {self.label!r}, which a batch lacks{near}",))
        features = dict(batch)
        return features, features.pop(self.label)

    def _first_misfit(self, examples: list[Any]) -> int | None:
        """Return the place of the first example that makes no batch with the first one."""
        for place, example in enumerate(examples):
            try:
                self.collate_fn([examples[0], example])
            except Exception:  # the user's code may raise anything
                return place
        return None

    def place(self, address: ElementAddress) -> str:
        """See `Elements`."""
        return f"example {address.number}"

    def is_row(self, first: ElementAddress, last: ElementAddress) -> bool:
        """See `Elements`."""
        return True


def _whole(dataset: Any) -> Any:
    """Return the data set of a subset, such as one of random_split, whose code reads the examples."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset
