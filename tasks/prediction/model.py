"""Finds a model in MLflow or on disk, as a folder that workers can read."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psflow.ps_runtime.checkpoint.manifest import FORMAT_VERSION
from psflow.ps_runtime.cluster.fork_server import shared_scratch
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.model.export.directory import copied_export
from psflow.ps_runtime.redaction import shown_path, without_secrets
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.tasks.prediction.columns import Prediction
from psflow.tasks.tracking.store import mlflow_client, prepare_store, reason_of, version_page

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.types import TensorSpec

CONFIG = Path("artifacts", "model", "config.json")
EXPORTS = ("s3://", "s3a://")
"""Kinds of URL of exports that are no MLflow artifacts."""
REGISTERED = re.compile(r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """An exported model."""

    uri: str
    fixed_uri: str
    version: str | None
    path: str
    uuid: str
    global_step: int
    schema: InputSchema
    predictions: tuple[Prediction, ...]
    page: str | None = None


@contextmanager
def found_model(uri: str) -> Iterator[ModelInfo]:
    """Give the model `uri`; downloaded files are removed afterwards.

    Raises UsageError if there is no such model, or psflow did not export it; or as `prepare_store` does.
    """
    if "://" not in uri and not uri.startswith(("models:", "runs:")):
        if not Path(uri).is_dir():
            raise UsageError(
                (f"there is no folder {shown_path(uri)}; expected a model such as models:/psflow-digits@best",)
            )
        path = str(Path(uri).absolute())
        yield read_model_info(path, uri, path, None)
        return
    if uri.startswith(EXPORTS):
        with tempfile.TemporaryDirectory(prefix="model-", dir=shared_scratch()) as folder:
            try:
                path = copied_export(uri, folder)
            except FileNotFoundError as error:
                remedy = "name a version, such as s3://bucket/run/export/best/3"
                raise UsageError((f"{error}; {remedy}",)) from None
            yield read_model_info(path, uri, uri, None)
        return
    from mlflow.artifacts import download_artifacts

    store = prepare_store()
    with tempfile.TemporaryDirectory(prefix="model-", dir=shared_scratch()) as folder:
        try:
            fixed, version = _fixed(mlflow_client(store), uri)
            path = download_artifacts(artifact_uri=fixed, dst_path=folder, tracking_uri=store, registry_uri=store)
        except Exception as error:  # each kind of store has its own errors
            model, where = without_secrets(uri), without_secrets(store)
            raise UsageError((f"no model {model} in {where}: {reason_of(error)}",)) from None
        name = REGISTERED.fullmatch(fixed)
        page = None if name is None or version is None else version_page(store, name["name"], version)
        yield replace(read_model_info(path, uri, fixed, version), page=page)


def _fixed(client: MlflowClient, uri: str) -> tuple[str, str | None]:
    """Return the URI of the current version of an alias, and that version."""
    match = REGISTERED.fullmatch(uri)
    if match is None:
        return uri, None
    if match["alias"] is None:
        return uri, match["version"]
    version = str(client.get_model_version_by_alias(match["name"], match["alias"]).version)
    return f"models:/{match['name']}/{version}", version


def read_model_info(path: str, uri: str, fixed_uri: str, version: str | None) -> ModelInfo:
    """Read the facts of an exported model from its folder.

    Raises UsageError if psflow did not export it, or psflow of another format did.
    """
    from mlflow.models import Model

    try:
        config: Mapping[str, Any] = json.loads((Path(path) / CONFIG).read_text())
        receives = config["serving_input_receiver_fn"] is not None
        _check_format(config, uri)
        schema = InputSchema.from_facts(config["schema"])
        model = Model.load(path)
        outputs = tuple(
            Prediction(spec.name, _dtype_of(spec), tuple(spec.shape[1:])) for spec in model.signature.outputs.inputs
        )
        info = ModelInfo(
            uri, fixed_uri, version, path, str(model.model_uuid), int(config["global_step"]), schema, outputs
        )
    except UsageError:
        raise
    except Exception as error:  # the folder may contain anything
        raise UsageError(
            (
                f"{without_secrets(uri)} is not a model that psflow exported: "
                f"{type(error).__name__} in {path} ({reason_of(error)})",
            )
        ) from None
    if receives:
        raise UsageError(
            (
                f"{without_secrets(uri)} takes inputs of its serving_input_receiver_fn, not rows of the training "
                "format; pass --model an export without such a function",
            )
        )
    return info


def _check_format(config: Mapping[str, Any], uri: str) -> None:
    if (found := config.get("format")) != FORMAT_VERSION:
        what = "no export format" if found is None else f"export format {found}"
        how = "predict with the psflow that exported it, or export its checkpoint again"
        raise UsageError((f"{without_secrets(uri)} has {what}, expected {FORMAT_VERSION}; {how}",))


def _dtype_of(spec: TensorSpec) -> str:
    """Return the numpy name of the dtype of a prediction; strings of any length have one name."""
    return "str" if spec.type.kind == "U" else str(spec.type)


def load_model(path: str, uri: str) -> Any:
    """Load a model in the predicting process; the result has ``predict(context, features)``.

    Raises InputError if this process cannot read the folder.
    """
    import mlflow.pyfunc

    if not Path(path).is_dir():
        raise InputError(
            (
                f"a Dask worker cannot read the folder {path} of the model {without_secrets(uri)}: "
                "pass --model a folder that all workers can read",
            )
        )
    return mlflow.pyfunc.load_model(path).unwrap_python_model()
