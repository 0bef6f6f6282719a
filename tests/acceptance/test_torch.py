"""A torch module from configuration alone: trained, evaluated, exported, registered and predicted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.flows.conftest import Project

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.piece(number=5), pytest.mark.ci, pytest.mark.cluster, pytest.mark.timeout(600)]

MODULE = """
import torch


class Net(torch.nn.Module):
    def __init__(self, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, hidden), torch.nn.BatchNorm1d(hidden), torch.nn.ReLU(), torch.nn.Dropout(dropout),
            torch.nn.Linear(hidden, 10),
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.layers(pixels)
"""
CONF = """
experiment: net
seed: 3
model:
  name: my_models:Net
  params: {hidden: 40, dropout: 0.1}
  head: {name: MultiClassHead, n_classes: 10}
  optimizer: {name: Adam, learning_rate: 0.003}
input:
  train: {format: digits, split: train, batch_size: 32, shuffle: true}
  eval: {format: digits, split: test, batch_size: 128}
train: {max_steps: 600, save_checkpoints_steps: 300}
best: {metric: accuracy, mode: max}
cluster: {workers: 2}
"""
PREDICT = 'pipeline: {predict: {input: "digits:test"}}\n'
SERVED = """
import json, sys
import mlflow.pyfunc, numpy as np, torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from my_models import Net

served = mlflow.pyfunc.load_model(sys.argv[1])
rows = load_digits(as_frame=True).data[-360:]
found = served.predict(rows.astype(np.int64))
plain = Net(40)
plain.load_state_dict(load_file(f"{sys.argv[1]}/artifacts/model/state_dict.safetensors"))
logits = plain.eval()(torch.from_numpy(rows.to_numpy(np.float32) / 16)).detach().numpy()
assert not any(name == "psflow" or name.startswith("psflow.") for name in sys.modules)
print(json.dumps({"same": bool(np.allclose(found["logits"], logits, atol=1e-5))}))
"""


def test_a_module_needs_no_program(project: Project) -> None:
    project.write("my_models.py", MODULE)
    answer = project.run("pipeline", project.write("net.yaml", CONF + PREDICT))
    assert answer["train"]["final_step"] == 600
    assert answer["train"]["best"]["metrics"]["accuracy"] > 0.93
    assert answer["predict"]["rows"] == 360
    export = max(path for path in (project.path / "runs" / "net" / "export" / "best").iterdir() if path.is_dir())
    assert f"torch=={torch.__version__.partition('+')[0]}" in (export / "requirements.txt").read_text().splitlines()
    loading = [sys.executable, "-c", SERVED, str(export)]
    out = subprocess.run(loading, cwd=project.path, capture_output=True, text=True, check=True, timeout=120).stdout
    assert json.loads(out) == {"same": True}
