"""Train on handwritten digits, predict the test part with the best model, and print the locations of the results.

Run as ``make demo``, or as ``python examples/demo.py`` where psflow is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from psflow.ps_runtime.data.digits import read_digits
from psflow.ps_runtime.specs.schema import MATRIX

ROOT = Path(__file__).parents[1]
DIRECTORY = Path("runs/demo")
PSFLOW = Path(sys.executable).with_name("psflow")


def main() -> None:
    """Train, predict, and print a summary."""
    os.chdir(ROOT)
    shutil.rmtree(DIRECTORY, ignore_errors=True)  # start anew each time
    DIRECTORY.mkdir(parents=True)
    trained = psflow("train", "conf/digits.yaml", f"model_dir={DIRECTORY / 'model'}")
    best = trained["best"]
    images, output = DIRECTORY / "test-images.csv", DIRECTORY / "predictions"
    digits = write_test_images(images)
    predicted = psflow("predict", "--model", best["model_uri"], "--input", str(images), "--output", str(output))
    accuracy = float(np.mean(read_class_ids(output) == digits))
    expected = best["metrics"]["accuracy"]
    print(
        f"\ntrained to step {trained['final_step']}; the best checkpoint is of step {best['step']}\n"
        f"test accuracy: {expected:.4f} by the evaluator, {accuracy:.4f} over the predictions\n"
        f"predictions of {predicted['rows']} images: {output}\n"
        f"model: {best['model_uri']}, in {best['export_path']}\n"
        f"MLflow run: {trained['run_id']}; to browse it: .venv/bin/mlflow ui"
    )
    if predicted["rows"] != len(digits) or not np.isclose(accuracy, expected):
        sys.exit("the accuracy of the predictions differs from that of the evaluator")


def psflow(*arguments: str) -> dict[str, Any]:
    """Run a command with its progress on the terminal; return its answer."""
    done = subprocess.run([PSFLOW, *arguments, "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def write_test_images(path: Path) -> Any:
    """Write the test images as CSV, with raw pixels and without labels; return the labels."""
    digits = read_digits("test", scale=(0, 16))
    np.savetxt(path, digits.features[MATRIX], "%d", ",", header=",".join(digits.columns), comments="")
    return digits.labels


def read_class_ids(directory: Path) -> Any:
    """Return the predicted class of every image, in order."""
    return pq.read_table(directory, columns=["class_ids"])["class_ids"].to_numpy()


if __name__ == "__main__":
    main()
