"""What a canned classifier is asked for: its head follows once its training input is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.binary_class_head import BinaryClassHead
from psflow.ps_runtime.model.canned.class_labels import vocabulary_of
from psflow.ps_runtime.model.canned.multi_class_head import MultiClassHead
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["ClassifierSpec"]


@dataclass(frozen=True, slots=True)
class ClassifierSpec:
    """The classes of a classifier, as far as somebody has set them."""

    n_classes: int | None = None
    weight_column: str | None = None
    label_vocabulary: Sequence[str] | None = None
    loss_reduction: Reduction = Reduction.SUM_OVER_BATCH_SIZE

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss_reduction", Reduction(self.loss_reduction))
        if self.label_vocabulary is not None:
            object.__setattr__(self, "label_vocabulary", tuple(self.label_vocabulary))

    def reading(self, schema: InputSchema) -> BinaryClassHead | MultiClassHead:
        """Return the head for a training input: of two classes that of one logit.

        Raises
        ------
        InputError
            If the label of record files has other classes than somebody has set.
        """
        words = vocabulary_of(self.n_classes, self.label_vocabulary, schema)
        n_classes = (2 if words is None else len(words)) if self.n_classes is None else self.n_classes
        head = (
            BinaryClassHead(self.weight_column, (), words, self.loss_reduction)
            if n_classes == 2
            else MultiClassHead(n_classes, self.weight_column, words, self.loss_reduction)
        )
        return head.reading(schema)
