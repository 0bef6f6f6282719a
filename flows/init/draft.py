"""Drafts a first configuration for tabular files, and writes its YAML with a comment for each guess."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from psflow.flows.init.columns import ColumnGuess, Use, column_facts, guess_column
from psflow.flows.init.label import LabelGuess, guess_label
from psflow.flows.init.sample import RecordSample
from psflow.ps_runtime.columns.values import missing_rows
from psflow.ps_runtime.config.files import inline
from psflow.ps_runtime.data.invalid_cells import InvalidColumn
from psflow.ps_runtime.data.part import InputPart
from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.redaction import shown_path

if TYPE_CHECKING:
    import pyarrow as pa

CLASSIFIERS = ("DNNClassifier", "LinearClassifier")
REGRESSORS = ("DNNRegressor", "LinearRegressor")
ENOUGH_FOR_DEEP = 1000
"""Records below which a linear model generalizes better."""
PART = 0.9
"""Fraction of the records for training."""
MAX_WORDS = 999
"""Categories of a column, including the unknown one, up to which a deep network needs no embedding."""
BATCH_SIZE = 64
EPOCHS = 20
FEWEST_STEPS, MOST_STEPS = 300, 20_000


@dataclass(frozen=True)
class Draft:
    """A first configuration."""

    experiment: str
    sample: RecordSample
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
        """Columns in use with a few invalid cells, whose records are dropped."""
        read = {self.label.column, *(guess.name for guess in self.of(Use.FEATURE))}
        return [column for column in self.sample.invalid if column.name in read]

    def of(self, use: Use) -> list[ColumnGuess]:
        """Return the columns of one use."""
        return [guess for guess in self.columns if guess.use is use]


def draft(sample: RecordSample, label: str, model: str | None, experiment: str) -> Draft:
    """Guess a configuration.

    Raises UsageError if there is no such label, it cannot be learned, or no feature column remains.
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
                can_flag=f"{column.name}_is_missing" not in taken,
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
        raise UsageError((f"{shown_path(sample.path)}: no feature column remains ({found or 'no other column'})",))
    steps = EPOCHS * PART * sample.num_records / BATCH_SIZE
    max_steps = round(min(max(steps, FEWEST_STEPS), MOST_STEPS), -2)
    return Draft(experiment, sample, guess, chosen, reason, tuple(columns), int(max_steps))


def _typed(guess: ColumnGuess, sample: RecordSample) -> ColumnGuess:
    """Return a guess with an explicit type for a feature that looks like another type."""
    if guess.use is not Use.FEATURE or guess.name not in sample.set_types:
        return guess
    why = ", numbers with leading zeros" if guess.name in sample.as_written else ""
    if guess.name in sample.mixed:
        why = f": {sample.mixed[guess.name]}, which is kept as a string"
    options = {"type": sample.set_types[guess.name], **guess.options}
    return replace(guess, comment=f"{guess.comment}{why}", options=options)


def _check_parts(sample: RecordSample, label: pa.ChunkedArray) -> None:
    """Raise UsageError if the files are so small that one of their parts has no label."""
    has_label = ~missing_rows(label.combine_chunks())
    for part in (InputPart(0, PART), InputPart(PART, 1)):
        if sample.is_all and not (part.has(0, len(has_label)) & has_label).any():
            fault = f"{has_label.sum()} records with a label are too few to train on some and evaluate on others"
            raise UsageError((f"{shown_path(sample.path)}: {fault}; provide at least about 100",))


def _model(label: LabelGuess, asked: str | None, sample: RecordSample) -> tuple[str, str]:
    """Return a canned model, and why."""
    deep, linear = CLASSIFIERS if label.is_classes else REGRESSORS
    if asked is not None:
        if asked not in (deep, linear):
            near = did_you_mean(asked, (deep, linear))
            raise UsageError((f"--model is {asked!r}, expected {deep} or {linear} for this label{near}",))
        return asked, "as requested"
    if sample.num_records < ENOUGH_FOR_DEEP:
        return linear, f"{sample.num_records:,} records are too few for a deep network"
    return deep, f"it learns interactions of columns; {linear} is simpler"


WIDTH = 120
INDENT = " " * 4
NUM_CHECKPOINTS = {True: 10, False: 2}
"""Checkpoints of deep and of linear models, of which the best is chosen: linear ones hardly overfit."""
MAX_COMMENT = 300
"""Characters of a comment, whose values may be long."""


def draft_text(made: Draft) -> str:
    """Return the text of a configuration file."""
    return "\n".join([*_head(made), *_training_input(made), *_tail(made)]) + "\n"


def _head(made: Draft) -> Iterator[str]:
    sample = made.sample
    seen = f"{sample.table.num_rows:,} records"
    if not sample.is_all:
        seen = f"the first {sample.table.num_rows:,} of about {sample.num_records:,} records"
    yield _comment(f"Written by psflow init from {seen} of {sample.path}.")
    yield _comment("All entries are guesses, with their reasons. Correct what you know better.")
    yield f"experiment: {inline(made.experiment)}"
    yield _comment(made.reason)
    yield f"model: {inline({'name': made.model, **_params(made)})}"
    yield "input:"


