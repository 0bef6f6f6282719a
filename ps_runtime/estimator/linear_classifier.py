"""The Estimator of a linear model that classifies."""

from __future__ import annotations

from typing import Annotated, Any

from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.hyper_parameters import check, count_faults, optimizer_faults
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
    n_classes : int, optional
        Number of classes, at least 2; labels are integers in [0, n_classes), of shape ``(batch,)`` or ``(batch, 1)``.
        By default as many as the words that the labels are, or 2 where labels are numbers.
    optimizer : Optimizer, optional
        Trains all weights; by default Ftrl with learning rate ``min(0.2, 1 / sqrt(number of columns))``.
    model_dir : str, optional
        See `Estimator`.
    config : RunConfig, optional
        How to run; see `Estimator`.

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
    ) -> None:
        faults = [] if n_classes is None else count_faults("n_classes", n_classes, at_least=2)
        if optimizer is not None:
            faults += optimizer_faults(optimizer, "Ftrl(learning_rate=0.2)")
        check("LinearClassifier", faults)
        params = {"n_classes": None if n_classes is None else int(n_classes), "optimizer": optimizer}
        super().__init__(linear_classifier, model_dir, config, params)

    def check_labels(self, labels: Any, where: str, input_schema: InputSchema) -> None:
        """Raise InputError if a whole data set has labels that are no integers in [0, n_classes)."""
        ClassifierHead.reading(self.params["n_classes"], input_schema).check_labels(labels, where)
