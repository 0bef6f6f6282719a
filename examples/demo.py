"""Train on handwritten digits, predict the test part with the best model, and say where to look.

Run as ``make demo``, or as ``python examples/demo.py`` where psflow is installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ps_runtime.data.dataset import MATRIX
from ps_runtime.data.digits import read_digits

ROOT = Path(__file__).parents[1]
PSFLOW = Path(sys.executable).with_name("psflow")


def main() -> None:
    """Train, predict, and sum up."""
    trained = psflow("train", "conf/digits.yaml")
    best, model_dir = trained["best"], Path(trained["model_dir"])
    pixels = ROOT / model_dir / "test-pixels.csv"
    num_rows = write_test_pixels(pixels)
    output = model_dir / "predictions"
    psflow("predict", "--model", best["model_uri"], "--input", str(pixels), "--output", str(output))
    print(
        f"\ntrained to step {trained['final_step']}; the best checkpoint is step {best['step']}, "
        f"with a test accuracy of {best['metrics']['accuracy']:.4f}\n"
        f"predictions of {num_rows} images: {output}\n"
        f"model: {best['model_uri']}, in {best['export_path']}\n"
        "to look at the run: .venv/bin/mlflow ui"
    )


def psflow(*arguments: str) -> dict[str, Any]:
    """Run a command, its progress on the terminal, and return its answer."""
    done = subprocess.run([PSFLOW, *arguments, "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def write_test_pixels(path: Path) -> int:
    """Write the test images as CSV, without their labels; return how many there are."""
    digits = read_digits("test")
    pixels = digits.features[MATRIX]
    np.savetxt(path, pixels, fmt="%.9g", delimiter=",", header=",".join(digits.columns), comments="")
    return len(pixels)


if __name__ == "__main__":
    main()
