"""Scripts that train when they run: an export of their model_fn loads without training again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.errors import ModelFnError
from psflow.tasks.exports.script import reduced
from tests.limits import HANG_SECS

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """\
'''A program.'''

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import psflow as tf
from psflow import Estimator, EstimatorSpec, GradientDescent, get_variable

FACTORS = {"x": 1.0}
FACTORS.update(x=2.0)
LAYERS = {}


def layer(function):
    LAYERS[function.__name__] = function
    return function


@layer
def scaled(x):
    return FACTORS["x"] * x


def model_fn(features, labels, mode):
    loss = scaled(get_variable("w", initializer=lambda shape, dtype, rng: np.float32(3.0)) * features)
    if mode == tf.ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"y": LAYERS["scaled"](features)})
    return EstimatorSpec(mode, loss=(loss**2).mean(), train_op=GradientDescent(0.1).minimize((loss**2).mean()))


def input_fn():
    yield np.ones(2, np.float32), None


folder = Path(sys.argv[1])
(folder / "ran").touch(exist_ok=False)
tf.autolog(disable=True)
estimator = Estimator(model_fn, folder / "model")
loss = estimator.train(input_fn, max_steps=1).evaluate(input_fn)["loss"]; print(loss)
(
    folder / "path"
).write_text(estimator.export_saved_model(folder / "export"))
"""

LOADING = """
import sys
import mlflow.pyfunc, numpy
print(mlflow.pyfunc.load_model(sys.argv[1]).predict(numpy.ones(2, numpy.float32))["y"].tolist())
"""


@pytest.mark.process
def test_a_script_without_a_guard_exports_a_model_that_does_not_train_when_it_is_loaded(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    run(str(script), str(tmp_path))
    path = (tmp_path / "path").read_text()
    assert run("-c", LOADING, path) == "[2.0, 2.0]\n"
    exported = Path(path, "code", "program.py").read_text().split("\n")
    lines = SCRIPT.split("\n")
    start = lines.index("folder = Path(sys.argv[1])")
    assert exported[:20] == lines[:20]
    assert [line for line in exported[start:] if line] == ["pass", "pass", "pass", "pass", "pass; pass", "pass"]


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, timeout=HANG_SECS, check=True)
    return done.stdout.decode()


def test_of_a_script_what_its_model_uses_is_kept(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_bytes(
        b"# coding: latin-1\n"
        b"import argparse, logging\n"
        b"try:\n    import fast as np\nexcept ImportError:\n    import numpy as np\n"
        b"logging.getLogger().setLevel(10)\n"
        b"SIZE: int = 3; NAME = '\xe9'\n"
        b"for i in range(SIZE):\n    NAME += 'x'\n"
        b"args = argparse.ArgumentParser().parse_args()\n"
        b"class Base: ...\n"
        b"class Model(Base):\n    def call(self, loss):\n        return np.sum(loss) * SIZE\n"
        b"def model_fn(features):\n    loss = features\n    return Model().call(loss), NAME\n"
        b"def main():\n    print(args)\n"
        b"loss = main()\n"
        b"if __name__ == '__main__':\n    SIZE = 4\n"
        b"model_fn.checked = True\n"
    )
    kept = reduced(script, {"model_fn"})
    assert kept.count(b"\n") == script.read_bytes().count(b"\n")
    assert [line for line in kept.split(b"\n") if line == b"pass"] == [b"pass"] * 5
    assert b"NAME = '\xe9'\n" in kept
    namespace: dict[str, object] = {}
    exec(compile(kept, str(script), "exec"), namespace)
    assert namespace["NAME"] == "\xe9xxx"
    assert namespace["model_fn"].checked  # type: ignore[attr-defined]
    assert namespace["model_fn"](np.ones(2)) == (6.0, "\xe9xxx")  # type: ignore[operator]


def test_a_model_that_uses_what_a_training_sets_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import psflow\nmean = psflow.Estimator(None).evaluate(None)['mean']\n\ndef model_fn(x):\n    return mean * x\n"
    )
    with pytest.raises(ModelFnError, match=r"program\.py, line 2: loading the export would call evaluate again"):
        reduced(script, {"model_fn"})
