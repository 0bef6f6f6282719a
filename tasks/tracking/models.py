"""Records checkpoints and exports as MLflow models, each once even if reported repeatedly."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from psflow.ps_runtime.model.best import Better, is_better
from psflow.ps_runtime.model.export.directory import local_export
from psflow.ps_runtime.redaction import without_secrets
from psflow.ps_runtime.roles.events import Checkpoint, Export
from psflow.tasks.tracking.points import valid_key
from psflow.tasks.tracking.store import checkpoint_page, link, run_page

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.entities.model_registry import ModelVersion

BEST = "best"

_log = logging.getLogger(__name__)


def metric_tag(name: str) -> str:
    """Return the tag of a version for the metric `name` of its evaluation."""
    return valid_key(f"eval.{name}")


class BestAlias:
    """Alias of one registered model, moved by the exports of one run.

    Within a run it follows ``best.json``. It moves from a version of another run only to one that is better by
    `better`; if the two cannot be compared, only to a new export of a trained model. It never moves to a version whose
    loss or deciding metric is NaN or infinite.
    """

    def __init__(self, client: MlflowClient, name: str, run_id: str, better: Better | None) -> None:
        self._client = client
        self._name = name
        self._run_id = run_id
        self._better = better
        self._left_with: str | None = None

    def give(self, version: str, step: int, metrics: Mapping[str, float], *, is_new: bool) -> bool:
        """Set the alias to `version` of this run, unless it stays with another run; return whether `version` has it.

        Notes
        -----
        Blocks for two or three requests. Of two concurrent moves, the later one wins.
        """
        if not all(math.isfinite(metrics[name]) for name in self._deciding if name in metrics):
            return False
        holder = str(self._client.get_registered_model(self._name).aliases.get(BEST, ""))
        if holder == version:
            return True
        if holder:
            held = self._client.get_model_version(self._name, holder)
            if held.run_id != self._run_id and not self._beats(held, step, metrics, is_new=is_new):
                self._log_that_it_stays(held, version, metrics)
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
        """Return the deciding metrics in the tags of `version`."""
        found = {}
        for name in self._deciding:
            with suppress(KeyError, ValueError):
                found[name] = float(version.tags[metric_tag(name)])
        return found

    def _log_that_it_stays(self, held: ModelVersion, version: str, metrics: Mapping[str, float]) -> None:
        """Log the reason once for each version that keeps the alias, as it also holds for later exports of this run."""
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


KIND, STEP, PATH, EXPORTER, VERSION = "psflow.kind", "psflow.step", "psflow.path", "psflow.exporter", "psflow.version"
CHECKPOINT, CHECKPOINT_MODEL = "psflow.checkpoint", "psflow.checkpoint_model"


Identity = tuple[str, ...]
"""Kind and identity of a model: step of a checkpoint; exporter and version of an export."""


@dataclass(frozen=True, slots=True)
class BestModel:
    """An export in MLflow; `version` is that of the registry, None if not registered."""

    model_uri: str
    version: str | None
    global_step: int


class RecordedModels:
    """The models of one run."""

    def __init__(
        self,
        client: MlflowClient,
        experiment_id: str,
        run_id: str,
        registered_model: str | None,
        better: Better | None = None,
        *,
        revives: bool = False,
    ) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._run_id = run_id
        self._name = registered_model
        self._alias = None if registered_model is None else BestAlias(client, registered_model, run_id, better)
        self._models: dict[Identity, LoggedModel] = {}
        self._versions: dict[Identity, str] = {}
        self._registered_now: set[Identity] = set()
        self._revives = revives
        self._has_told_deleted = False
        self._is_in_doubt = False
        self.best: BestModel | None = None

    def read(self) -> None:
        """Read the models of the run from MLflow."""
        token = None
        while True:
            page = self._client.search_logged_models(
                [self._experiment_id], filter_string=f"source_run_id = '{self._run_id}'", page_token=token
            )
            self._models |= {_identity(m.tags): m for m in page if KIND in m.tags}
            if not (token := page.token):
                break
        self._read_versions()

    def _read_versions(self) -> None:
        if self._name is not None:
            found = self._client.search_model_versions(f"name = '{self._name}' and run_id = '{self._run_id}'")
            self._versions = {_identity(v.tags): str(v.version) for v in found if KIND in v.tags}

    def checkpoint_id(self, step: int) -> str | None:
        """Return the id of the model of the checkpoint at `step`, if recorded."""
        model = self._models.get(("checkpoint", str(step)))
        return None if model is None else model.model_id

    def record_checkpoint(self, event: Checkpoint) -> None:
        """Record a checkpoint as an external model: step and path, without its bytes."""
        from mlflow.utils.mlflow_tags import MLFLOW_MODEL_IS_EXTERNAL

        tags = {
            KIND: "checkpoint",
            STEP: str(event.step),
            PATH: without_secrets(event.path),
            MLFLOW_MODEL_IS_EXTERNAL: "true",
        }
        with self._known():
            self._record(f"checkpoint-{event.step}", event.step, tags, None)

    def record_export(self, event: Export) -> BestModel:
        """Record an export with its bytes."""
        with self._known():
            tags = self._tags(event)
            return self._recorded(event, self._record_export(event, tags), self._versions.get(_identity(tags)))

    def register_export(self, event: Export) -> BestModel:
        """Record an export, register it, and set the alias ``best`` if it is the best one."""
        with self._known():
            tags = self._tags(event)
            model = self._record_export(event, tags)
            self._read_versions()  # ``psflow export`` may have registered it meanwhile
            version = None if self._name is None else self._register(self._name, model, tags, event.metrics)
            if event.is_best and self._alias is not None and version is not None:
                is_new = _identity(tags) in self._registered_now
                self._alias.give(version, event.step, event.metrics, is_new=is_new)
            return self._recorded(event, model, version)

    def _tags(self, event: Export) -> dict[str, str]:
        return {
            KIND: "export",
            STEP: str(event.step),
            PATH: without_secrets(event.path),
            EXPORTER: event.exporter,
            VERSION: str(event.version),
            **self._made_of(event.step),
        }

    def _record_export(self, event: Export, tags: dict[str, str]) -> LoggedModel:
        return self._record(f"{event.exporter}-{event.step}", event.step, tags, event.path)

    def _recorded(self, event: Export, model: LoggedModel, version: str | None) -> BestModel:
        uri = f"models:/{model.model_id}" if version is None else f"models:/{self._name}/{version}"
        recorded = BestModel(uri, version, event.step)
        if event.is_best:
            self.best = recorded
        return recorded

    @contextmanager
    def _known(self) -> Iterator[None]:
        """Reread the models of the run after a failed block: MLflow may have executed the failed request."""
        if self._is_in_doubt:
            self.read()
        self._is_in_doubt = True
        yield
        self._is_in_doubt = False

    def _record(self, name: str, step: int, tags: dict[str, str], path: str | None) -> LoggedModel:
        from mlflow.entities import LoggedModelStatus

        model = self._models.get(_identity(tags))
        if model is not None and model.status == LoggedModelStatus.READY:
            return model
        if path is None:
            return self._write(name, step, tags, None)
        with local_export(path) as folder:
            if not (Path(folder) / "MLmodel").is_file():
                raise FileNotFoundError(f"no MLflow model in {path}")  # MLflow would silently upload nothing
            return self._write(name, step, tags, folder)

    def _write(self, name: str, step: int, tags: dict[str, str], folder: str | None) -> LoggedModel:
        """Create a model, or complete it after a failure."""
        from mlflow.entities import LoggedModelOutput, LoggedModelStatus

        identity = _identity(tags)
        model = self._models.get(identity)
        is_new = model is None
        if model is None:
            model = self._client.create_logged_model(
                self._experiment_id,
                name=valid_key(name).replace("/", "_").replace(":", "_").replace(".", "_"),
                source_run_id=self._run_id,
                tags=tags,
                model_type=tags[KIND],
            )
            self._models[identity] = model
        if folder is not None:
            self._client.log_model_artifacts(model.model_id, folder)
        if is_new or not self._is_output(model):
            self._client.log_outputs(self._run_id, [LoggedModelOutput(model.model_id, step)])
        model = self._client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        self._models[identity] = model
        return model

    def _is_output(self, model: LoggedModel) -> bool:
        """Return whether the run lists `model`; MLflow refuses to list one twice."""
        outputs = self._client.get_run(self._run_id).outputs
        return outputs is not None and any(output.model_id == model.model_id for output in outputs.model_outputs)

    def _register(
        self, name: str, model: LoggedModel, tags: dict[str, str], metrics: Mapping[str, float]
    ) -> str | None:
        """Return the version of a model; register it if needed; None if its version was deleted."""
        identity = _identity(tags)
        if identity not in self._versions:
            if _versions_noted(model, name) and not self._revives:
                self._log_deleted(name)
                return None
            self._registered_now.add(identity)
            self._create_registered_model(name)
            version = self._client.create_model_version(
                name,
                source=model.artifact_location,
                run_id=self._run_id,
                model_id=model.model_id,
                tags=tags | {metric_tag(k): str(v) for k, v in metrics.items()},
                description=self._description(tags),
            )
            self._versions[identity] = str(version.version)
        self._note_version(model, name, self._versions[identity])
        return self._versions[identity]

    def _note_version(self, model: LoggedModel, name: str, version: str) -> None:
        """Record the version in `model`, as MLflow's server does; the record outlives a deleted version."""
        from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

        if version in _versions_noted(model, name):
            return
        noted = [*_noted(model), {"name": name, "version": version}]
        self._client.set_logged_model_tags(model.model_id, {MLFLOW_MODEL_VERSIONS: json.dumps(noted)})
        model.tags[MLFLOW_MODEL_VERSIONS] = json.dumps(noted)

    def _log_deleted(self, name: str) -> None:
        """Log deleted versions once."""
        if self._has_told_deleted:
            return
        self._has_told_deleted = True
        gone = [
            v for key, model in self._models.items() if key not in self._versions for v in _versions_noted(model, name)
        ]
        which, are = ("version", ("was", "is")) if len(gone) == 1 else ("versions", ("were", "are"))
        _log.warning(
            "%s %s of %s %s deleted in MLflow and %s not registered again; "
            "psflow export --model-dir DIR --checkpoint STEP does that",
            which,
            ", ".join(sorted(gone, key=int)),
            name,
            *are,
        )

    def _made_of(self, step: int) -> dict[str, str]:
        """Return tags that link an export to its checkpoint, if recorded."""
        checkpoint = self._models.get(("checkpoint", str(step)))
        if checkpoint is None:
            return {}
        return {CHECKPOINT: checkpoint.tags[PATH], CHECKPOINT_MODEL: checkpoint.model_id}

    def _description(self, tags: Mapping[str, str]) -> str:
        """Return the description of a model version in markdown: its origin."""
        uri = self._client.tracking_uri
        lines = [
            f"Exported by `{tags[EXPORTER]}` at global_step {tags[STEP]}.",
            f"- run: {link(self._run_id, run_page(uri, self._experiment_id, self._run_id))}",
        ]
        if CHECKPOINT in tags:
            model_id = tags[CHECKPOINT_MODEL]
            page = checkpoint_page(uri, self._experiment_id, model_id)
            lines.append(f"- checkpoint: {link(model_id, page)} in `{tags[CHECKPOINT]}`")
        return "\n".join([*lines, f"- export: `{tags[PATH]}`"])

    def _create_registered_model(self, name: str) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise


def _identity(tags: Mapping[str, str]) -> Identity:
    if tags[KIND] == "checkpoint":
        return "checkpoint", tags[STEP]
    return "export", tags[EXPORTER], tags[VERSION]


def _noted(model: LoggedModel) -> list[dict[str, str]]:
    """Return the current and former versions of `model` in registered models."""
    from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

    noted: list[dict[str, str]] = json.loads(model.tags.get(MLFLOW_MODEL_VERSIONS, "[]"))
    return noted


def _versions_noted(model: LoggedModel, name: str) -> list[str]:
    return [str(one["version"]) for one in _noted(model) if one["name"] == name]
