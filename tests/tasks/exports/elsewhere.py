"""A process that has imported MLflow and nothing of psflow: importing MLflow anew takes each program seconds."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SERVER = """
import json, os, sys, traceback
import mlflow.pyfunc, numpy, pandas

assert not {"psflow", "user_model", "user_parts"} & sys.modules.keys()
for line in sys.stdin:
    folder, program = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    code = 1
    try:
        os.chdir(folder)
        for fd, name in enumerate(("stdout", "stderr"), 1):
            os.dup2(os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), fd)
        exec(program, {"__name__": "__main__"})
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
"""


@dataclass(frozen=True)
class Elsewhere:
    """Runs each program in a fork of its own, so that no program sees what another one imports."""

    process: subprocess.Popen[str]

    def run(self, program: str, folder: Path) -> str:
        """Run a program in a directory, where it leaves two files; return what it prints."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(folder), textwrap.dedent(program)]) + "\n")
        self.process.stdin.flush()
        exit_code = self.process.stdout.readline()
        assert exit_code == "0\n", (folder / "stderr").read_text() if exit_code else "the process is gone"
        return (folder / "stdout").read_text()


@contextmanager
def mlflow_alone() -> Iterator[Elsewhere]:
    """Start a process that ignores the working directory and the paths in the environment of this one."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-I", "-c", SERVER], stdin=pipe, stdout=pipe, text=True) as process:
        yield Elsewhere(process)
