"""Flags and names of programs for TensorFlow 1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import psflow

PROGRAM = """
import psflow as tf

tf.app.flags.DEFINE_string("job_name", "", "Either 'ps' or 'worker'")
tf.app.flags.DEFINE_integer("task_index", 0, "Index of task within the job")
tf.app.flags.DEFINE_bool("sync", False, "Average")
FLAGS = tf.app.flags.FLAGS
print(repr(FLAGS.job_name), FLAGS.task_index, FLAGS.sync)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "code", "out", "error"),
    [
        ([], 0, "'' 0 False", ""),
        (["--job_name=ps", "--task_index", "2", "--sync"], 0, "'ps' 2 True", ""),
        (["--job-name=worker", "--task-index=-1", "more"], 0, "'worker' -1 False", ""),
        (["--help"], 0, "Index of task within the job", ""),
        (["--jobname=ps"], 1, "", "Unknown command line flag 'jobname'. Did you mean: job_name ?"),
        (["--task_index=x"], 1, "", "flag --task_index=x: invalid literal for int()"),
    ],
)
def test_flags_are_parsed_when_the_first_is_read(
    arguments: list[str], code: int, out: str, error: str, tmp_path: Path
) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    ended = subprocess.run([sys.executable, file, *arguments], capture_output=True, text=True)
    assert (ended.returncode, out in ended.stdout, error in ended.stderr) == (code, True, True), ended
    assert "Traceback" not in ended.stderr


def test_the_names_of_tf_train_are_those_of_psflow() -> None:
    assert psflow.train.AdamOptimizer is psflow.Adam
    assert psflow.train.GradientDescentOptimizer is psflow.GradientDescent
    assert psflow.train.ClusterSpec is psflow.ClusterSpec
    assert {"AdagradOptimizer", "MonitoredTrainingSession", "Server"} <= set(dir(psflow.train))
    assert "Adam" not in dir(psflow.train)
    for name in dir(psflow.train):
        assert getattr(psflow.train, name) is not None
