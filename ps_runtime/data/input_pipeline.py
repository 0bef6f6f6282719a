"""Calls an input_fn and opens its result: a data set that can be split, or an iterator that one reader distributes."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.data.batch_check import Batch, check_batch, checked_batch, is_features, kind_of
from psflow.ps_runtime.data.called_input import CalledInput
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.kept_scan import KeptScan
from psflow.ps_runtime.data.lazy_batches import LazyBatches
from psflow.ps_runtime.data.lazy_dataset import LazyDataset
from psflow.ps_runtime.data.non_finite import NonFinite, policy_faults
from psflow.ps_runtime.data.non_finite_policy import batches_with_policy, dataset_with_policy
from psflow.ps_runtime.data.reading_progress import watched_call
from psflow.ps_runtime.data.record_input import RecordInput
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.data.torch_values import fault_of_torch_data, is_pair
from psflow.ps_runtime.data.transformations import Transformations
from psflow.ps_runtime.data.whole_files import whole_dataset
from psflow.ps_runtime.errors import InputError, UsageError, did_you_mean
from psflow.ps_runtime.specs.arguments import GIVE_A_FUNCTION
from psflow.ps_runtime.specs.input import MAX_EPOCHS

NOTHING_TO_ENFORCE = Enforcement()

EXPECTED = (
    "expected a Dataset, a tuple (features, labels) of arrays, features alone as an array or a dict of arrays, or an "
    "iterable of such batches"
)


@dataclass(frozen=True, slots=True)
class InputContext:
    """The input pipeline of a job that an input_fn feeds.

    Parameters
    ----------
    num_input_pipelines : int
        Number of times that the input is read in parallel, >= 1.
    input_pipeline_id : int
        Number of this pipeline, from 0.
    num_replicas_in_sync : int
        Replicas whose gradients make one update, >= 1.
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    @property
    def first_pass(self) -> int:
        """The first pass over the data: each pipeline has its own orders if they are shuffled."""
        return self.input_pipeline_id * MAX_EPOCHS

    def __post_init__(self) -> None:
        given = (self.num_input_pipelines, self.input_pipeline_id, self.num_replicas_in_sync)
        if any(type(number) is not int for number in given):
            raise InputError((f"expected whole numbers in an InputContext, got {', '.join(map(repr, given))}",))
        if not 0 <= self.input_pipeline_id < self.num_input_pipelines:
            raise InputError(
                (
                    f"expected input_pipeline_id in [0, num_input_pipelines), "
                    f"got {self.input_pipeline_id} of {self.num_input_pipelines}",
                )
            )
        if self.num_replicas_in_sync < 1:
            raise InputError((f"expected num_replicas_in_sync >= 1, got {self.num_replicas_in_sync}",))


def open_input(
    input_fn: Callable[..., Any],
    context: InputContext | None = None,
    *,
    mode: str | None = None,
    params: Mapping[str, Any] | None = None,
    config: Any = None,
    non_finite: NonFinite = "keep",
    enforcement: Enforcement = NOTHING_TO_ENFORCE,
    kept: KeptScan | None = None,
) -> SplittableInput | Iterator[Batch]:
    """Call `input_fn` and return its input in the form that the model reads, without the rows to be left out.

    Raises
    ------
    InputError
        If `input_fn` asks for an unknown argument, or returned an unsupported value; for a cell that `non_finite`
        refuses; or if the input does not fit the schema. For a stream the last two are raised at the batch.
    UsageError
        If `non_finite` is unknown.
    """
    if faults := policy_faults("non_finite", non_finite):
        raise UsageError(tuple(faults))
    schema = None if mode == "train" else enforcement.schema
    called = call_input_fn(input_fn, context, mode=mode, params=params, config=config, input_schema=schema)
    where = f"input_fn {called.__qualname__}"
    result = called.read_to_the_end()()
    if mode not in (None, "train") and isinstance(result, Transformations):
        result = result.one_epoch()
    opened = _as_input(result, where, 0 if context is None else context.first_pass)
    if isinstance(opened, RecordInput):
        if enforcement.schema is None or enforcement.schema.preprocessing is not None:
            return enforcement.records(opened, non_finite, kept)
        opened = whole_dataset(opened, enforcement.schema, enforcement.where, needs_labels=enforcement.needs_labels)
    # Cells that the model does not read do not count. Rows are left out before values are cast: a missing value
    # among integers is NaN, which a schema of integers refuses.
    if isinstance(opened, LazyDataset):
        return LazyBatches(opened, where, non_finite, enforcement)
    if isinstance(opened, Dataset):
        enforcement = enforcement.for_dataset(opened)
        return enforcement.dataset(dataset_with_policy(enforcement.selected(opened), non_finite, where))
    return _enforced(opened, where, non_finite, enforcement)


