"""What hooks see of the training of a replica, as ``run_context.session``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from psflow.ps_runtime.client.training import TrainingClient
from psflow.ps_runtime.errors import NanGradientError, NanLossError
from psflow.ps_runtime.model.gradients import StepResult
from psflow.ps_runtime.model.hooks import Fetches, pick
from psflow.ps_runtime.model.summary_files import FileSummary
from psflow.ps_runtime.model.values import read_only
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.variables import ModelSpec

__all__ = ["StepSession", "StepValues"]


@dataclass
class StepSession:
    """The last step of a replica, and the variables."""

    client: TrainingClient
    model: ModelSpec
    config: RunConfig
    is_chief: bool
    report: Callable[[int, Mapping[str, Any]], None] = field(repr=False)
    put_file: Callable[[int, str, bytes], None] = field(repr=False)
    gradients_per_step: int = 1
    can_pull: bool = True

    def __post_init__(self) -> None:
        self.global_step = 0
        self.num_steps = 0
        self.num_examples = 0
        """Rows of the last batch."""
        self.fault: NanLossError | NanGradientError | None = None
        """Why the last step was not pushed."""
        self.staleness = self.staleness_sum = 0
        """Of the last push; of all pushes."""
        self.result: StepResult | None = None
        """What model_fn gave in the last step; None before the first."""
        self.variables = {name: read_only(view) for name, view in self.client.variables.items()}
        """The variables as last pulled: read-only views, refreshed in place."""

    @property
    def loss(self) -> float:
        """The loss of the last step; NaN before the first."""
        return float("nan") if self.result is None else self.result.loss

    @property
    def summaries(self) -> Mapping[str, Any]:
        """The summaries of the last step."""
        return {} if self.result is None else self.result.summaries

    @property
    def file_summaries(self) -> Mapping[str, FileSummary]:
        """The histograms, images and texts of the last step, by the name of their files."""
        return {} if self.result is None else self.result.file_summaries

    def run(self, fetches: Fetches) -> Any:
        """Return variables and the global_step as they are now, anything else as of the last step. Blocks."""
        return pick(fetches, _ValuesNow(self, self.result))


class StepValues(Mapping[str, Any]):
    """What hooks may fetch of a step, looked up when asked for."""

    def __init__(self, session: StepSession, result: StepResult | None) -> None:
        self._session = session
        self._result = result

    def __getitem__(self, name: str) -> Any:
        if name == "global_step":
            return self._session.global_step
        if (result := self._result) is not None:
            if name == "loss":
                return result.loss
            if name in result.summaries:
                return result.summaries[name]
            predictions = result.spec.predictions
            if isinstance(predictions, Mapping) and name in predictions:
                return predictions[name]
            if name in result.spec.metrics:
                return result.spec.metrics[name].result()
        return self._variable(name)

    def _variable(self, name: str) -> NDArray[Any]:
        return self._session.variables[name].copy()

    def __iter__(self) -> Iterator[str]:
        yield "global_step"
        if (result := self._result) is not None:
            predictions = result.spec.predictions
            yield from ("loss", *result.summaries)
            yield from predictions if isinstance(predictions, Mapping) else ()
            yield from result.spec.metrics
        yield from self._session.variables

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _ValuesNow(StepValues):
    """The same, with the variables of now: they are pulled once, if one is asked for."""

    _is_fresh = False

    def _variable(self, name: str) -> NDArray[Any]:
        if name in self._session.variables and self._session.can_pull and not self._is_fresh:
            self._session.client.pull()
            self._is_fresh = True
        return super()._variable(name)
