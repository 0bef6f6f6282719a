"""As in many containers: a user whom no password database has, without a home directory that can be written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.flows.conftest import DIGITS_CONF, PSFLOW, TIMEOUT_SECS

pytestmark = [
    pytest.mark.piece(number=3),
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="only root can become another user"),
]

UID = 54321
BECOME = (
    *("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"),
    # the interpreter may be below /root: such a user may read everything, and write what is his own
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--"),
)
HOW = "set PREFECT_HOME to a writable directory"
CONF = DIGITS_CONF.replace("max_steps: 60", "max_steps: 20")


@dataclass(frozen=True)
class Container:
    """A working directory, and the variables with which commands run in it."""

    path: Path
    variables: Mapping[str, str]

    @property
    def temporary_home(self) -> Path:
        return self.path / "tmp" / f"psflow-home-{UID}"

    @property
    def said(self) -> str:
        return f"Prefect stores the runs of this command in {self.temporary_home / '.prefect'}; set PREFECT_HOME"

    def run(self, *arguments: str, exit_code: int = 0) -> tuple[str, str]:
        """Run ``psflow``; return what it says on stdout and on stderr."""
        done = subprocess.run(
            [*BECOME, str(PSFLOW), *arguments],
            cwd=self.path,
            env={"PATH": os.environ["PATH"], "TMPDIR": str(self.path / "tmp"), **self.variables},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECS,
        )
        assert done.returncode == exit_code, done.stderr
        assert "Traceback" not in done.stderr
        assert "Failed to create the Prefect home directory" not in done.stderr
        return done.stdout, done.stderr


@pytest.fixture(params=["none", "root", "read-only"])
def container(request: pytest.FixtureRequest) -> Iterator[Container]:
    path = Path(tempfile.mkdtemp(prefix="psflow-no-home-", dir="/var/tmp"))
    (path / "home" / ".prefect").mkdir(parents=True)  # of root
    (path / "tmp").mkdir()
    for directory in (path, path / "tmp"):
        os.chown(directory, UID, UID)
    (path / "c.yaml").write_text(CONF)
    homes = {"none": {}, "root": {"HOME": "/"}, "read-only": {"HOME": str(path / "home")}}
    yield Container(path, homes[request.param])
    shutil.rmtree(path)


def test_a_training_keeps_its_prefect_runs_in_a_directory_of_the_user_alone(container: Container) -> None:
    out, err = container.run("train", "c.yaml", "--json")
    assert json.loads(out.splitlines()[-1])["final_step"] == 20
    assert err.count(container.said) == 1
    assert container.temporary_home.stat().st_mode & 0o777 == 0o700
    assert (container.temporary_home / ".prefect" / "prefect.db").is_file()


def test_a_command_that_starts_no_server_works_and_up_asks_for_a_home(container: Container) -> None:
    assert "no job is running" in container.run("status")[0]
    assert container.run("down")[0].split() == ["stopped", "none"]
    _, err = container.run("up", exit_code=2)
    assert err.splitlines()[-1].endswith(HOW)
    _, err = container.run("serve", exit_code=2)
    assert "no permanent Prefect server is known" in err


@pytest.mark.parametrize("container", ["none"], indirect=True)
def test_other_commands_work_without_a_home(container: Container) -> None:
    (container.path / "t.csv").write_text("x,y\n" + "".join(f"{i / 50},{i % 2}\n" for i in range(50)))
    container.run("init", "t.csv", "--label", "y", "--output", "t.yaml")
    container.run("config", "c.yaml")
    assert "ready; nothing was started or written" in container.run("plan", "c.yaml")[0]
    container.run("doctor")
    for flow in (
        ("pipeline", "c.yaml", "pipeline.predict.input=digits:test"),
        ("predict", "--model", "models:/psflow-small@best", "--input", "digits:test", "--output", "p"),
        ("evaluate", "--model-dir", "runs/small", "--checkpoints", "latest"),
        ("export", "--model-dir", "runs/small", "--checkpoint", "best"),
    ):
        assert container.run(*flow)[1].count(container.said) == 1
    container.run("diff", "a", "b", exit_code=2)


def test_a_chosen_home_that_cannot_be_written_is_not_replaced(container: Container) -> None:
    chosen = Container(container.path, {**container.variables, "PREFECT_HOME": str(container.path / "home")})
    for command in ("train", "pipeline"):
        _, err = chosen.run(command, "c.yaml", exit_code=2)
        assert err.splitlines()[-1] == f"psflow: Prefect's home {container.path / 'home'} is not writable; {HOW}"
    _, err = chosen.run("up", exit_code=2)
    assert err.splitlines()[-1].endswith(HOW)
