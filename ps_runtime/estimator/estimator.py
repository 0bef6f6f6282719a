"""The Estimator: trains, evaluates, predicts and exports a model_fn in one process."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.records import nothing_left
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.checkpoint_values import (
    check_params,
    check_texts,
    checked_config,
    checked_keys,
    checked_steps,
    checkpoint_at,
    opened_checkpoint,
    table_rows,
    variable_names,
    variable_value,
)
from psflow.ps_runtime.estimator.event_log import log_evaluation, log_restoring, logger, print_unless_configured
from psflow.ps_runtime.estimator.prediction.predictions import opened_input, predicted_batches, results_of, share_of
from psflow.ps_runtime.estimator.recording import evaluation_record, recorded, requested_run
from psflow.ps_runtime.estimator.saved_model import check_arguments, receiver_fn_of, save_model
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings, warm_start_settings
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.evaluation import evaluate, read_values
from psflow.ps_runtime.model.export.bundle import ModelWriter
from psflow.ps_runtime.model.export.receiver import ServingInputReceiverFn
from psflow.ps_runtime.model.hooks.base import CheckpointSaverListener, SessionRunHook, as_hooks
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.specs.run_config import RunConfig, absolute
from psflow.ps_runtime.specs.schema import InputSchema

if TYPE_CHECKING:
    from psflow.ps_runtime.cluster.ordered_results import Client

InputFn = Callable[..., Any]


class Estimator:
    """A model and its model_dir.

    Parameters
    ----------
    model_fn : callable
        ``model_fn(features, labels, mode, params, config, input_schema)``, any subset of these, returns an
        EstimatorSpec. `input_schema` is the InputSchema of the training input, in every mode.
    model_dir : str or path, optional
        Directory of the checkpoints, a path or an ``s3://`` URL; else that of `config`, else a temporary directory.
    config : RunConfig, optional
        Checkpoints, logging, seed and consistency; default: those of RunConfig.
    params : mapping, optional
        Hyper-parameters for model_fn; copied.
    warm_start_from : str or WarmStartSettings, optional
        Source of the initial values of variables, if model_dir has no checkpoint: a model_dir or the directory of a
        checkpoint, from which all trainable variables are taken, or settings that choose variables.

    Raises
    ------
    ModelFnError
        If model_fn takes unknown arguments, or no `params` although some are given.
    UsageError
        If two different model_dirs are given; an ArgumentTypeError if an argument has the wrong type.
    """

    def __init__(
        self,
        model_fn: Callable[..., EstimatorSpec],
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: Mapping[str, Any] | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
    ) -> None:
        config = checked_config(model_dir, config, params)
        if (directory := config.model_dir) is None:
            directory = tempfile.mkdtemp(prefix="psflow-model-")
            logger.warning("no model_dir given: checkpoints go to the temporary directory %s", directory)
        self.model_dir = absolute(directory)  # the working directory of a role may differ
        self.config = config.replace(model_dir=self.model_dir)
        self.params, self.model_fn = copy.deepcopy(dict(params or {})), model_fn
        self.caller = ModelCaller(model_fn, self.params, self.config)
        check_params(self.caller)
        self.warm_start_from = warm_start_settings(warm_start_from)

    def check_labels(self, labels: Any, where: str, input_schema: InputSchema) -> None:
        """Raise InputError if the labels of a whole data set do not fit the model; here any labels do."""

    def read_schema(self, schema: InputSchema, where: str) -> InputSchema:
        """Return the schema of a training input as the model reads it: here unchanged; `where` names the input."""
        return schema

    def doubts(self, features: Any, schema: InputSchema, where: str) -> tuple[str, ...]:
        """Return warnings about the first batch of a training input: here none; `where` names the input."""
        return ()

    def train(
        self,
        input_fn: InputFn,
        hooks: Sequence[SessionRunHook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[CheckpointSaverListener] | None = None,
        non_finite: NonFinite = "error",
    ) -> Estimator:
        """Train in this process, from the latest checkpoint if there is one. Blocks.

        The input is read from its start. Only after an interruption (an error, a signal, a lost process) it continues
        where the latest checkpoint left it. `input_fn` is called once.

        Parameters
        ----------
        input_fn : callable
            Returns a Dataset, or yields batches ``(features, labels)``.
        hooks : sequence of SessionRunHook, optional
            Run around each step, in this order.
        steps : int, optional
            Train this many steps more.
        max_steps : int, optional
            Train until this global_step. With neither: until the input ends.
        saving_listeners : sequence of CheckpointSaverListener, optional
            Called before and after each checkpoint.
        non_finite : {"error", "drop", "keep"}
            How to treat rows with a missing, NaN or infinite cell; see TrainSpec.

        Returns
        -------
        Estimator
            Itself.

        Raises
        ------
        UsageError
            If both steps and max_steps are given, or one is not greater than 0; or if model_fn, the input or the
            model_dir is wrong. An ArgumentTypeError if an argument has the wrong type.
        """
        print_unless_configured()
        if steps is not None and max_steps is not None:
            raise UsageError(("give steps or max_steps, not both",))
        steps, start = checked_steps(steps), CheckpointStore(self.model_dir).latest() or 0
        last = start + steps if steps is not None else max_steps
        train_spec = TrainSpec(input_fn, last, hooks or (), saving_listeners or (), non_finite)
        if (done := nothing_left(start, train_spec.max_steps)) is not None:
            logger.warning("%s", done)
            return self
        attempt = Attempt(self, train_spec, None, reads_again=True)
        with attempt, recorded(requested_run(self.config), attempt, attempt.log_event) as hear:
            attempt.run_here(hear)
        return self

    def evaluate(
        self,
        input_fn: InputFn,
        steps: int | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
        non_finite: NonFinite = "error",
    ) -> dict[str, float]:
        """Evaluate a checkpoint in this process; its model_dir does not change.

        Parameters
        ----------
        input_fn : callable
            Returns a Dataset, or yields batches ``(features, labels)``.
        steps : int, optional
            Maximum number of batches.
        hooks : sequence of SessionRunHook, optional
            Run around each batch, before the ``evaluation_hooks`` of model_fn.
        checkpoint_path : str, optional
            Directory of a checkpoint; default: the latest.
        name : str, optional
            Name of this evaluation in the log and in MLflow. The names of the metrics returned do not change.
        non_finite : {"error", "drop", "keep"}
            How to treat rows with a missing, NaN or infinite cell; see TrainSpec.

        Returns
        -------
        dict of str to float
            The metrics of model_fn, plus ``loss`` and ``global_step``.

        Raises
        ------
        CheckpointError
            If there is no checkpoint.
        InputError
            If there is no batch, or the input lacks features that the model was trained on.
        UsageError
            If steps is not greater than 0; an ArgumentTypeError if an argument has the wrong type.
        """
        steps = checked_steps(steps)
        check_texts(name=name, checkpoint_path=checkpoint_path)
        hooks = as_hooks("hooks", hooks)
        with opened_checkpoint(self.model_dir, checkpoint_path, logs=True) as reader:
            step, values, schema = reader.manifest.step, read_values(reader), reader.manifest.model.schema
            record = evaluation_record(self.config, reader)
        logger.info("Starting evaluation")
        caller = self.caller.reading(schema)
        opened = opened_input(caller, input_fn, schema, ModeKeys.EVAL, values, non_finite)
        metrics = evaluate(caller, opened, values, step, steps, hooks)
        log_evaluation(step, metrics, name)
        record(metrics, name)
        return metrics

    def predict(
        self,
        input_fn: InputFn,
        predict_keys: str | Sequence[str] | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
        client: Client | None = None,
    ) -> Iterator[Any]:
        """Yield the predictions of one checkpoint for an input, in input order.

        Without a `client` this process computes them, with one the workers of its Dask cluster. Where TF_CONFIG has a
        cluster, its chief and workers share the batches: process i of n yields batches i, i + n, ...

        Parameters
        ----------
        input_fn : callable
            Returns a Dataset, or yields batches; labels are ignored.
        predict_keys : str or sequence of str, optional
            The predictions to yield; default, or if empty: all.
        hooks : sequence of SessionRunHook, optional
            Run around each batch, before the ``prediction_hooks`` of model_fn; neither works with a `client`.
        checkpoint_path : str, optional
            Directory of a checkpoint; default: the latest.
        yield_single_examples : bool
            Yield one result for each example; else one for each batch.
        client : distributed.Client, optional
            Connected to a Dask cluster whose workers can read the checkpoint, and the tabular files of the input, if
            any.

        Yields
        ------
        dict of str to array, or array
            Each prediction by name, or the only array of model_fn; without the batch axis for a single example.

        Raises
        ------
        NoCheckpointError
            If there is no checkpoint.
        ModelFnError
            If a prediction does not have one row for each example; with a client, also if model_fn fails on a record,
            which the message names.
        UsageError
            If a predict_key is unknown, the input lacks features that the model was trained on, or hooks are given with
            a client, or a client in a process of a cluster of TF_CONFIG.
        CheckpointError
            If a worker cannot read the checkpoint.

        Notes
        -----
        Every row is predicted, including rows with a missing, NaN or infinite cell.

        With a client each row is predicted exactly once, in the same batches, and memory is bounded whatever the size
        of the input: a few partitions for each slot are under way. The work of a worker that dies is repeated. Closing
        the generator cancels the partitions under way. BLAS has one thread in a worker, as in every role: with one
        thread here, too, predictions are bitwise equal.
        """
        keys = checked_keys(predict_keys, yield_single_examples)
        check_texts(checkpoint_path=checkpoint_path)
        hooks = as_hooks("hooks", hooks)
        share = share_of(self.config.cluster, client)
        if share is None:
            return
        store, step = checkpoint_at(self.model_dir, checkpoint_path)
        log_restoring(store.path(step))
        batches = predicted_batches(self.caller, input_fn, store, step, keys, hooks, client, share)
        yield from results_of(batches, self.caller.name, single_examples=yield_single_examples)

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: ServingInputReceiverFn | None = None,
        assets_extra: Mapping[str, Any] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: ModeKeys = ModeKeys.PREDICT,
        *,
        writer: ModelWriter | None = None,
    ) -> str:
        """Export a checkpoint as a model that runs where psflow is not installed. Blocks.

        Parameters
        ----------
        export_dir_base : str or path
            A local folder, or an ``s3://`` URL; the export becomes ``<export_dir_base>/<version>``, with a larger
            number than any version there.
        serving_input_receiver_fn : callable, optional
            Builds the features of the model from client requests; see `psflow.placeholder`. Default: requests have the
            features of the training input.
        assets_extra : mapping of str to path, optional
            Files to include as ``assets.extra/<name>``.
        as_text : bool
            Must be False: exports have no text form.
        checkpoint_path : str, optional
            Directory of a checkpoint; default: the latest.
        experimental_mode : ModeKeys
            Must be PREDICT: an export only predicts.
        writer : ModelWriter, optional
            Writes the model. Default: an MLflow model, which includes the code of model_fn.

        Returns
        -------
        str
            The path of the export, which appears complete or not at all.

        Raises
        ------
        NoCheckpointError
            If there is no checkpoint.
        UsageError
            If an argument is invalid, or if the model cannot be exported; an ArgumentTypeError if an argument has the
            wrong type.
        """
        check_arguments(export_dir_base, serving_input_receiver_fn, assets_extra, as_text, experimental_mode, writer)
        check_texts(checkpoint_path=checkpoint_path)
        with opened_checkpoint(self.model_dir, checkpoint_path, logs=True) as reader:
            return save_model(self.caller, reader, export_dir_base, serving_input_receiver_fn, assets_extra, writer)

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str | os.PathLike[str],
        input_receiver_fn_map: Mapping[str, ServingInputReceiverFn],
        assets_extra: Mapping[str, Any] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> str:
        """Call `export_saved_model` with the function of mode ``infer``, the only mode that an export supports."""
        receiver_fn = receiver_fn_of(input_receiver_fn_map)
        return self.export_saved_model(export_dir_base, receiver_fn, assets_extra, as_text, checkpoint_path)

    def eval_dir(self, name: str | None = None) -> str:
        """Return the path that names the evaluations of the EvalSpec `name`, for `read_eval_metrics`."""
        check_texts(name=name)
        return f"{self.model_dir.rstrip('/')}/{f'eval_{name}' if name else 'eval'}"

    def get_variable_names(self) -> list[str]:
        """Return the names of the variables and tables of the latest checkpoint, and ``global_step``, sorted."""
        with opened_checkpoint(self.model_dir) as reader:
            return variable_names(reader)

    def get_variable_value(self, name: str) -> NDArray[Any]:
        """Return a variable of the latest checkpoint, or a whole table of at most 64 MB as ``(num_rows, dim)``.

        ``global_step`` is a variable, too: an int64 of shape ().

        Raises
        ------
        CheckpointError
            If there is no checkpoint.
        UsageError
            If the variable does not exist, or is a larger table; see `get_table_rows`.
        """
        with opened_checkpoint(self.model_dir) as reader:
            return variable_value(reader, name)

    def get_table_rows(self, name: str, ids: Any) -> NDArray[Any]:
        """Return rows of a table of the latest checkpoint.

        Parameters
        ----------
        name : str
            Name of the table, as in `embedding_lookup`.
        ids : array of integers, any shape
            Row numbers in ``[0, num_rows)``; an id may occur several times.

        Returns
        -------
        ``(*ids.shape, dim)`` array
            Rows that no push has created have their initial values.

        Raises
        ------
        CheckpointError
            If there is no checkpoint.
        UsageError
            If the table does not exist, or ids are not integers in ``[0, num_rows)``.
        """
        with opened_checkpoint(self.model_dir) as reader:
            return table_rows(reader, name, ids)

    def latest_checkpoint(self) -> str | None:
        """Return the directory of the latest checkpoint; None if there is none."""
        store = CheckpointStore(self.model_dir)
        return None if (latest := store.latest()) is None else store.path(latest)
