"""Batches that a training loop feeds in each run of its session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from psflow.ps_runtime.data.batch_check import Batch, checked_batch
from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.data.non_finite_policy import batches_with_policy
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.model.export.receiver import Placeholder
from psflow.ps_runtime.specs.arguments import ArgumentFaults

FEED = "the fed batch"


Placeholders = Placeholder | Mapping[str, Placeholder]


class FedInput:
    """An input_fn of examples in place of batches; `batch` makes a batch of what a loop feeds.

    Raises ArgumentTypeError unless features and labels are placeholders, or mappings of them.
    """

    def __init__(self, features: Any, labels: Any) -> None:
        faults = ArgumentFaults("MonitoredTrainingSession: ")
        for name, given in (("features", features), ("labels", labels)):
            several = given.values() if isinstance(given, Mapping) and given else [given]
            if not (given is None and name == "labels") and not all(isinstance(one, Placeholder) for one in several):
                faults.add_type(f"{name} of input_fn", "a placeholder, or a mapping of str to placeholder", given)
        faults.raise_any()
        self._features: Placeholders = features
        self._labels: Placeholders | None = labels

    def __call__(self) -> Iterator[Batch]:
        """Yield examples without an end: a loop may feed any number of batches."""
        while True:
            yield _mapped(self._features, _example), None if self._labels is None else _mapped(self._labels, _example)

    def batch(self, feed_dict: Mapping[Any, Any], non_finite: NonFinite) -> Batch:
        """Return the batch of a ``feed_dict``, without the rows that are left out.

        Raises
        ------
        UsageError
            If a placeholder is not fed, or another key is.
        InputError
            If a value does not fit, or a cell is refused.
        """
        known = {id(one): one for part in (self._features, self._labels) for one in _all_of(part)}
        fed = {id(key): value for key, value in feed_dict.items()}
        faults = [f"feed_dict lacks {known[missing].spec.name}" for missing in known.keys() - fed.keys()]
        faults += [
            f"feed_dict has {key.spec.name}, which is not an input of this session"
            if isinstance(key, Placeholder)
            else f"feed_dict has {key!r}: its keys are placeholders, not their names"
            for key in feed_dict
            if id(key) not in known
        ]
        if faults:
            raise UsageError(tuple(sorted(faults)))

        def value(one: Placeholder) -> NDArray[Any]:
            return one.taken(fed[id(one)])

        labels = None if self._labels is None else _mapped(self._labels, value)
        batch = checked_batch((_mapped(self._features, value), labels), FEED)
        found = next(batches_with_policy(iter([batch]), non_finite, "feed_dict"), None)
        if found is None:
            raise InputError((f"{FEED} has no row left without the rows that non_finite={non_finite!r} drops",))
        return found


def _mapped(given: Placeholders, value: Callable[[Placeholder], Any]) -> Any:
    if isinstance(given, Placeholder):
        return value(given)
    return {name: value(one) for name, one in given.items()}


def _all_of(given: Placeholders | None) -> list[Placeholder]:
    if given is None:
        return []
    return [given] if isinstance(given, Placeholder) else list(given.values())


def _example(one: Placeholder) -> NDArray[Any]:
    return one.example