def _params(made: Draft) -> dict[str, Any]:
    if not made.is_deep:
        return {}
    return {"params": {"hidden_units": [64, 32], "optimizer": {"name": "Adam", "learning_rate": 0.001}}}


def _training_input(made: Draft) -> Iterator[str]:
    """Yield the input in flow style: a line for each key, after its reasons."""
    sample, label = made.sample, made.label
    first = {"format": sample.format_name, "path": sample.path, "part": [0, PART], "batch_size": BATCH_SIZE}
    yield _comment(f"Training has {PART:.0%} of the records, and input.eval the others, by a hash of their numbers.", 2)
    yield f"  train: {{{', '.join(f'{key}: {inline(value)}' for key, value in first.items())}, shuffle: true,"
    parts: list[list[str]] = [[_comment(f"{label.column}: {label.comment}", 4), *_label(made)]]
    if label.num_missing:
        words = f" ({', '.join(map(repr, sample.missing_labels))})" if sample.missing_labels else ""
        comment = f"{label.num_missing:,} of {sample.table.num_rows:,} records have no label{words}: left out"
        parts.append([_comment(comment, 4), _item("non_finite", "drop")])
    if made.invalid:
        comments = [_comment(f"{column.name}: {column}: left out", 4) for column in made.invalid]
        parts.append([*comments, _item("invalid", "drop")])
    for key, value in sample.reading.items():
        seen = ", ".join(map(repr, sample.missing_markers))
        guessed = [_comment(f"missing values: {seen} and default markers", 4)] if key == "na_values" and seen else []
        parts.append([*guessed, _item(key, value)])
    if keys := made.of(Use.KEY):
        comments = [_comment(f"{guess.name}: {guess.comment}", 4) for guess in keys]
        parts.append([*comments, _item("key_columns", [guess.name for guess in keys])])
    features = made.of(Use.FEATURE)
    if left_out := made.of(Use.LEFT_OUT):
        comments = [_comment(f"{guess.name}: {guess.comment}", 4) for guess in left_out]
        names = (inline(guess.name) for guess in features)
        parts.append([*comments, *_wrapped("features: [", names, "]")])
    comments = [_comment(f"{guess.name}: {guess.comment}", 4) for guess in features]
    types = sample.set_types
    items = [f"{inline(label.column)}: {inline({'type': types[label.column]})}"] if label.column in types else []
    items += [f"{inline(guess.name)}: {_options(tuple(guess.options.items()))}" for guess in features if guess.options]
    if items:
        parts.append([*comments, *_wrapped("columns: {", items, "}")])
    else:
        parts[0] = [*comments, *parts[0]]
    for number, part in enumerate(parts, start=1):
        yield from part[:-1]
        yield part[-1] + ("}" if number == len(parts) else ",")


def _label(made: Draft) -> list[str]:
    """Return the key ``label``, on several lines if it lists many classes."""
    match made.label.options:
        case {"classes": list() as classes}:
            column = inline(made.label.column)
            return _wrapped(f"label: {{column: {column}, classes: [", map(inline, classes), "]}")
        case _:
            return [_item("label", made.label.key)]


def _tail(made: Draft) -> Iterator[str]:
    sample = made.sample
    evaluation: dict[str, Any] = {"format": sample.format_name, "path": sample.path, "part": [PART, 1]}
    if made.label.num_missing:
        evaluation["non_finite"] = "drop"
    if made.invalid:
        evaluation["invalid"] = "drop"
    yield f"  eval: {inline(evaluation)}"
    epochs = made.max_steps * BATCH_SIZE / (PART * sample.num_records)
    about = f"{epochs:.2g}" if epochs < 10 else f"{epochs:.0f}"
    yield _comment(f"about {about} epochs; the checkpoint with the least eval loss is the best")
    interval = made.max_steps // NUM_CHECKPOINTS[made.is_deep]
    yield f"train: {inline({'max_steps': made.max_steps, 'save_checkpoints_steps': interval})}"


@functools.cache
def _options(options: tuple[tuple[str, Any], ...]) -> str:
    """Return the options of a column on one line; cached, as many columns share them."""
    return inline(dict(options))


def _item(key: str, value: Any) -> str:
    return f"{INDENT}{key}: {inline(list(value) if isinstance(value, tuple) else value)}"


def _wrapped(opening: str, items: Iterable[str], closing: str) -> list[str]:
    """Return a collection in lines of at most `WIDTH` characters, unless an item is longer."""
    lines = [INDENT + opening]
    texts = list(items)
    for number, text in enumerate(texts, start=1):
        piece = text + (", " if number < len(texts) else closing)
        if len(lines[-1]) + len(piece.rstrip()) >= WIDTH and lines[-1].strip() != opening:
            lines[-1] = lines[-1].rstrip()
            lines.append(INDENT + "  ")
        lines[-1] += piece
    if not texts:
        lines[-1] += closing
    return lines


def _comment(text: str, indent: int = 0) -> str:
    """Return a comment on one line, also for values with line breaks."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    return " " * indent + "# " + (clean if len(clean) <= MAX_COMMENT else clean[:MAX_COMMENT] + "...")
