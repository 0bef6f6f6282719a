"""Facts on which two processes of one program must agree, as strings that do not depend on the process."""

from __future__ import annotations

from typing import Any

from psflow import EvalSpec, GradientDescent, RunConfig, TrainSpec
from psflow.ps_runtime.estimator.manual_cluster import program_facts


def facts(params: dict[str, Any], train_spec: TrainSpec, *eval_specs: EvalSpec) -> dict[str, str]:
    return program_facts(params, RunConfig("model", save_checkpoints_steps=20, cluster=None), train_spec, eval_specs)


def test_settings_are_there_by_name() -> None:
    found = facts({"units": [10, (0.5, None)], "map": {"a": "b"}}, TrainSpec(list, 40), EvalSpec(list, steps=7))
    expected = {
        "params['units']": "[10, [0.5, None]]",
        "params['map']": "{'a': 'b'}",
        "RunConfig.save_checkpoints_steps": "20",
        "TrainSpec.max_steps": "40",
        "TrainSpec.each_worker_reads_all": "False",
        "eval_spec[0].steps": "7",
    }
    assert expected.items() <= found.items()
    assert not {"RunConfig.model_dir", "RunConfig.cluster", "TrainSpec.input_fn"} & found.keys()


def test_what_differs_by_process_alone_is_no_difference() -> None:
    def made(order: str) -> dict[str, str]:
        return facts({"f": lambda: order, "set": set(order), "optimizer": [GradientDescent(0.1)]}, TrainSpec(list))

    assert made("abc") == made("cba")
    assert made("abc")["params['optimizer']"] == "[a GradientDescent]"
