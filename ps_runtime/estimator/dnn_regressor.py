"""The Estimator of a deep neural network that predicts numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.hyper_parameters import check, count_faults, optimizer_faults, units_faults
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.feature_columns.choosing import as_list, deep_columns_faults
from psflow.ps_runtime.feature_columns.kinds import DenseColumn
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.model.canned.dnn import dnn_regressor
from psflow.ps_runtime.model.canned.regressor_head import RegressorHead
from psflow.ps_runtime.optimizers import Adagrad, Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["DNNRegressor"]

DEFAULT_OPTIMIZER = Adagrad(learning_rate=0.05)


class DNNRegressor(Estimator):
    """Dense layers with relu between them, trained to predict numbers with the least squared error.

    Parameters
    ----------
    hidden_units : sequence of int
        Units of each hidden layer, from the input on; none for a linear model.
    feature_columns : column or iterable of column, optional
        What it reads of the features, made by the functions of `psflow.feature_column`; columns of ids are wrapped in
        an embedding or an indicator. By default it reads the features themselves.
    label_dimension : int
        Numbers of a label, at least 1; labels are numbers of shape ``(batch, label_dimension)``, or ``(batch,)`` where
        it is 1.
    optimizer : Optimizer
        Trains all layers; Adagrad with learning rate 0.05 by default.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Where the first values come from; see `Estimator`.

    Raises
    ------
    UsageError
        All faults in one message.

    Notes
    -----
    Features and weights of the records are those of `DNNClassifier`. Predictions are ``predictions``, ``(batch,
    label_dimension)``. Metrics are ``average_loss``, ``label/mean`` and ``prediction/mean``. The loss is the mean over
    examples and dimensions.

    Where ``normalize: standard`` is said of the label of record files, the loss is that of normalized labels.
    """

    def __init__(
        self,
        hidden_units: Annotated[
            Sequence[Annotated[int, Key("Units.", ge=1)]], Key("Units of each hidden layer, the first layer first.")
        ],
        feature_columns: DenseColumn | Iterable[DenseColumn] | None = None,
        label_dimension: Annotated[int, Key("Numbers of a label.", ge=1)] = 1,
        optimizer: Annotated[Optimizer, Key("How the ps applies gradients.")] = DEFAULT_OPTIMIZER,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
    ) -> None:
        columns = as_list(feature_columns)
        faults = [
            *([] if columns is None else deep_columns_faults(columns)),
            *units_faults(hidden_units),
            *count_faults("label_dimension", label_dimension, at_least=1),
            *optimizer_faults(optimizer, "Adagrad(learning_rate=0.05)"),
        ]
        check("DNNRegressor", faults)
        params = {
            "hidden_units": [int(n) for n in hidden_units],
            "feature_columns": columns,
            "label_dimension": int(label_dimension),
            "optimizer": optimizer,
        }
        super().__init__(dnn_regressor, model_dir, config, params, warm_start_from)

    def check_labels(self, labels: Any, where: str, input_schema: InputSchema) -> None:
        """Raise InputError if a whole data set has labels that are not `label_dimension` numbers for each example."""
        RegressorHead(self.params["label_dimension"]).check_labels(labels, where)
