from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from psflow.tasks.prediction.inputs import prediction_input
from psflow.tasks.prediction.options import PredictionOptions
from psflow.tasks.prediction.plan import PredictionPlan, plan_prediction
from psflow.tasks.prediction.report import report
from tests.tasks.prediction.scoring import facts, info, trained


def planned(tmp_path: Path, **options: Any) -> PredictionPlan:
    model = replace(info(trained(tmp_path)), page="http://mlflow/m/3")
    (tmp_path / "in.csv").write_text("id,a,b,more\nx,1,2,3\n")
    return plan_prediction(
        model, prediction_input(str(tmp_path / "in.csv")), PredictionOptions(), str(tmp_path / "out")
    )


def test_counts_rate_lineage_and_the_first_rows(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    plan.begin()
    rows = {"id": ["a|b\n"] + ["x"] * 99, "sum": [1 / 3] * 100, "both": [[0.5, 1e9]] * 100}
    pq.write_table(pa.table(rows), tmp_path / "out/part-00000.parquet")
    written = facts(plan.parts[0], 2**20, name="part-00000.parquet", rows=100, rejects=3)
    lines = report(plan, [written], 2000, 62.0).splitlines()
    assert "| rows | 100 |" in lines
    assert "| rejects | 3 (see `_rejects`) |" in lines
    assert "| this run | 2,000 rows in 1 min 2 s, 32 rows/s |" in lines
    assert "| model | [models:/m@best](http://mlflow/m/3), version 3, step 40, uuid `u1` |" in lines
    assert "| id | sum | both |" in lines
    assert r"| a\|b | 0.333333 | [0.5, 1e+09] |" in lines
    assert len(lines) == 2 + 7 + 3 + 2 + 10


def test_the_first_rows_of_csv(tmp_path: Path) -> None:
    plan = planned(tmp_path, output_format="csv")
    plan.begin()
    (tmp_path / "out/part-00000.csv").write_text('id,sum\n"a\nb",1.5\n' + "x,2\n" * 20)
    lines = report(plan, [facts(plan.parts[0], rows=21)], 21, 1.0).splitlines()
    assert lines[-11:-9] == ["| --- | --- |", "| a b | 1.5 |"]


def test_a_report_of_nothing_but_rejects_has_no_rows(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    plan.begin()
    assert "first rows" not in report(plan, [facts(plan.parts[0], rows=0, rejects=1)], 1, 0.0)


def test_what_is_going_to_be_done_is_plain_data(tmp_path: Path) -> None:
    assert planned(tmp_path).facts() == {
        "output": str(tmp_path / "out"),
        "model_uri": "models:/m/3",
        "files": 1,
        "rows": 1,
        "bytes": 20,
        "parts": 1,
        "finished_parts": 0,
        "columns": {"id": "string", "sum": "float", "both": "float[2]"},
        "unused": ["more"],
        "invalid": "error",
    }
    assert not (tmp_path / "out").exists()
