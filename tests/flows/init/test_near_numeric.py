"""Numbers and dates that are read as strings: a draft reports them, with a remedy."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from psflow.flows.init.answer import init
from psflow.flows.inspect.plan import plan
from psflow.flows.parameters.configuration import read_settings
from psflow.flows.parameters.train import parse_parameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.columns.near_numeric import NearNumericStrings, near_numeric
from psflow.ps_runtime.errors import UsageError


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["1,5", "-2,25", ",5", "3"], "3 of 4 look like '1,5', numbers with a decimal comma: "),
        (["1.234,50", "12,5"], "2 of 2 look like '1.234,50', numbers with a decimal comma: "),
        (["1,234", "5", "1,234,567.8"], "2 of 3 look like '1,234', numbers with commas between thousands, or decimal"),
        (["$1,234", "$ 5", "-$7.50"], "3 of 3 look like '$1,234', amounts of money: "),
        (["1 €", "2,50 €", "3"], "2 of 3 look like '1 €', amounts of money: "),
        (["EUR 5", "5.20 USD"], "2 of 2 look like 'EUR 5', amounts of money: "),
        (["12%", "+7.5 %", "3"], "2 of 3 look like '12%', percentages: "),
        (["31/12/2026", "1/2/26"], "2 of 2 look like '31/12/2026', dates: change them in the files, as YYYY-MM-DD"),
        (["31.12.2026", "1.2.2026"], "2 of 2 look like '31.12.2026', dates: "),
        (
            ["31.12.2026 10:30", "1.2.2026T9:05:10"],
            "2 of 2 look like '31.12.2026 10:30', dates with a time of day: change them in the files, as YYYY-MM-DD "
            "HH:MM:SS, such as 2026-01-31 23:59:00, else",
        ),
        (["31.12.2026", "1.2.2026 10:30"], "1 of 2 look like '1.2.2026 10:30', dates with a time of day: "),
        (["31-12-2026"], "1 of 1 look like '31-12-2026', dates: "),
        (["1-Mar-2024", "31-Dec-2024"], "2 of 2 look like '1-Mar-2024', dates: "),
        (["1 March 2024", "May 31, 2024"], "2 of 2 look like '1 March 2024', dates: "),
        (["1-Mar-2024 10:30"], "1 of 1 look like '1-Mar-2024 10:30', dates with a time of day: "),
        (["2026/12/31"], "1 of 1 look like '2026/12/31', dates: "),
        (
            ["1 234", "5", "-1 234 567.8"],
            "2 of 3 look like '1 234', numbers with spaces or apostrophes between thousands",
        ),
        (
            ["1\u202f234,5", "1'234"],
            "2 of 2 look like '1\\u202f234,5', numbers with spaces or apostrophes between thousa",
        ),
        (
            ["\u22125", "3.5", "-2"],
            "1 of 3 look like '\u22125', numbers with the minus sign U+2212: change them in the",
        ),
        (["\u22121,5", "3,5"], "2 of 2 look like '\u22121,5', numbers with a decimal comma: "),
        (["\u22125 %", "3\u00a0%"], "2 of 2 look like '\u22125 %', percentages: "),
        (["\u2212$5", "$\u22125"], "2 of 2 look like '\u2212$5', amounts of money: "),
        ([*["1,5"] * 18, "x"], "18 of 19 look like '1,5', numbers with a decimal comma: "),
    ],
)
def test_a_spelling_of_numbers_or_dates_is_known(words: list[str], found: str) -> None:
    assert near_numeric(pa.array(words)).startswith(found)


@pytest.mark.parametrize(
    "words",
    [
        ["a", "b"],
        ["1,5", "x"],
        ["a,5", "b,7"],
        ["10.1.2.3", "10.1.2.4"],
        ["1.2.33", "1.10.2"],
        ["ABC", "USD"],
        ["SKU123", "SKU 124"],
        ["5 apples", "7 apples"],
        ["12345678901234567890", "5"],
        ["10:30", "11:45"],
        ["3/4", "1/2"],
        ["1 2345", "12 34"],
        ["\u2212", "\u2013"],
    ],
)
def test_words_are_words(words: list[str]) -> None:
    assert near_numeric(pa.array(words)) == ""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def drafted(column: list[str]) -> str:
    rows = [f"{row % 7 + 0.5};{cell};{'no' if row % 3 else 'yes'}" for row, cell in enumerate(column)]
    Path("t.csv").write_text("\n".join(["x;price;y", *rows]) + "\n")
    init("t.csv", "y", output=None, model=None, format_name=None, overwrites=False)
    return Path("t.yaml").read_text()


@pytest.mark.parametrize(
    ("column", "guess"),
    [
        ([f"{row % 4},5" for row in range(30)], "# price: 4 distinct values"),
        ([f"{row},5" for row in range(30)], "# price: all distinct: identifies a record"),
        (
            [f"{row % 20},5" for row in range(30)],
            "# price: 20 distinct values, most of them in one record only: left out",
        ),
    ],
)
def test_the_comment_of_a_column_says_what_its_words_look_like(column: list[str], guess: str) -> None:
    [comment] = [line.strip() for line in drafted(column).splitlines() if "# price:" in line]
    assert comment == (
        f"{guess}; 30 of 30 look like '0,5', numbers with a decimal comma: change them in the files, "
        "with a decimal point, such as 1.5, else they stay text"
    )


def test_the_comment_of_a_label_and_its_fault_say_so_too() -> None:
    Path("t.csv").write_text("x;y\n" + "".join(f'{row % 7 + 0.5};"{row % 2}%"\n' for row in range(40)))
    options = {"output": None, "model": None, "format_name": None, "overwrites": True}
    init("t.csv", "y", **options)  # type: ignore[arg-type]
    assert "# y: 2 classes: 0% (50%), 1% (50%); 40 of 40 look like '0%', percentages: " in Path("t.yaml").read_text()
    Path("t.csv").write_text("x;y\n" + "".join(f"{row % 7 + 0.5};{row},5\n" for row in range(40)))
    with pytest.raises(UsageError, match="expected classes; 40 of 40 look like '0,5', numbers with a decimal comma: "):
        init("t.csv", "y", **options)  # type: ignore[arg-type]


CONF = """
experiment: t
model: {name: LinearClassifier}
input:
  train: {format: csv, path: t.csv, delimiter: ";", label: y, batch_size: 5, columns: {price: {type: string}}}
  eval: {format: csv, path: t.csv, delimiter: ";", label: y}
