"""Exporters: choose the evaluated models to export, their versions, and the exports to keep.

::

    model_dir/export/<exporter>/<version>/    a servable model, written by a `ModelWriter`
                                best.json     BestExporter's record of the best export

Versions count 1, 2, ... and are never reused. An export appears complete; see `ExportDirectory`.
"""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.files import Fence, open_fence
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.best import BestRecord, Better, CompareFn, check_compare_fn, is_better, missing
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.evaluation import read_values
from psflow.ps_runtime.model.export.bundle import ExportBundle, ModelWriter, add_version, check_export_arguments
from psflow.ps_runtime.model.export.directory import ExportDirectory, is_exported
from psflow.ps_runtime.model.export.receiver import ServingInputReceiverFn
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.specs.arguments import NAME, NAME_IN_WORDS, ArgumentFaults

_SMALLER_LOSS = Better("loss", "min")


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of an exporter."""

    exporter: str
    version: int
    path: str
    global_step: int
    is_best: bool
    metrics: Mapping[str, float]


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """An evaluated checkpoint, the writer of its export, and the store of the checkpoints."""

    bundle: ExportBundle
    writer: ModelWriter
    store: CheckpointStore


@dataclass(frozen=True)
class Exporter(ABC):
    """Decides after every evaluation whether to export.

    Parameters
    ----------
    name : str
        Unique among the exporters of an EvalSpec; the name of a directory.
    serving_input_receiver_fn : callable, optional
        Builds the features of the model from client requests; see `psflow.placeholder`. Default: requests have the
        features of the training input.
    assets_extra : mapping of str to path, optional
        Files to include in each export as ``assets.extra/<name>``; the evaluator reads them.
    as_text : bool
        Must be False: exports have no text form.

    Raises
    ------
    UsageError
        If a parameter is invalid; an ArgumentTypeError if it has another type.

    Notes
    -----
    An exporter object holds no state: its record is stored with its exports, and survives a restart.
    """

    is_final_only: ClassVar[bool] = False
    """Whether only the final checkpoint is exported; no directory is created for others."""

    name: str
    serving_input_receiver_fn: ServingInputReceiverFn | None = None
    assets_extra: Mapping[str, Any] | None = None
    as_text: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(NAME, self.name):
            raise UsageError((f"exporter name {self.name!r}: expected {NAME_IN_WORDS}, as it names a directory",))
        faults = ArgumentFaults(f"exporter {self.name!r}: ")
        check_export_arguments(faults, self.serving_input_receiver_fn, self.assets_extra, self.as_text)
        faults.raise_any()

    def export(
        self,
        model_dir: str,
        bundle: ExportBundle,
        writer: ModelWriter,
        *,
        is_the_final_export: bool,
        fence: Fence = open_fence,
    ) -> ExportResult | None:
        """Export `bundle`, or decide not to.

        Parameters
        ----------
        model_dir : str
            A local path, or an ``s3://`` URL.
        bundle : ExportBundle
            The evaluated checkpoint.
        writer : ModelWriter
            Writes the export; called only for a checkpoint that is exported.
        is_the_final_export : bool
            Whether `bundle` is the final checkpoint of the job.
        fence : callable
            Raises if this process may no longer write; called before an export counts.

        Returns
        -------
        ExportResult or None
            None if nothing was exported.

        Raises
        ------
        UsageError
            If files of `model_dir` cannot be written conditionally, or `compare_fn` cannot compare the metrics.
        CheckpointError
            If ``best.json`` is damaged.

        Notes
        -----
        Blocks. Exports under one name by several processes, on a disk those of one host, do not disturb each other.
        After a failure at any point the exports are unchanged, or include one more complete export. The call may be
        repeated: a checkpoint is exported once.
        """
        if self.is_final_only and not is_the_final_export:
            return None
        with ExportDirectory.of_exporter(FileStore(model_dir), self.name, fence) as directory:
            return self._export(_Evaluated(bundle, writer, CheckpointStore(model_dir)), directory)

    @abstractmethod
    def _export(self, evaluated: _Evaluated, directory: ExportDirectory) -> ExportResult | None:
        """Export as in `export`; `directory` is locked for the duration of the call."""

    def _add(
        self,
        directory: ExportDirectory,
        bundle: ExportBundle,
        writer: ModelWriter,
        *,
        is_best: bool = False,
        above: int = 0,
    ) -> ExportResult:
        served = replace(bundle, serving_input_receiver_fn=self.serving_input_receiver_fn)
        version = directory.find(bundle.global_step, bundle.saved_at, above)  # by an evaluator that was killed then
        if version is None:
            version = add_version(directory, served, writer, self.assets_extra, above)
        path = directory.version_path(version)
        return ExportResult(self.name, version, path, bundle.global_step, is_best, dict(bundle.metrics))


@dataclass(frozen=True)
class FinalExporter(Exporter):
    """Exports the final checkpoint only."""

    is_final_only: ClassVar[bool] = True

    def _export(self, evaluated: _Evaluated, directory: ExportDirectory) -> ExportResult | None:
        return self._add(directory, evaluated.bundle, evaluated.writer)


@dataclass(frozen=True)
class LatestExporter(Exporter):
    """Exports after every evaluation.

    Parameters
    ----------
    name, serving_input_receiver_fn, assets_extra, as_text
        See `Exporter`.
    exports_to_keep : int or None
        Number of newest exports to keep; None for all.
    """

    exports_to_keep: int | None = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_exports_to_keep(self.exports_to_keep)

    def _export(self, evaluated: _Evaluated, directory: ExportDirectory) -> ExportResult | None:
        result = self._add(directory, evaluated.bundle, evaluated.writer)
        directory.keep(self.exports_to_keep)
        return result


@dataclass(frozen=True)
class BestExporter(Exporter):
    """Exports a model that is better than the best one so far, across all incarnations of the job.

    Parameters
    ----------
    name, serving_input_receiver_fn, assets_extra, as_text
        See `Exporter`.
    compare_fn : callable
        ``compare_fn(best_eval_result, current_eval_result) -> bool``: whether the current metrics are better. It must
        have exactly these arguments. Default: a strictly smaller ``loss``; see also `better`.
    exports_to_keep : int or None
        Number of newest exports to keep, including the best; None for all.

    Notes
    -----
    The first result with finite metrics is the best so far. A result whose loss, or another metric that `compare_fn`
    reads, is NaN or infinite never becomes the best, whatever `compare_fn` returns; if all results are such, the
    evaluator fails at its end. Among equal results the older one stays.
    """

    name: str = "best"
    compare_fn: CompareFn = _SMALLER_LOSS
    exports_to_keep: int | None = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_compare_fn(self.compare_fn)
        _check_exports_to_keep(self.exports_to_keep)

    def best(self, model_dir: str) -> BestRecord | None:
        """Return the record of the best export of `model_dir`; None before the first one."""
        return BestRecord.read(FileStore(model_dir).location(f"export/{self.name}"))

    def _export(self, evaluated: _Evaluated, directory: ExportDirectory) -> ExportResult | None:
        bundle = evaluated.bundle
        best = BestRecord.read(directory.path)
        if not is_better(self.compare_fn, best.metrics if best else None, bundle.metrics):
            if best is None or is_exported(best.path):
                return None
            lost = self._lost(best, bundle, evaluated.store)
            return None if lost is None else self._export_best(directory, evaluated, lost, best)
        if best is not None and (names := missing(self.compare_fn, best.metrics, bundle.metrics)):
            sentence = "exporter %r: the best so far, of step %d, was evaluated without %s; the best is chosen again"
            logger.warning(sentence, self.name, best.step, ", ".join(names))
        return self._export_best(directory, evaluated, bundle, best)

    def _lost(self, best: BestRecord, bundle: ExportBundle, store: CheckpointStore) -> ExportBundle | None:
        """Return the best model, to export it again as its export is missing; None if its checkpoint is missing."""
        gone = f"exporter {self.name!r}: the best export, {shown_path(best.path)} of step {best.step}, is missing"
        if best.step not in store.steps():
            advice = f"remove best.json in {shown_path(os.path.dirname(best.path))} to choose the best again"
            logger.warning("%s, and so is its checkpoint; %s", gone, advice)
            return None
        logger.warning("%s; it is exported again from its checkpoint", gone)
        with CheckpointReader.pinned(store, best.step, f"exporter-{self.name}") as reader:
            values, saved_at = read_values(reader), reader.manifest.saved_at
        return ExportBundle.of(
            ModelCaller(bundle.model_fn, bundle.params, None, bundle.schema),  # as the export calls it
            values,
            best.step,
            bundle.features,
            bundle.schema,
            name=bundle.name,
            metrics=best.metrics,
            saved_at=saved_at,
        )

    def _export_best(
        self, directory: ExportDirectory, evaluated: _Evaluated, bundle: ExportBundle, before: BestRecord | None
    ) -> ExportResult | None:
        above = 0 if before is None else before.version
        result = self._add(directory, bundle, evaluated.writer, is_best=True, above=above)
        best = BestRecord(bundle.global_step, dict(bundle.metrics), result.version, result.path)
        if not directory.choose(best, before):  # psflow export has moved it meanwhile
            return self._export(evaluated, directory)
        directory.keep(self.exports_to_keep, result.version)
        return result


def _check_exports_to_keep(exports_to_keep: int | None) -> None:
    if exports_to_keep is not None and (type(exports_to_keep) is not int or exports_to_keep < 1):
        raise UsageError((f"exports_to_keep: expected a whole number >= 1, or None for all; got {exports_to_keep!r}",))
