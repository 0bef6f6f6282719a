"""A training or an export whose disk becomes full: it says so, leaves what is whole, and goes on once there is room."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.flows.conftest import PSFLOW, ROOT
from tests.full_disk import run_on_small_disk

pytestmark = [pytest.mark.piece(number=5), pytest.mark.ci]

PROGRAM = """
import json, os, shutil, subprocess, sys
from pathlib import Path

disk, psflow, conf = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
os.environ["PREFECT_HOME"] = str(disk.parent / "prefect")

def train(exit_code):
    command = [psflow, "train", conf, f"model_dir={disk}/digits", "train.save_checkpoints_steps=300", "--json"]
    done = subprocess.run(command, cwd=disk.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == exit_code, done.stderr
    return json.loads(done.stdout.splitlines()[-1])

error = train(1)["error"]
left = sorted(path.relative_to(disk / "digits").as_posix() for path in (disk / "digits" / "checkpoints").rglob("*"))
subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
print(json.dumps([error, left, train(0)["final_step"]]))
"""


@pytest.mark.timeout(600)
def test_a_training_says_that_its_disk_is_full_and_goes_on_later(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    said, left, final_step = json.loads(
        run_on_small_disk(
            PROGRAM, disk, "200k", str(PSFLOW), str(ROOT / "conf" / "digits.yaml"), timeout_secs=500
        ).splitlines()[-1]
    )
    assert said["type"] == "RoleFailedError"
    assert said["message"].startswith("chief-0 failed: checkpoint of step ")
    assert re.search(
        r" (\S+) could not be written: No space left on device \(0\.0 MB are free\); "
        r"free some space, or correct the permissions of \1, then run the same command again$",
        said["message"],
    )
    names = ("", "/manifest.json", "/shard_00000_of_00001.safetensors")
    steps = sorted({path.split("/")[1] for path in left})
    assert steps[0] == "step_00000000"
    assert left == [f"checkpoints/{step}{name}" for step in steps for name in names]
    assert final_step == 1500


EXPORTED = """
import json, shutil, sys
from pathlib import Path
import numpy as np
from psflow.ps_runtime.data.enforcement import schema_of
from psflow.ps_runtime.errors import StorageError
from psflow.ps_runtime.model.export.bundle import ExportBundle
from psflow.ps_runtime.model.export.exporters import LatestExporter
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.tasks.exports.writer import MlflowModelWriter
from tests.flows.user_models import line

disk = Path(sys.argv[1])
(disk / "m").mkdir()
x = {"x": np.ones(3, np.float32)}
bundle = ExportBundle(
    name="model", global_step=7, values=ModelValues({"w": np.ones(100_000), "b": np.ones(())}), model_fn=line,
    params={}, features=x, predictions={"y": x["x"]}, metrics={"loss": 0.1}, saved_at=0.5,
    schema=schema_of(x, None),
)

def export():
    return LatestExporter("latest").export(str(disk / "m"), bundle, MlflowModelWriter(), is_the_final_export=False)

(disk / "ballast").write_bytes(bytes(shutil.disk_usage(disk).free - 30_000))
try:
    export()
except StorageError as error:
    said = str(error)
left = sorted(path.relative_to(disk).as_posix() for path in disk.rglob("*") if path.is_file())
(disk / "ballast").unlink()
print(json.dumps([said, left, export().version]))
"""


def test_a_disk_that_is_full_at_an_export(tmp_path: Path) -> None:
    said, left, version = json.loads(run_on_small_disk(EXPORTED, tmp_path, "3m").splitlines()[-1])
    assert said.startswith(f"{tmp_path}/m/export/latest/1 could not be written: ")
    assert "No space left on device" in said
    assert said.endswith(
        f"MB are free); free some space, or correct the permissions of {tmp_path}/m/export/latest/1, "
        "then run the same command again"
    )
    assert left == ["ballast", "m/export/latest/.lock"]
    assert str(version) == "1"
