"""The Estimator of a deep neural network that classifies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.hyper_parameters import check, count_faults, optimizer_faults, units_faults
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.feature_columns.choosing import as_list, deep_columns_faults
from psflow.ps_runtime.feature_columns.kinds import DenseColumn
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.model.canned.dnn import dnn_classifier
from psflow.ps_runtime.model.canned.head import ClassifierHead
from psflow.ps_runtime.optimizers import Adagrad, Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["DNNClassifier"]

DEFAULT_OPTIMIZER = Adagrad(learning_rate=0.05)


class DNNClassifier(Estimator):
    """Dense layers with relu between them, softmax over the classes at the end.

    Parameters
    ----------
    hidden_units : sequence of int
        Units of each hidden layer, from the input on; none for a linear model.
    feature_columns : column or iterable of column, optional
        What it reads of the features, made by the functions of `psflow.feature_column`; columns of ids are wrapped in
        an embedding or an indicator. By default it reads the features themselves.
    n_classes : int, optional
        Number of classes, at least 2; labels are integers in [0, n_classes), of shape ``(batch,)`` or ``(batch, 1)``.
        By default as many as the words that the labels are, or 2 where labels are numbers.
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
    Features are an array ``(batch, k)``, or a mapping of such arrays, put side by side in the sorted order of their
    names. Of a feature that the training input declares as ids, ``(batch,)``, stands there a column for each id, 1 in
    the rows that have it and else 0; it may have up to 1,000 ids. With an embedding it is the learned vector of each
    row's id that stands there; up to 1,000 vectors are a variable, more of them a sparse table.

    Weights of the records, where the training input has some, are no feature: they multiply the losses of the examples,
    whose sum is divided by the number of examples, and metrics are weighted.

    Predictions are ``logits``, ``probabilities``, ``class_ids``, and ``classes`` where the labels are words. Metrics
    are ``accuracy`` and ``average_loss``, and with two classes also ``accuracy_baseline``, ``auc``,
    ``auc_precision_recall``, ``label/mean``, ``precision``, ``prediction/mean`` and ``recall``.
    """

    def __init__(
        self,
        hidden_units: Annotated[
            Sequence[Annotated[int, Key("Units.", ge=1)]], Key("Units of each hidden layer, the first layer first.")
        ],
        feature_columns: DenseColumn | Iterable[DenseColumn] | None = None,
        n_classes: Annotated[
            int | None,
            Key("Number of classes; labels are 0 to n_classes - 1; null: the words of the label, else 2.", ge=2),
        ] = None,
        optimizer: Annotated[Optimizer, Key("How the ps applies gradients.")] = DEFAULT_OPTIMIZER,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
    ) -> None:
        columns = as_list(feature_columns)
        faults = [
            *([] if columns is None else deep_columns_faults(columns)),
            *units_faults(hidden_units),
            *([] if n_classes is None else count_faults("n_classes", n_classes, at_least=2)),
            *optimizer_faults(optimizer, "Adagrad(learning_rate=0.05)"),
        ]
        check("DNNClassifier", faults)
        params = {
            "hidden_units": [int(n) for n in hidden_units],
            "feature_columns": columns,
            "n_classes": None if n_classes is None else int(n_classes),
            "optimizer": optimizer,
        }
        super().__init__(dnn_classifier, model_dir, config, params, warm_start_from)

    def check_labels(self, labels: Any, where: str, input_schema: InputSchema) -> None:
        """Raise InputError if a whole data set has labels that are no integers in [0, n_classes)."""
        ClassifierHead.reading(self.params["n_classes"], input_schema).check_labels(labels, where)
