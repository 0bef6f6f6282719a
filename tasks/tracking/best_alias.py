"""The alias ``best`` of a registered model: which export takes it, and from whom."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from psflow.ps_runtime.model.best import Better, is_better
from psflow.tasks.tracking.points import valid_key

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

__all__ = ["BEST", "BestAlias", "metric_tag"]

BEST = "best"

_log = logging.getLogger(__name__)


def metric_tag(name: str) -> str:
    """Return under which tag a version has the metric `name` of its evaluation."""
    return valid_key(f"eval.{name}")


class BestAlias:
    """The alias of one registered model, as the exports of one run see it.

    Within a run it follows what ``best.json`` says. It is taken from a version of another run only by one that is
    better by `better`; where the two cannot be compared, by an export that is new and of a trained model. A version
    whose loss or deciding metric is NaN or infinite never takes it.
    """

    def __init__(self, client: MlflowClient, name: str, run_id: str, better: Better | None) -> None:
        self._client = client
        self._name = name
        self._run_id = run_id
        self._better = better
        self._left_with: str | None = None

    def give(self, version: str, step: int, metrics: Mapping[str, float], *, is_new: bool) -> bool:
        """Let the alias stand for `version` of this run, unless it stays with that of another; return whether it does.

        Notes
        -----
        Blocks for two or three requests. Of two runs that take the alias in the same moment the later has it.
        """
        if not all(math.isfinite(metrics[name]) for name in self._deciding if name in metrics):
            return False
        holder = str(self._client.get_registered_model(self._name).aliases.get(BEST, ""))
        if holder == version:
            return True
        if holder:
            held = self._client.get_model_version(self._name, holder)
            if held.run_id != self._run_id and not self._beats(held, step, metrics, is_new=is_new):
                self._tell_that_it_stays(held, version, metrics)
                return False
        self._client.set_registered_model_alias(self._name, BEST, version)
        return True

    @property
    def _deciding(self) -> tuple[str, ...]:
        return ("loss",) if self._better is None else ("loss", self._better.metric)

    def _beats(self, held: ModelVersion, step: int, metrics: Mapping[str, float], *, is_new: bool) -> bool:
        theirs = self._measured(held)
        if self._better is None or self._better.metric not in theirs:
            return is_new and step > 0
        return is_better(self._better, theirs, {self._better.metric: math.nan, **metrics})

    def _measured(self, version: ModelVersion) -> dict[str, float]:
        """Return what `version` has, as tags, of the metrics that decide."""
        found = {}
        for name in self._deciding:
            with suppress(KeyError, ValueError):
                found[name] = float(version.tags[metric_tag(name)])
        return found

    def _tell_that_it_stays(self, held: ModelVersion, version: str, metrics: Mapping[str, float]) -> None:
        """Log why, once for each version that keeps it: every further best of this run would say the same."""
        if self._left_with == str(held.version):
            return
        self._left_with = str(held.version)
        theirs, better = self._measured(held), self._better
        if better is None or better.metric not in theirs:
            why = "the two cannot be compared"
        else:
            ours = metrics.get(better.metric, math.nan)
            why = (
                f"its {better.metric} is {ours:.4g}, and that of version {held.version} is "
                f"{theirs[better.metric]:.4g} (best.mode: {better.mode})"
            )
        _log.warning(
            "the alias %s of %s stays with version %s, of another training; version %s does not take it, because %s; "
            "psflow export --model-dir DIR moves it anyway",
            BEST,
            self._name,
            held.version,
            version,
            why,
        )
