"""The Estimator of a linear model that classifies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.hyper_parameters import check, combiner_faults, count_faults, optimizer_faults
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.feature_columns.choosing import as_list, linear_columns_faults
from psflow.ps_runtime.feature_columns.kinds import Combiner, LinearColumn
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.model.canned.head import ClassifierHead
from psflow.ps_runtime.model.canned.linear import linear_classifier
from psflow.ps_runtime.optimizers import Optimizer
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["LinearClassifier"]


class LinearClassifier(Estimator):
    """A weighted sum of the features for each class, and softmax over these.

    Parameters
    ----------
    feature_columns : column or iterable of column, optional
        What it reads of the features, made by the functions of `psflow.feature_column`; none of them an embedding. By
        default it reads the features themselves.
    n_classes : int, optional
        Number of classes, at least 2; labels are integers in [0, n_classes), of shape ``(batch,)`` or ``(batch, 1)``.
        By default as many as the words that the labels are, or 2 where labels are numbers.
    optimizer : Optimizer, optional
        Trains all weights; by default Ftrl with learning rate ``min(0.2, 1 / sqrt(number of columns))``.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.
    warm_start_from : str or WarmStartSettings, optional
        Where the first values come from; see `Estimator`.
    sparse_combiner : {"sum", "mean", "sqrtn"}
        How the weights of several ids of a column are joined in an example.

    Raises
    ------
    UsageError
        All faults in one message.

    Notes
    -----
    Features are an array ``(batch, k)``, or a mapping of such arrays. The weights of one are the variable
    ``linear/linear_model/<name>/weights``, ``(k, n_classes)``. A feature that the training input declares as ids,
    ``(batch,)``, has a weight for each id and class: up to 1,000 ids are such a variable, ``(num_ids, n_classes)``,
    more of them a sparse table. Embeddings are for deep networks alone. All weights begin at 0.

    A column, for the learning rate, is a column of a table that arrives as a matrix, or any other feature.

    Weights of the records, predictions and metrics are those of `DNNClassifier`.
    """

    def __init__(
        self,
        feature_columns: LinearColumn | Iterable[LinearColumn] | None = None,
        n_classes: Annotated[
            int | None,
            Key("Number of classes; labels are 0 to n_classes - 1; null: the words of the label, else 2.", ge=2),
        ] = None,
        optimizer: Annotated[
            Optimizer | None,
            Key("How the ps applies gradients; null: Ftrl, learning rate min(0.2, 1 / sqrt(number of columns))."),
        ] = None,
        model_dir: str | None = None,
        config: RunConfig | None = None,
        warm_start_from: str | WarmStartSettings | None = None,
        sparse_combiner: Combiner = "sum",
    ) -> None:
        columns = as_list(feature_columns)
        faults = [] if n_classes is None else count_faults("n_classes", n_classes, at_least=2)
        if optimizer is not None:
            faults += optimizer_faults(optimizer, "Ftrl(learning_rate=0.2)")
        faults += combiner_faults("sparse_combiner", sparse_combiner)
        if columns is not None:
            faults += linear_columns_faults(columns)
        check("LinearClassifier", faults)
        params = {
            "feature_columns": columns,
            "sparse_combiner": sparse_combiner,
            "n_classes": None if n_classes is None else int(n_classes),
            "optimizer": optimizer,
        }
        super().__init__(linear_classifier, model_dir, config, params, warm_start_from)

    def check_labels(self, labels: Any, where: str, input_schema: InputSchema) -> None:
        """Raise InputError if a whole data set has labels that are no integers in [0, n_classes)."""
        ClassifierHead.reading(self.params["n_classes"], input_schema).check_labels(labels, where)
