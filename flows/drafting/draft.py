"""A first configuration for record files, before it is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from psflow.flows.drafting.columns import ColumnGuess, Use, guess_column
from psflow.flows.drafting.facts import column_facts
from psflow.flows.drafting.label import LabelGuess, guess_label
from psflow.flows.drafting.sample import Sample
from psflow.ps_runtime.columns.values import blank_rows
from psflow.ps_runtime.data.invalid_cells import InvalidColumn
from psflow.ps_runtime.data.part import InputPart
from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.redaction import shown_path

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH_SIZE", "PART", "Draft", "draft"]

CLASSIFIERS = ("DNNClassifier", "LinearClassifier")
REGRESSORS = ("DNNRegressor", "LinearRegressor")
ENOUGH_FOR_DEEP = 1000
"""Records; of fewer a linear model learns more that is true of others."""
PART = 0.9
"""Of the records to train on."""
MAX_WORDS = 999
"""Of a column: with the id of unknown words, a deep network takes so many without an embedding."""
BATCH_SIZE = 64
EPOCHS = 20
FEWEST_STEPS, MOST_STEPS = 300, 20_000


@dataclass(frozen=True)
class Draft:
    """A first configuration."""

    experiment: str
    sample: Sample
    label: LabelGuess
    model: str
    reason: str
    columns: tuple[ColumnGuess, ...]
    max_steps: int

    @property
    def is_deep(self) -> bool:
        """Whether the model is a deep network."""
        return self.model.startswith("DNN")

    @property
    def invalid(self) -> list[InvalidColumn]:
        """The columns that are read and have a few cells that are not of their type: their records are left out."""
        read = {self.label.column, *(guess.name for guess in self.of(Use.FEATURE))}
        return [column for column in self.sample.invalid if column.name in read]

    def of(self, use: Use) -> list[ColumnGuess]:
        """Return the columns of one use."""
        return [guess for guess in self.columns if guess.use is use]


def draft(sample: Sample, label: str, model: str | None, experiment: str) -> Draft:
    """Guess a configuration.

    Raises
    ------
    UsageError
        If there is no such label, it is nothing to learn, or no column is left to learn from.
    """
    names = [column.name for column in sample.columns]
    if label not in names:
        kind = sample.unreadable.get(label)
        what = f"there is no column {label!r}{did_you_mean(label, names)}" if kind is None else f"{label!r} is {kind}"
        raise UsageError((f"{shown_path(sample.path)}: {what}; expected the label among {', '.join(names[:20])}",))
    raw = {column.name: column for column in sample.columns}
    label_column = sample.table.column(label)
    guess = guess_label(column_facts(raw.pop(label), label_column), label_column, sample)
    _check_parts(sample, label_column)
    chosen, reason = _model(guess, model, sample)
    taken = frozenset(names)
    columns = [
        _typed(
            guess_column(
                column_facts(column, sample.table.column(column.name)),
                can_flag=f"{column.name}_is_blank" not in taken,
                is_deep=chosen.startswith("DNN"),
                max_words=MAX_WORDS if sample.is_all else MAX_WORDS // 2,
                seen=sample.seen,
            ),
            sample,
        )
        for column in raw.values()
    ]
    columns += [ColumnGuess(name, Use.LEFT_OUT, f"{kind}: left out") for name, kind in sample.unreadable.items()]
    if not any(column.use is Use.FEATURE for column in columns):
        found = "; ".join(f"{column.name}: {column.comment}" for column in columns)
        raise UsageError(
            (f"{shown_path(sample.path)}: no column is left to learn from ({found or 'no other column'})",)
        )
    steps = EPOCHS * PART * sample.num_records / BATCH_SIZE
    max_steps = round(min(max(steps, FEWEST_STEPS), MOST_STEPS), -2)
    return Draft(experiment, sample, guess, chosen, reason, tuple(columns), int(max_steps))


def _typed(guess: ColumnGuess, sample: Sample) -> ColumnGuess:
    """Return a guess that says what a feature has to be read as, where it looks like something else."""
    if guess.use is not Use.FEATURE or guess.name not in sample.set_types:
        return guess
    why = ", numbers with leading zeros" if guess.name in sample.as_written else ""
    if guess.name in sample.mixed:
        why = f": {sample.mixed[guess.name]}, which is kept as a word"
    options = {"type": sample.set_types[guess.name], **guess.options}
    return replace(guess, comment=f"{guess.comment}{why}", options=options)


def _check_parts(sample: Sample, label: pa.ChunkedArray) -> None:
    """Raise UsageError if a file is so small that one of its parts has no label."""
    has_label = ~blank_rows(label.combine_chunks())
    for part in (InputPart(0, PART), InputPart(PART, 1)):
        if sample.is_all and not (part.has(0, len(has_label)) & has_label).any():
            fault = f"{has_label.sum()} records with a label are too few to train on some and evaluate on others"
            raise UsageError((f"{shown_path(sample.path)}: {fault}; 100 are a beginning",))


def _model(label: LabelGuess, asked: str | None, sample: Sample) -> tuple[str, str]:
    """Return a canned model, and why."""
    deep, linear = CLASSIFIERS if label.is_classes else REGRESSORS
    if asked is not None:
        if asked not in (deep, linear):
            near = did_you_mean(asked, (deep, linear))
            raise UsageError((f"--model is {asked!r}, expected {deep} or {linear} for this label{near}",))
        return asked, "as you asked"
    if sample.num_records < ENOUGH_FOR_DEEP:
        return linear, f"{sample.num_records:,} records are few for a deep network"
    return deep, f"it finds what columns mean together; {linear} is simpler"
