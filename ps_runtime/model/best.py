"""Compares evaluation results, and records the best one."""

from __future__ import annotations

import inspect
import json
import math
from collections import UserDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.typed_json import as_kind, from_json, metrics_from_json, metrics_to_json
from psflow.ps_runtime.errors import ArgumentTypeError, CheckpointError, UsageError, did_you_mean
from psflow.ps_runtime.numeric import is_number
from psflow.ps_runtime.specs.arguments import ArgumentFaults

CompareFn = Callable[..., Any]
"""``compare_fn(best_eval_result, current_eval_result)``: whether the current one is better."""

ARGUMENTS = ("best_eval_result", "current_eval_result")


@dataclass(frozen=True, slots=True)
class Better:
    """Compares one metric; NaN and infinity are worse than any number; equal values are not better. See `better`."""

    metric: str
    mode: Literal["min", "max"]
    key: str = "compare_fn"
    """The setting that names the metric, for errors."""

    def __call__(self, best_eval_result: Mapping[str, float], current_eval_result: Mapping[str, float]) -> bool:
        """Return whether the current result is strictly better than the best one."""
        best, current = self._value(best_eval_result), self._value(current_eval_result)
        if not (math.isfinite(best) and math.isfinite(current)):
            return math.isfinite(current)
        return current < best if self.mode == "min" else current > best

    def _value(self, metrics: Mapping[str, float]) -> float:
        if not isinstance(metrics, Mapping):
            raise ArgumentTypeError((f"{self.key}: expected the metrics of an evaluation by name, got {metrics!r}",))
        self.check(metrics)
        value = metrics[self.metric]
        if not is_number(value):
            expected = "one number, as in an evaluation"
            raise ArgumentTypeError((f"{self.key}: metric {self.metric!r} is {value!r}, expected {expected}",))
        return float(value)

    def check(self, metrics: Collection[str]) -> None:
        """Raise UsageError if `metrics` lacks the compared metric."""
        if self.metric not in metrics:
            known = sorted({*metrics} - {"global_step"})
            near = did_you_mean(self.metric, known)
            raise UsageError(
                (f"{self.key}: the evaluation has {', '.join(known)}, but no metric {self.metric!r}{near}",)
            )


def better(metric: str, mode: Literal["min", "max"], key: str = "compare_fn") -> Better:
    """Return a compare_fn for BestExporter: the smaller (``"min"``) or larger (``"max"``) `metric` is better.

    Parameters
    ----------
    metric : str
        Name of an evaluation metric, such as ``"loss"`` or ``"accuracy"``.
    mode : {"min", "max"}
        Whether a smaller or a larger value is better.
    key : str
        The setting that names the metric: prefix of the error if an evaluation lacks it.

    Raises
    ------
    UsageError
        If `mode` is neither, or a name is empty; an ArgumentTypeError if an argument is not a str.

    Examples
    --------
    >>> compare_fn = better("accuracy", "max")
    >>> compare_fn(best_eval_result={"accuracy": 0.90}, current_eval_result={"accuracy": 0.95})
    True
    """
    faults = ArgumentFaults("better: ")
    for name, given in (("metric", metric), ("mode", mode), ("key", key)):
        if not isinstance(given, str):
            faults.add_type(name, "a str", given)
        elif not given:
            faults.add(f"better: {name} should be a name, got ''")
    faults.raise_any()
    if mode not in ("min", "max"):
        raise UsageError((f"mode: expected 'min' or 'max', got {mode!r}{did_you_mean(str(mode), ('min', 'max'))}",))
    return Better(metric, mode, key)


def check_compare_fn(compare_fn: CompareFn) -> None:
    """Raise UsageError unless `compare_fn` takes exactly `best_eval_result` and `current_eval_result`."""
    if not callable(compare_fn):
        raise ArgumentTypeError((f"compare_fn: expected a function, got {compare_fn!r}",))
    arguments = tuple(inspect.signature(compare_fn).parameters)
    if sorted(arguments) != sorted(ARGUMENTS):
        got = ", ".join(arguments) or "none"
        raise UsageError((f"compare_fn: expected exactly the arguments {', '.join(ARGUMENTS)}; got {got}",))


