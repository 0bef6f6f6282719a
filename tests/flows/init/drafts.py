"""Tables, the configurations that ``psflow init`` writes for them, and the plans of these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from psflow.flows.init.answer import init
from psflow.flows.parameters.configuration import read_conf
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning.training_plan import plan_attempt
from psflow.ps_runtime.estimator.planning import JobPlan


def draft(path: str, label: str, **options: Any) -> dict[str, Any]:
    options = {"output": None, "model": None, "format_name": None, "overwrites": False} | options
    return dict(init(path, label, **options).facts)


def planned(conf: str) -> tuple[TrainParameters, JobPlan]:
    """Plan a training, as psflow plan does."""
    settings = read_conf([conf]).settings
    parameters = parse_parameters(settings.values, settings.origins)
    return parameters, plan_attempt(parameters, None).plan


def csv(text: str, name: str = "t.csv") -> str:
    Path(name).write_text(text)
    return name


def people(num_rows: int = 30, **columns: str) -> str:
    """Return records with a number, a label of two classes, and columns of expressions of the row."""
    row_of = {"x": "row * 7 % 10 + 0.5", "y": "'no' if row % 3 else 'yes'", **columns}
    rows = [[str(eval(text, {"row": row})) for text in row_of.values()] for row in range(num_rows)]
    return "\n".join(",".join(cells) for cells in [list(row_of), *rows]) + "\n"