def _enforced(batches: Iterator[Batch], where: str, non_finite: NonFinite, enforcement: Enforcement) -> Iterator[Batch]:
    for first in batches:
        enforcement = enforcement.for_batch(*first)
        selected = enforcement.selected_batches(itertools.chain([first], batches))
        yield from enforcement.batches(batches_with_policy(selected, non_finite, where))


def _name(input_fn: Any) -> str:
    if isinstance(input_fn, functools.partial):
        return _name(input_fn.func)
    return getattr(input_fn, "__qualname__", None) or repr(input_fn)


def call_input_fn(input_fn: Callable[..., Any], context: InputContext | None = None, **offered: Any) -> CalledInput:
    """Call `input_fn` with the arguments that its signature names.

    Raises InputError if `input_fn` cannot be called, asks for an unknown argument, or returned a data set of torch.
    """
    if not callable(input_fn):
        raise InputError((f"expected an input_fn to call, got {kind_of(input_fn)}; {GIVE_A_FUNCTION}",))
    name = _name(input_fn)
    arguments = _arguments(input_fn, {"input_context": context, **offered}, f"input_fn {name}")
    with watched_call(f"the input_fn {name}"):
        result = input_fn(**arguments)
    opened = result() if inspect.isgeneratorfunction(result) else result
    if fault := fault_of_torch_data(opened):
        raise InputError((f"input_fn {name} returned {fault}",))
    return CalledInput(name, opened, input_fn, takes_context="input_context" in arguments)


def _as_input(result: Any, where: str, first_pass: int) -> Dataset | RecordInput | LazyDataset | Iterator[Batch]:
    if isinstance(result, tuple):
        return _one_batch(result, where)
    if isinstance(result, Dataset) and not result.is_batched and result.batch_size == 1 < result.num_records:
        raise _not_batched(where)
    if isinstance(result, Dataset | RecordInput):
        return result
    if isinstance(result, Transformations):
        return _batched(result, where, first_pass)
    if is_features(result):
        return _one_batch((result, None), where)
    if isinstance(result, list) and not all(isinstance(batch, tuple) or is_pair(batch) for batch in result):
        raise InputError((f"{where} returned {kind_of(result)} of other things than tuples: {EXPECTED}",))
    if not isinstance(result, Iterable) or isinstance(result, str | bytes):
        raise InputError((f"{where} returned {kind_of(result)}: {EXPECTED}",))
    return _checked(result, where)


def _arguments(input_fn: Callable[..., Any], offered: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Choose the arguments that `input_fn` asks for; others use its own defaults."""
    try:
        parameters = inspect.signature(input_fn).parameters.values()
    except (TypeError, ValueError):  # some callables of extension modules have no signature
        return {}
    already_bound = input_fn.keywords if isinstance(input_fn, functools.partial) else {}
    arguments: dict[str, Any] = {}
    faults = []
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or p.name in already_bound:
            continue
        required = p.default is p.empty
        if p.name in offered and p.kind is not p.POSITIONAL_ONLY:
            if required or offered[p.name] is not None:
                arguments[p.name] = offered[p.name]
        elif required:
            faults.append(
                f"{where} asks for {p.name!r}: expected def input_fn({', '.join(offered)}), each by name and "
                f"only if needed{did_you_mean(p.name, offered)}"
            )
    if faults:
        raise InputError(tuple(faults))
    return arguments


def _one_batch(result: tuple[Any, ...], where: str) -> Dataset:
    if len(result) != 2 or isinstance(result[0], tuple):
        raise InputError((f"{where} returned {kind_of(result)}: {EXPECTED} (as a list if there are several)",))
    dataset = Dataset(*check_batch(*result, where))
    return dataset.batch(dataset.num_records)


def _checked(batches: Iterable[Any], where: str) -> Iterator[Batch]:
    return (checked_batch(given, f"batch {number} of {where}") for number, given in enumerate(batches))


def _batched(data: Transformations, where: str, first_pass: int) -> LazyDataset | Iterator[Batch]:
    """Return the batches of a computed data set; an empty one becomes an empty stream."""
    if not data.is_batched:
        raise _not_batched(
            where,
            ", or, if its elements are already batches, as those of a generator, a map or an "
            "interleave may make them, return iter(data_set)",
        )
    lazy = data.by_number()
    return lazy if lazy is not None and lazy.elements.num_elements else _checked(data.stream().read(first_pass), where)


def _not_batched(where: str, otherwise: str = "") -> InputError:
    return InputError((f"{where} returned a data set without a batch size; call its batch(batch_size){otherwise}",))
