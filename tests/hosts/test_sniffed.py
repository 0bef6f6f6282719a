"""Who records all that passes the network of the hosts finds no weights, and behind TLS no key of the job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from distributed.security import Security

from tests.acceptance.conftest import wait_for
from tests.hosts.conftest import DaskOnHosts
from tests.hosts.rig import Rig
from tests.hosts.training import PLANTED
from tests.limits import HANG_SECS

SNIFFER = str(Path(__file__).with_name("sniffer.py"))
NUM_WEIGHTS = 4
"""So many planted ones in a row are no chance, and a frame that is cut somewhere still has them."""
KEYS = (b"PRIVATE KEY-----", b"BEGIN CERTIFICATE")

pytestmark = [pytest.mark.piece(number=11), pytest.mark.measured]


@pytest.fixture
def recording(rig: Rig, tmp_path: Path) -> Iterator[Path]:
    """A file with all frames of the switch so far."""
    file = tmp_path / "frames"
    with subprocess.Popen(rig.at_switch(sys.executable, SNIFFER, str(file))) as sniffer:
        try:
            wait_for(file.exists, HANG_SECS, "the sniffer")
            yield file
        finally:
            sniffer.kill()


def _certificates(directory: Path) -> dict[str, str]:
    """Return the variables by which each process of a Dask cluster finds its certificate."""
    security = Security.temporary()
    (directory / "dask.crt").write_text(security.tls_ca_file)
    (directory / "dask.key").write_text(security.tls_client_key)
    crt, key = str(directory / "dask.crt"), str(directory / "dask.key")
    named = {"DASK_DISTRIBUTED__COMM__TLS__CA_FILE": crt, "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"}
    for kind in ("CLIENT", "SCHEDULER", "WORKER"):
        named |= {f"DASK_DISTRIBUTED__COMM__TLS__{kind}__{name}": path for name, path in (("CERT", crt), ("KEY", key))}
    return named


@pytest.mark.parametrize("protocol", ["tcp", "tls"])
def test_frames_have_no_weights_and_behind_tls_no_key(rig: Rig, recording: Path, tmp_path: Path, protocol: str) -> None:
    on_hosts = DaskOnHosts(rig, tmp_path, protocol, _certificates(tmp_path) if protocol == "tls" else {})
    on_hosts.start_scheduler()
    for host in rig.hosts:
        on_hosts.start_workers(host)
    on_hosts.finish(on_hosts.train(num_ps=2, num_workers=2))
    frames = recording.read_bytes()
    assert len(frames) > 1 << 20
    assert np.full(NUM_WEIGHTS, PLANTED, np.float32).tobytes() not in frames
    found = [key for key in KEYS if key in frames]
    assert found == ([] if protocol == "tls" else list(KEYS))  # without TLS, whoever reads finds them
