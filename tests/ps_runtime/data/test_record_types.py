"""Types of text in further inputs: those of training, not those that a file happens to suggest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.data.record_formats import Csv, JsonLinesInput, TabularFiles, Tsv
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import InputSchema

TRAINING = {
    "zip": ["00501", "X9", "10115"],
    "day": ["2026-01-31", "2026-02-01", "2026-02-02"],
    "share": ["0.5", "1.5", "2.5"],
    "y": ["no", "yes", "no"],
}
NUMBERS = {"share": [0.5, 1.5, 2.5]}
OPTIONS = {"day": ColumnOptions(type="string")}


def written(path: Path, columns: Mapping[str, list[Any]]) -> Path:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if path.suffix == ".csv":
        lines = [",".join(columns), *(",".join(map(str, row.values())) for row in rows)]
    else:
        lines = [json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def learned(kind: type[TabularFiles], path: Path, **columns: list[Any]) -> Any:
    path = written(path, {**TRAINING, **columns})
    return kind(path=str(path), label="y", columns=OPTIONS).read().learn("error", "the input of training")


def test_cells_that_look_like_numbers_stay_the_strings_of_training(tmp_path: Path) -> None:
    training = learned(Csv, tmp_path / "a.csv")
    words = training.read(0, 0, 3)[0]["zip"].tolist()
    later = written(tmp_path / "b.csv", {**TRAINING, "zip": ["00501", "501", "10115"], "y": ["no", "no", "yes"]})
    opened = Csv(path=str(later), label="y").read().open(training.schema(), "error", "input.eval", needs_labels=True)
    features, labels = opened.read(0, 0, 3)
    assert features["zip"].tolist() == [words[0], 3, words[2]]  # 501 is none of the three words
    assert labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize(("kind", "name"), [(Csv, "b.csv"), (JsonLinesInput, "b.jsonl")])
def test_text_that_looks_like_days_stays_text_as_in_training(
    tmp_path: Path, kind: type[TabularFiles], name: str
) -> None:
    training = learned(kind, tmp_path / f"training_{name}", **NUMBERS)
    opened = (
        kind(path=str(written(tmp_path / name, {**TRAINING, **NUMBERS})))
        .read()
        .open(training.schema(), "error", "input.eval", needs_labels=False)
    )
    assert opened.read(0, 0, 3)[0]["day"].tolist() == training.read(0, 0, 3)[0]["day"].tolist()


@pytest.mark.parametrize(("kind", "name"), [(Csv, "b.csv"), (JsonLinesInput, "b.jsonl")])
def test_days_become_numbers_where_that_is_asked_for(tmp_path: Path, kind: type[TabularFiles], name: str) -> None:
    path = written(tmp_path / name, {**TRAINING, "day": ["1970-01-01", "1970-01-03", "1971-01-01"]})
    columns = {"day": ColumnOptions(type="number")}
    opened = kind(path=str(path), label="y", columns=columns).read().learn("error", "the input of training")
    assert opened.read(0, 0, 3)[0]["day"].tolist() == [0, 2, 365]
    later = kind(path=str(path)).read().open(opened.schema(), "error", "input.eval", needs_labels=False)
    assert later.read(0, 0, 3)[0]["day"].tolist() == [0, 2, 365]


def test_whole_numbers_in_place_of_fractions_are_taken_and_strings_refused_with_their_row(tmp_path: Path) -> None:
    schema = learned(Csv, tmp_path / "a.csv").schema()
    whole = written(tmp_path / "b.csv", {**TRAINING, "share": ["1", "2", "3"]})
    opened = Csv(path=str(whole)).read().open(schema, "error", "input.eval", needs_labels=False)
    assert opened.read(0, 0, 3)[0]["share"].tolist() == [1, 2, 3]
    wrong = written(tmp_path / "c.csv", {**TRAINING, "share": ["1", "2", "much"]})
    with pytest.raises(InputError, match=r"c\.csv: column 'share': 2 of 3 are numbers; row 4 .* is 'much'"):
        Csv(path=str(wrong)).read().open(schema, "error", "input.eval", needs_labels=False)


def test_fractions_in_place_of_whole_numbers_are_taken(tmp_path: Path) -> None:
    schema = learned(Csv, tmp_path / "a.csv", share=["1", "2", "3"]).schema()
    later = written(tmp_path / "b.csv", TRAINING)
    opened = Csv(path=str(later)).read().open(schema, "error", "input.eval", needs_labels=False)
    assert opened.read(0, 0, 3)[0]["share"].tolist() == [0.5, 1.5, 2.5]


def test_columns_that_are_missing_are_reported_together(tmp_path: Path) -> None:
    schema = learned(Csv, tmp_path / "a.csv").schema()
    later = written(tmp_path / "b.csv", {"zip": ["1"]})
    with pytest.raises(InputError) as caught:
        Csv(path=str(later)).read().open(schema, "error", "input.eval", needs_labels=False)
    assert [name for name in ("day", "share") if f"no column {name!r}" in str(caught.value)] == ["day", "share"]


def test_the_label_of_a_further_input_that_names_none_is_that_of_training(tmp_path: Path) -> None:
    training = learned(Csv, tmp_path / "a.csv")
    opened = Csv(path=str(tmp_path / "a.csv")).read().open(training.schema(), "error", "input.eval", needs_labels=True)
    _, labels = opened.read(0, 0, 3)
    assert labels.tolist() == [0, 1, 0]


def test_text_is_read_as_in_training_unless_the_later_input_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("job;y\nBäcker;1\n?;2\nKoch;3\n".encode("latin-1"))
    keys: dict[str, Any] = {"delimiter": ";", "na_values": ["?"], "encoding": "latin-1"}
    training = Csv(path=str(tmp_path / "a.csv"), label="y", **keys).read().learn("keep", "the train input")
    later = Csv(path=str(tmp_path / "a.csv")).read().open(training.schema(), "keep", "eval", needs_labels=True)
    assert later.read(0, 0, 3)[0]["job"].tolist() == training.read(0, 0, 3)[0]["job"].tolist()
    (tmp_path / "c.csv").write_text("job,y\nBäcker,1\nNA,2\nKoch,3\n")  # what is usual can be stated, too
    usual = Csv(path=str(tmp_path / "c.csv"), delimiter=",", na_values=["NA"], encoding="utf-8").read()
    read = usual.open(training.schema(), "keep", "eval", needs_labels=True).read(0, 0, 3)[0]["job"]
    assert read.tolist() == later.read(0, 0, 3)[0]["job"].tolist()
    (tmp_path / "b.csv").write_text("job|y\nKoch|1\n-|2\n")
    own = Csv(path=str(tmp_path / "b.csv"), delimiter="|", na_values=["-"]).read()
    read = own.open(training.schema(), "keep", "eval", needs_labels=True).read(0, 0, 2)[0]["job"]
    assert read.tolist() == later.read(0, 1, 3)[0]["job"].tolist()[::-1]


@pytest.mark.parametrize(
    ("training", "keys", "later", "delimiter"),
    [
        (Csv, {"delimiter": "\t"}, Csv, "\t"),
        (Csv, {"delimiter": "\t"}, Tsv, "\t"),
        (Csv, {}, Tsv, "\t"),
        (Csv, {"delimiter": ";"}, Tsv, "\t"),
        (Tsv, {}, Csv, ","),
        (Tsv, {}, Tsv, "\t"),
        (Csv, {"delimiter": ";"}, Csv, ";"),
    ],
)
def test_files_of_a_format_are_separated_as_in_training(
    tmp_path: Path, training: type[Csv], keys: dict[str, Any], later: type[Csv], delimiter: str
) -> None:
    def written(folder: str, suffix: str, between: str) -> str:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"a{suffix}").write_text(f"x{between}y\n1{between}2\n3{between}4\n")
        return str(tmp_path / folder)

    usual = training.usual_delimiter
    first = training(path=written("first", training.suffixes[0], keys.get("delimiter", usual)), label="y", **keys)
    schema = first.read().learn("error", "input.train").schema()
    assert InputSchema.from_facts(schema.to_facts()) == schema
    further = later(path=written("later", later.suffixes[0], delimiter)).read()
    features, labels = further.open(schema, "error", "input.eval", needs_labels=True).read(0, 0, 2)
    assert features["x"].tolist() == [1, 3]
    assert labels is not None
    assert labels.tolist() == [2, 4]
