"""The units of systemd that the page on clusters shows are ones that systemd accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "cluster.md"
UNIT = re.compile(r"`/etc/systemd/system/([\w.-]+\.service)`.*?```ini\n(.*?)```", re.DOTALL)
BIN = "/home/ada/venv/bin"


@pytest.mark.process
def test_systemd_accepts_the_units_of_the_page(tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze: not installed")
    units = dict(UNIT.findall(PAGE.read_text()))
    assert sorted(units) == ["dask-scheduler.service", "dask-worker.service"]
    for name, text in units.items():
        assert f"ExecStart={BIN}/dask " in text
        (tmp_path / name).write_text(text.replace(BIN, str(Path(sys.executable).parent)))
    paths = [str(tmp_path / name) for name in units]
    verified = subprocess.run([analyze, "verify", "--man=no", *paths], capture_output=True, text=True, check=False)
    complaints = [line for line in verified.stderr.splitlines() if any(name in line for name in units)]
    assert (verified.returncode, complaints) == (0, [])
