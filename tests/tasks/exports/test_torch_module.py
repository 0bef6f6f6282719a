"""An export of a torch module that takes texts of another length than those of its training."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import psflow  # noqa: E402
from psflow.torch import TorchEstimator  # noqa: E402

MODULE = """
import numpy as np
import torch
from psflow import export, placeholder


class Bag(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.last = torch.nn.Embedding(9, 4, padding_idx=0), torch.nn.Linear(4, 1)

    def forward(self, ids):
        return self.last(self.words(ids).sum(1))


def padded():
    ids = placeholder(np.int64, [None, None], "ids")
    rows = np.zeros((len(ids), 5), np.int64)
    rows[:, : ids.shape[1]] = ids[:, :5]
    return export.ServingInputReceiver({"ids": rows}, {"ids": ids})
"""


def texts() -> Iterator[Any]:
    ids = np.arange(40).reshape(8, 5) % 9
    yield {"ids": ids}, ids.mean(1).astype(np.float32)


def test_a_serving_function_pads_texts_of_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models_of_texts.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    models = importlib.import_module("models_of_texts")
    estimator = TorchEstimator(models.Bag, psflow.RegressionHead(), model_dir=str(tmp_path / "job"))
    estimator.train(texts)
    bag = estimator.to_torch()
    served = mlflow.pyfunc.load_model(estimator.export_saved_model(tmp_path / "exports", models.padded))
    for length in (3, 5):
        ids = np.full((2, length), 7)
        expected = bag(torch.from_numpy(ids)).detach().numpy()
        assert np.allclose(served.predict({"ids": ids})["predictions"], expected, rtol=1e-5)