def not_finite(compare_fn: CompareFn, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return which of the compared metrics and the loss are NaN or infinite: a result with one is never the best.

    Raises UsageError if the metric of a `Better` is missing; else the errors of `compare_fn`.

    Examples
    --------
    >>> not_finite(better("auc", "max"), {"loss": 0.5, "auc": float("nan"), "recall": float("nan")})
    {'auc': nan}
    """
    deciding = sorted({*_looked_at(compare_fn, metrics), "loss"} & {*metrics})
    return {name: metrics[name] for name in deciding if not math.isfinite(metrics[name])}


def missing(compare_fn: CompareFn, best: Mapping[str, float], current: Mapping[str, float]) -> list[str]:
    """Return the compared metrics that an older result lacks because the model did not have them yet.

    Examples
    --------
    >>> missing(better("auc", "max"), {"loss": 0.5}, {"loss": 0.5, "auc": 0.7})
    ['auc']
    """
    return sorted(_looked_at(compare_fn, current) - best.keys())


def _looked_at(compare_fn: CompareFn, metrics: Mapping[str, float]) -> set[str]:
    """Return the metrics that are read when a result is compared with itself."""
    best, current = _Seen(metrics), _Seen(metrics)
    _compared(compare_fn, best, current)
    return best.names | current.names


def _compared(compare_fn: CompareFn, best: Mapping[str, float], current: Mapping[str, float]) -> bool:
    found = compare_fn(best_eval_result=best, current_eval_result=current)
    if not isinstance(found, bool | np.bool_):
        hint = "; does it lack a return?" if found is None else ""
        raise ArgumentTypeError((f"compare_fn returned {found!r}, expected True or False{hint}",))
    return bool(found)


class _Seen(UserDict[str, float]):
    """Metrics that record which of them are read: each method of a UserDict reads them through `__getitem__`."""

    def __init__(self, metrics: Mapping[str, float]) -> None:
        super().__init__(metrics)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.names.add(name)
        return super().__getitem__(name)


def is_better(compare_fn: CompareFn, best: Mapping[str, float] | None, current: Mapping[str, float]) -> bool:
    """Return whether `current` is the new best result.

    Notes
    -----
    All comparisons of results call this function: exporters, the alias ``best``, and choices from the record. A best
    result that lacks a compared metric does not count: it was made before the model had that metric.
    """
    if not_finite(compare_fn, current):
        return False
    if best is None or missing(compare_fn, best, current) or not_finite(compare_fn, best):
        return True
    return _compared(compare_fn, best, current)


def best_of(results: Sequence[Mapping[str, float]], compare_fn: CompareFn) -> int | None:
    """Return the index of the best result for a BestExporter that sees `results` in this order.

    None if no result has finite metrics. Results that lack a compared metric of the last one do not count.

    Examples
    --------
    >>> best_of([{"auc": float("nan")}, {"auc": 0.7}, {"auc": 0.9}, {"auc": 0.9}], better("auc", "max"))
    2
    """
    best: int | None = None
    deciding = _looked_at(compare_fn, results[-1]) if results else set()
    for index, metrics in enumerate(results):
        if deciding <= metrics.keys() and is_better(compare_fn, None if best is None else results[best], metrics):
            best = index
    return best


NAME = "best.json"


@dataclass(frozen=True, slots=True)
class _BestFacts:
    """The contents of ``best.json``."""

    step: int
    metrics: Mapping[str, Any]
    version: int
    path: str


@dataclass(frozen=True, slots=True)
class BestRecord:
    """The best export of a BestExporter, stored as ``best.json`` next to it."""

    step: int
    metrics: Mapping[str, float]
    version: int
    path: str

    def to_json(self) -> bytes:
        """Return the record as text."""
        facts = {
            "step": self.step,
            "metrics": metrics_to_json(self.metrics),
            "version": self.version,
            "path": str(self.version),
        }
        return json.dumps(facts, indent=1, allow_nan=False).encode() + b"\n"

    def write(self, directory: str) -> None:
        """Write ``best.json`` in `directory`, a path or a URL, atomically and durably."""
        FileStore(directory).put(NAME, self.to_json())

    @classmethod
    def read(cls, directory: str) -> BestRecord | None:
        """Read ``best.json`` in `directory`; None if there is none; CheckpointError if it is damaged."""
        files = FileStore(directory)
        try:
            facts = as_kind(_BestFacts, from_json(files.read(NAME)), "best")
            if facts.path != str(facts.version):
                raise ValueError(f"best.path: expected '{facts.version}', got {facts.path!r}")
            path = f"{directory.rstrip('/')}/{facts.path}"
            return cls(facts.step, metrics_from_json(facts.metrics), facts.version, path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            where = files.location(NAME)
            raise CheckpointError(where, f"damaged: {error}; remove it to choose a best export again") from error