train: {max_steps: 1}
"""


@pytest.mark.parametrize("columns", ["{price: {type: string}}", "{price: {hash_buckets: 8}}", "{}"])
def test_plan_and_training_warn_of_words_that_look_like_numbers(columns: str, caplog: pytest.LogCaptureFixture) -> None:
    rows = [f"{row};\u2212{row % 4},5;{row % 2}%" for row in range(10)]
    Path("t.csv").write_text("\n".join(["x;price;y", *rows]) + "\n")
    Path("t.yaml").write_text(CONF)
    settings = read_settings(["t.yaml", f"input.train.columns={columns}"])
    lines = plan(["t.yaml", f"input.train.columns={columns}"]).lines or []
    price, label = (
        "10 of 10 look like '\u22120,5', numbers with a decimal comma: ",
        "10 of 10 look like '0%', percentages: ",
    )
    assert [line.split()[0] for line in lines if price in line or label in line] == ["price:", "y:"]
    training = build_training(parse_parameters(settings.values, settings.origins))
    training.estimator.train(training.train_spec.input_fn, max_steps=1)
    told = [message for message in caplog.messages if "look like" in message]
    assert told[0].startswith(f"the train input: column 'price': {price}change them in the files")
    assert told[1].startswith(f"the train input: column 'y': {label}change them in the files")
    assert len(told) == 2


def test_words_that_are_named_are_words(caplog: pytest.LogCaptureFixture) -> None:
    Path("t.csv").write_text("x;price;y\n" + "".join(f"{row};{row % 2},5;{row % 2}\n" for row in range(10)))
    Path("t.yaml").write_text(CONF)
    answer = plan(["t.yaml", "input.train.columns={price: {vocabulary: ['0,5', '1,5']}}"])
    assert answer.facts["faults"] == []
    assert not [line for line in answer.lines or [] if "look like" in line]


@pytest.mark.parametrize("sizes", [[30_000], [1, 29_999], [7_000] * 5, [0, 10_000, 0]])
def test_the_first_words_are_looked_at_however_they_are_cut(sizes: list[int]) -> None:
    words = pa.array([f"{n},5" if n % 2 else None for n in range(19_000)] + ["x"] * 20_000)
    counted, start = NearNumericStrings(), 0
    for size in [*sizes, len(words)]:
        counted.update(words.slice(start, size))
        start += size
    assert counted.sentence.startswith("9,500 of 10,000 look like '1,5', numbers with a decimal comma: ")
