"""Numbers and dates in spellings that are read as words: a draft says so, and what to do."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from psflow.flows.drafting.init import init
from psflow.flows.drafting.lookalikes import lookalike
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
        (["2026/12/31"], "1 of 1 look like '2026/12/31', dates: "),
        ([*["1,5"] * 18, "x"], "18 of 19 look like '1,5', numbers with a decimal comma: "),
    ],
)
def test_a_spelling_of_numbers_or_dates_is_known(words: list[str], found: str) -> None:
    assert lookalike(pa.array(words)).startswith(found)


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
    ],
)
def test_words_are_words(words: list[str]) -> None:
    assert lookalike(pa.array(words)) == ""


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
        ([f"{row % 4},5" for row in range(30)], "# price: 4 words"),
        ([f"{row},5" for row in range(30)], "# price: all different: names a record"),
        ([f"{row % 20},5" for row in range(30)], "# price: 20 words, most of them of one record: left out"),
    ],
)
def test_the_comment_of_a_column_says_what_its_words_look_like(column: list[str], guess: str) -> None:
    [comment] = [line.strip() for line in drafted(column).splitlines() if "# price:" in line]
    assert comment == (
        f"{guess}; 30 of 30 look like '0,5', numbers with a decimal comma: change them in the files, "
        "with a decimal point, such as 1.5, else they are words"
    )


def test_the_comment_of_a_label_and_its_fault_say_so_too() -> None:
    Path("t.csv").write_text("x;y\n" + "".join(f'{row % 7 + 0.5};"{row % 2}%"\n' for row in range(40)))
    options = {"output": None, "model": None, "format_name": None, "overwrites": True}
    init("t.csv", "y", **options)  # type: ignore[arg-type]
    assert "# y: 2 classes: 0% (50%), 1% (50%); 40 of 40 look like '0%', percentages: " in Path("t.yaml").read_text()
    Path("t.csv").write_text("x;y\n" + "".join(f"{row % 7 + 0.5};{row},5\n" for row in range(40)))
    with pytest.raises(UsageError, match="expected classes; 40 of 40 look like '0,5', numbers with a decimal comma: "):
        init("t.csv", "y", **options)  # type: ignore[arg-type]
