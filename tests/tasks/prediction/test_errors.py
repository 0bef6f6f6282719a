from __future__ import annotations

import pickle
from typing import Any

import pytest

from psflow.ps_runtime.errors import ModelFnError
from psflow.tasks.prediction import partition


class Raising:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def predict(self, context: Any, rows: Any) -> Any:
        raise self._error


def test_an_error_of_a_class_that_only_the_export_knows_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = type("OwnError", (Exception,), {"__module__": "_psflow_export_0.my_model"})
    monkeypatch.setattr(partition, "_loaded", lambda model: Raising(foreign("no such price")))
    model: Any = None
    with pytest.raises(ModelFnError, match="the model raised OwnError: no such price") as raised:
        partition._predicted(model, None)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_other_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "_loaded", lambda model: Raising(ValueError("a shape")))
    model: Any = None
    with pytest.raises(ValueError, match="a shape"):
        partition._predicted(model, None)
