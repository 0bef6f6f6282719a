"""Finds the features that a model reads in a mode, by calling its model_fn on a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from psflow.ps_runtime.data.arrays import Columns, array_specs, map_columns, num_rows, zeros_of
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.values import ModelValues, WatchedFeatures
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.specs.schema import InputSchema

if TYPE_CHECKING:
    from psflow.ps_runtime.model.training import EvalSpec


@dataclass(frozen=True, slots=True)
class ModeReads:
    """Finds the features that a model reads in several modes: those of training, fewer, or others."""

    caller: ModelCaller
    modes: Sequence[ModeKeys]
    values: ModelValues | None = None
    optional: Sequence[ModeKeys] = ()

    @classmethod
    def of(cls, caller: ModelCaller, spec: EvalSpec, values: ModelValues | None = None) -> Self:
        """Return the finder for an evaluation and its exports.

        The schema, and so the input digest, does not depend on exporters: a replay has none.
        """
        needed, optional = (ModeKeys.EVAL,), (ModeKeys.PREDICT,)
        return cls(caller, needed + optional, values) if spec.all_exporters else cls(caller, needed, values, optional)

    def __call__(self, features: Columns, labels: Columns | None, schema: InputSchema, where: str) -> InputSchema:
        """Return the schema of the features that the model reads of an input.

        Raises InputError with each missing feature, and the line that reads it.
        """
        if not isinstance(features, dict) or not features:
            return schema
        names: set[str] = set()
        faults: dict[str, str] = {}
        for mode in self.modes:
            names |= self._names(features, labels if mode == ModeKeys.EVAL else None, schema, mode, where, faults)
        for mode in self.optional:
            names |= self._names(features, None, schema, mode, where, {}) & features.keys()
        if faults:
            raise InputError(tuple(faults.values()))
        self.caller.left_out |= features.keys() - names
        known = frozenset(schema.whole.names)
        own = {name: features[name] for name in features if name in names and name not in known}
        return schema.narrowed(names, array_specs(own)) if names else schema

    def _names(
        self,
        features: dict[str, Any],
        labels: Columns | None,
        schema: InputSchema,
        mode: ModeKeys,
        where: str,
        faults: dict[str, str],
    ) -> set[str]:
        """Return the features that are read in a mode; add a sentence for each missing one to `faults`."""
        names = frozenset(schema.names)
        trained = {name: array for name, array in features.items() if name in names}
        others = {name: array for name, array in features.items() if name not in trained}
        stand_ins = dict(_zeros(schema, num_rows(features)))
        while True:
            watched = WatchedFeatures(_copied(trained), _copied(others))
            try:
                self._call(watched, None if labels is None else map_columns(np.copy, labels), mode)
            except Exception as error:  # the evaluation or prediction itself raises it
                name = error.__cause__.args[0] if isinstance(error.__cause__, KeyError) else None
                if name in watched.missing:
                    faults[name] = watched.fault(name, self.caller.name, mode, where, list(features))
                    if name in stand_ins:  # continue, as others may be missing, too
                        others[name] = stand_ins.pop(name)
                        continue
                return {*names, *watched.read}
            return {*watched.read, *(names if watched.is_walked else ())}

    def _call(self, features: Any, labels: Columns | None, mode: ModeKeys) -> None:
        with np.errstate(all="ignore"):
            if self.values is None:
                self.caller.build(features, labels, mode, 0)
            else:
                self.caller.apply(features, labels, mode, self.values, 0)


def read_in_any_mode(
    caller: ModelCaller, features: Columns, labels: Columns | None, schema: InputSchema, where: str
) -> InputSchema:
    """Return the schema of the features that a model reads of its training input in any of its modes.

    A mode that model_fn rejects reads nothing; if training itself fails, all features count as read.
    """
    names: set[str] = set()
    for mode in ModeKeys:
        batch = features if not isinstance(features, dict) else _copied(features)
        try:
            with np.errstate(all="ignore"):
                reads = caller.reading(schema).build(batch, None if mode == ModeKeys.PREDICT else labels, mode, 0).reads
        except Exception:  # the call for the batch itself raises it
            if mode == ModeKeys.TRAIN:
                return schema
            continue
        if reads is None:
            return schema
        names |= reads
    return schema.narrowed(names)


def _copied(features: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies that model_fn may change in place: the batch itself is measured later."""
    return {name: np.copy(array) for name, array in features.items()}


def _zeros(schema: InputSchema, rows: int) -> Mapping[str, Any]:
    zeros = zeros_of(schema.whole.features, rows)
    return zeros if isinstance(zeros, dict) else {}
