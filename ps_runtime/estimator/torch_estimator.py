"""TorchEstimator: trains a torch module on parameter servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.canned.base import CannedEstimator, optimizer_faults, optimizer_of
from psflow.ps_runtime.estimator.checkpoint_values import check_texts, opened_checkpoint
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.metrics import Metric
from psflow.ps_runtime.model.canned.arguments import check
from psflow.ps_runtime.model.canned.base import Head
from psflow.ps_runtime.model.evaluation import read_values
from psflow.ps_runtime.optimizers import Adam, Counter, MovingAverage, Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.torch_modules.model import FreeLoss, torch_model
from psflow.ps_runtime.torch_modules.module import TorchModule, argument_faults
from psflow.ps_runtime.torch_modules.state import StateFile, is_state_file

DEFAULT_OPTIMIZER = Adam(0.001)


class TorchEstimator(CannedEstimator):
    """Trains a torch module: its parameters live on the ps, and its processes compute gradients with torch.

    Parameters
    ----------
    module : callable
        A subclass of ``torch.nn.Module``, or a function that returns a module, at the top level of its module: each
        process, and each export, builds its own. Its initial parameters depend only on the seed of `config`.
    head : Head, optional
        Interprets the outputs of the module as logits ``(batch, logits_dimension)``: loss, predictions and metrics.
    optimizer : Optimizer or str
        Applies the gradients on the ps: psflow's own, not one of ``torch.optim``; or its name, see `DNNClassifier`.
    model_dir, config
        See `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        See `Estimator`; or a file with a state_dict (``.pt``, ``.pth``, ``.bin`` or ``.safetensors``), from which all
        values are taken, or with WarmStartSettings those that its ``vars_to_warm_start`` match. The chief reads it,
        without running code in it.
    params : mapping, optional
        The arguments of `module`, by name.
    loss : callable ``(outputs, labels) -> tensor``, optional
        A loss in place of a head, such as ``torch.nn.functional.mse_loss``, of what forward returns and of labels as
        tensors; its result has one number.
    buffers : mapping of str to MovingAverage or Counter, optional
        See `TorchModule`.
    metrics : callable ``(labels, predictions) -> mapping of str to Metric``, optional
        Further metrics of an evaluation with a `loss`, of arrays.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    Forward takes a batch as tensors: an array as its only argument, and features by name as those of its parameters
    that have their names. If no parameter is named as a feature, it takes the only feature; or several by the
    annotation of its parameter: ``dict`` for all by name, ``torch.Tensor`` for all side by side, sorted by name. Floats
    have the type of the first parameter; other numbers keep their type.

    With a head, predictions, metrics and signatures are those of the head. With a loss, predictions are ``outputs``,
    or the tensors that forward returns by name.

    Running statistics of batch and instance normalization are moving averages on the ps: with several replicas each
    batch moves them once, so that they follow all batches. With one replica they are those of plain torch. Frozen
    parameters and other persistent buffers keep their values; a module that changes one in training is refused, unless
    `buffers` names it.

    Dropout and other random layers draw from the seed of the job, for each replica and step.
    """

    def __init__(
        self,
        module: Callable[..., Any],
        head: Head | None = None,
        optimizer: Optimizer | str = DEFAULT_OPTIMIZER,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        loss: Callable[..., Any] | None = None,
        metrics: Callable[..., Mapping[str, Metric]] | None = None,
        buffers: Mapping[str, MovingAverage | Counter] | None = None,
    ) -> None:
        faults = [*_faults(module, head, loss, metrics), *optimizer_faults(optimizer, "Adam(0.001)")]
        check("TorchEstimator", [*faults, *_params_faults(module, params)])
        state = _state_file(warm_start_from)
        warm_start_from = None if state else warm_start_from
        given = {
            "module": TorchModule(module, dict(params or {}), dict(buffers or {}), state=state),
            "optimizer": optimizer_of(optimizer),
            "loss": FreeLoss(loss, metrics),
        }
        super().__init__(torch_model, head, given, model_dir, config, warm_start_from)

    def to_torch(self, checkpoint_path: str | None = None) -> torch.nn.Module:
        """Return a plain module, in evaluation mode, with the values of a checkpoint.

        Parameters
        ----------
        checkpoint_path : str, optional
            Directory of a checkpoint; default: the latest.

        Raises
        ------
        NoCheckpointError
            If there is no checkpoint.

        Notes
        -----
        A sparse embedding becomes whole: all rows of its table are in memory.
        """
        check_texts(checkpoint_path=checkpoint_path)
        with opened_checkpoint(self.model_dir, checkpoint_path) as reader:
            module: TorchModule = self.params["module"]
            return module.filled(read_values(reader))

    def check_labels(self, labels: Any, where: str, input_schema: InputSchema) -> None:
        """Raise InputError if the labels of a whole data set do not fit the head."""
        if self.params["head"] is not None:
            super().check_labels(labels, where, input_schema)

    def read_schema(self, schema: InputSchema, where: str) -> InputSchema:
        """Return a schema with the weights of the head; with a loss, labels keep their shape."""
        return schema if self.params["head"] is None else super().read_schema(schema, where)

    def doubts(self, features: Any, schema: InputSchema, where: str) -> tuple[str, ...]:
        """Return no warning: a module may scale its features itself."""
        return ()


def _state_file(warm_start_from: Any) -> StateFile | None:
    """Return the file with a state_dict, if the settings name one; else None.

    Raises UsageError if they have settings that only checkpoints have.
    """
    if not isinstance(warm_start_from, WarmStartSettings):
        return StateFile(os.path.abspath(warm_start_from)) if is_state_file(warm_start_from) else None
    path = warm_start_from.ckpt_to_initialize_from
    if not is_state_file(path):
        return None
    if warm_start_from.var_name_to_vocab_info or warm_start_from.var_name_to_prev_var_name:
        raise UsageError((f"warm_start_from: {path} is a state_dict, of which only vars_to_warm_start are chosen",))
    chosen = None if warm_start_from.takes_all_trainable else "|".join(f"(?:{one})" for one in warm_start_from.patterns)
    return StateFile(os.path.abspath(path), chosen)


def _params_faults(module: Any, params: Any) -> list[str]:
    if not isinstance(params, Mapping | None):
        return [f"params is {params!r}, expected the arguments of module by name, such as {{'hidden': 64}}"]
    is_built = callable(module) and not isinstance(module, torch.nn.Module)
    return [f"params: {fault}" for fault in argument_faults(module, params or {})] if is_built else []


def _faults(module: Any, head: Any, loss: Any, metrics: Any) -> list[str]:
    faults = []
    if isinstance(module, torch.nn.Module):
        faults.append(
            f"module is an instance of {type(module).__name__}: give its class with params, or a function that returns "
            "it, so that each process can build its own"
        )
    elif not callable(module):
        faults.append(f"module is {module!r}, expected a subclass of torch.nn.Module or a function that returns one")
    if (head is None) == (loss is None):
        faults.append(
            "neither head nor loss is given: give one of them" if head is None else "give either head or loss, not both"
        )
    elif head is not None and not isinstance(head, Head):
        faults.append(f"head is {head!r}, expected a Head such as MultiClassHead(n_classes=10)")
    elif loss is not None and (not callable(loss) or isinstance(loss, type)):
        example = f": give an instance, such as {loss.__name__}()" if isinstance(loss, type) else ""
        faults.append(f"loss is {loss!r}, expected a function of outputs and labels{example}")
    elif isinstance(loss, torch.nn.Module) and any(True for _ in loss.parameters()):
        faults.append(
            f"loss {type(loss).__name__} has parameters, which only those of module are trained: keep them in the "
            "module, and have its forward return what the loss needs of them"
        )
    if metrics is not None and (head is not None or not callable(metrics)):
        faults.append("metrics: expected a function of labels and predictions, with a loss only: a head has its own")
    return faults
