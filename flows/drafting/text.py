"""A draft as YAML: short, with a comment for each guess."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from psflow.flows.drafting.columns import Use
from psflow.flows.drafting.draft import BATCH_SIZE, PART, Draft
from psflow.ps_runtime.config.files import inline

__all__ = ["draft_text"]

WIDTH = 120
INDENT = " " * 4
NUM_CHECKPOINTS = {True: 10, False: 2}
"""Of deep and of linear models, of which the best on a few records is chosen: a linear one hardly learns too much."""
MAX_COMMENT = 300
"""Characters: a value that is in it may be long."""


def draft_text(made: Draft) -> str:
    """Return the text of a configuration file."""
    return "\n".join([*_head(made), *_training_input(made), *_tail(made)]) + "\n"


def _head(made: Draft) -> Iterator[str]:
    sample = made.sample
    seen = f"{sample.table.num_rows:,} records"
    if not sample.is_all:
        seen = f"the first {sample.table.num_rows:,} of about {sample.num_records:,} records"
    yield _comment(f"Written by psflow init after a look at {seen} of {sample.path}.")
    yield _comment("These are guesses, with what speaks for them. Change what you know better.")
    yield f"experiment: {inline(made.experiment)}"
    yield _comment(made.reason)
    yield f"model: {inline({'name': made.model, **_params(made)})}"
    yield "input:"


def _params(made: Draft) -> dict[str, Any]:
    if not made.is_deep:
        return {}
    return {"params": {"hidden_units": [64, 32], "optimizer": {"name": "Adam", "learning_rate": 0.001}}}


def _training_input(made: Draft) -> Iterator[str]:
    """Yield the input in flow style: a line for each thing to say, behind what speaks for it."""
    sample, label = made.sample, made.label
    first = {"format": sample.format_name, "path": sample.path, "part": [0, PART], "batch_size": BATCH_SIZE}
    yield _comment(f"Training has {PART:.0%} of the records, and input.eval the others, by a hash of their numbers.", 2)
    yield f"  train: {{{', '.join(f'{key}: {inline(value)}' for key, value in first.items())}, shuffle: true,"
    parts: list[list[str]] = [[_comment(f"{label.column}: {label.comment}", 4), *_label(made)]]
    if label.num_blanks:
        words = f" ({', '.join(map(repr, sample.blank_labels))})" if sample.blank_labels else ""
        comment = f"{label.num_blanks:,} of {sample.table.num_rows:,} records have no label{words}: left out"
        parts.append([_comment(comment, 4), _item("non_finite", "drop")])
    if made.invalid:
        comments = [_comment(f"{column.name}: {column}: left out", 4) for column in made.invalid]
        parts.append([*comments, _item("invalid", "drop")])
    for key, value in sample.reading.items():
        seen = ", ".join(map(repr, sample.blank_words))
        guessed = [_comment(f"blank cells: {seen} and what is blank anyway", 4)] if key == "na_values" and seen else []
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
    """Return the key, on several lines if it lists many classes."""
    match made.label.options:
        case {"classes": list() as classes}:
            column = inline(made.label.column)
            return _wrapped(f"label: {{column: {column}, classes: [", map(inline, classes), "]}")
        case _:
            return [_item("label", made.label.key)]


def _tail(made: Draft) -> Iterator[str]:
    sample = made.sample
    evaluation: dict[str, Any] = {"format": sample.format_name, "path": sample.path, "part": [PART, 1]}
    if made.label.num_blanks:
        evaluation["non_finite"] = "drop"
    if made.invalid:
        evaluation["invalid"] = "drop"
    yield f"  eval: {inline(evaluation)}"
    epochs = made.max_steps * BATCH_SIZE / (PART * sample.num_records)
    about = f"{epochs:.2g}" if epochs < 10 else f"{epochs:.0f}"
    yield _comment(
        f"about {about} times over the training records; the checkpoint with the least eval loss is the best"
    )
    interval = made.max_steps // NUM_CHECKPOINTS[made.is_deep]
    yield f"train: {inline({'max_steps': made.max_steps, 'save_checkpoints_steps': interval})}"


@functools.cache
def _options(options: tuple[tuple[str, Any], ...]) -> str:
    """Return the options of a column on one line, once for all columns that have the same."""
    return inline(dict(options))


def _item(key: str, value: Any) -> str:
    return f"{INDENT}{key}: {inline(list(value) if isinstance(value, tuple) else value)}"


def _wrapped(opening: str, items: Iterable[str], closing: str) -> list[str]:
    """Return a collection in lines of at most `WIDTH` characters, as far as its items have fewer."""
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
    """Return a comment on one line, whatever the values are that it shows."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    return " " * indent + "# " + (clean if len(clean) <= MAX_COMMENT else clean[:MAX_COMMENT] + "...")
