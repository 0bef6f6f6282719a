"""One model_dir, trained in every way after every other: each goes on where the one before came to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from tests.flows.conftest import Project
from tests.free_ports import free_address

pytestmark = [pytest.mark.piece(number=2), pytest.mark.timeout(1800)]

PROGRAM = """
import json, os, sys
import numpy as np
import psflow as tf
from distributed import Client, LocalCluster

def model_fn(features, labels, mode):
    w = tf.get_variable("w", initializer=0.0)
    train_op = tf.GradientDescent(1.0).apply_gradients({"w": np.float32(-1)})
    return tf.EstimatorSpec(mode, predictions={"y": features}, loss=np.mean(features), train_op=train_op)

def rows(**params):
    return tf.Dataset(np.ones(10, np.float32), np.ones(10)).batch(5).repeat()

def few(**params):
    return tf.Dataset(np.ones(10, np.float32), np.ones(10)).batch(5)

def estimator(model_dir):
    return tf.Estimator(model_fn, model_dir, tf.RunConfig(save_checkpoints_steps=50, tf_random_seed=1))

def train(model_dir, max_steps):
    estimator(model_dir).train(rows, max_steps=max_steps)

def train_and_evaluate(model_dir, max_steps, **more):
    specs = tf.TrainSpec(rows, max_steps), tf.EvalSpec(few, None, throttle_secs=0, start_delay_secs=0)
    tf.train_and_evaluate(estimator(model_dir), *specs, **more)

def session(model_dir, max_steps):
    hooks = [tf.StopAtStepHook(last_step=max_steps)]
    with tf.MonitoredTrainingSession(estimator(model_dir), rows, hooks) as sess:
        while not sess.should_stop():
            sess.run()

def cluster(model_dir, max_steps):
    with LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as nodes, Client(nodes) as client:
        train_and_evaluate(model_dir, max_steps, client=client, num_workers=1)

def by_hand(model_dir, max_steps):
    train_and_evaluate(model_dir, max_steps)

def coordinator(model_dir, max_steps):
    os.environ["TF_CONFIG"] = json.dumps({"cluster": json.loads(sys.argv[4]), "model_dir": model_dir})
    strategy = tf.ParameterServerStrategy()
    tf.run_distribute_coordinator(lambda strategy: train_and_evaluate(model_dir, max_steps), strategy)

if __name__ == "__main__":
    globals()[sys.argv[1]](os.path.abspath(sys.argv[2]), int(sys.argv[3]))
"""
CONF = """
experiment: ways
seed: 1
model: {name: "ways:model_fn"}
input: {train: {name: "ways:rows"}, eval: {name: "ways:few"}}
train: {save_checkpoints_steps: 50}
cluster: {workers: 1}
"""
WAYS = ("train", "train_and_evaluate", "session", "cluster", "by_hand", "coordinator", "flow")
MODEL_DIR = "runs/ways"
STEPS = 10


def all_pairs(names: Sequence[str]) -> list[str]:
    """Return names in which each comes right after each, itself too, once: a de Bruijn sequence of order two."""
    words = [word for place, name in enumerate(names) for word in ((name,), *((name, n) for n in names[place + 1 :]))]
    return [name for word in words for name in word] + [names[0]]


def run(project: Project, way: str, max_steps: int) -> None:
    """Train to a step in one of the ways; fail the test with what was said if that fails."""
    if way == "flow":
        project.run("train", "ways.yaml", f"model_dir={MODEL_DIR}", f"train.max_steps={max_steps}")
        return
    addresses = {role: [free_address()] for role in ("chief", "worker", "ps")}
    configs: list[dict[str, Any]] = [{}]
    if way == "by_hand":
        configs = [{"cluster": addresses, "task": {"type": role, "index": 0}} for role in (*addresses, "evaluator")]
    arguments = [way, MODEL_DIR, str(max_steps), json.dumps(addresses | {"evaluator": [free_address()]})]
    started = [
        subprocess.Popen(
            [sys.executable, "ways.py", *arguments],
            cwd=project.path,
            env=os.environ | {"TF_CONFIG": json.dumps(config)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for config in configs
    ]
    said = [process.communicate(timeout=project.timeout_secs)[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(started), (way, max_steps, "\n".join(said))


def test_every_way_goes_on_after_every_other(served_project: Project) -> None:
    project = served_project
    project.write("ways.py", PROGRAM)
    project.write("ways.yaml", CONF)
    sequence = all_pairs(WAYS)
    assert len(set(pairwise(sequence))) == len(sequence) - 1 == len(WAYS) ** 2
    for place, way in enumerate(sequence, 1):
        run(project, way, STEPS * place)
        assert CheckpointStore(str(project.path / MODEL_DIR)).latest() == STEPS * place, way
    reader = CheckpointReader(CheckpointStore(str(project.path / MODEL_DIR)), STEPS * len(sequence))
    assert reader.variable("w") == STEPS * len(sequence)
