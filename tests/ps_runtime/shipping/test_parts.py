"""A digest identifies versions of the user's code, and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from psflow import EvalSpec, TrainSpec
from psflow.ps_runtime.shipping import parts
from psflow.ps_runtime.shipping.parts import code_digest
from tests.user_modules import Program

MODEL = """
from helpers_of_digest import RATES, double
import os
import numpy as np
LIMIT = 3
SETTINGS = {"units": [64, 32], "names": {"a", "b"}, "rate": np.float32(0.5)}
WEIGHTS, DAYS = np.arange(3.0), np.array(["2026-01-01"], "datetime64[D]")
ITSELF = []
ITSELF.append(ITSELF)
class Hook:
    every = 2
    def after(self):
        return {"b", "a"} <= {"a", "b", "c"}
def model(features, scale=1.0):
    inner = lambda x: double(x) * LIMIT
    os.environ.get(str(SETTINGS), str(DAYS) + str(ITSELF))
    return inner(features) * scale * RATES[0] * WEIGHTS[1]
def unused():
    return 1
"""
HELPERS = """
RATES = (1, 2)
calls = []
def double(x):
    calls.append(x)
    return x + x
"""


def digest(program: Program, model: str = MODEL, helpers: str = HELPERS) -> str | None:
    module: Any = program({"helpers_of_digest.py": helpers, "model_of_digest.py": model})
    module = program({"model_of_digest.py": model})
    module.model(1)
    return code_digest({"model_fn": functools.partial(module.model, scale=2), "hooks": [module.Hook()]})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("x + x", "x * 2"),
        ("RATES = (1, 2)", "RATES = (1, 3)"),
        ("every = 2", "every = 3"),
        ("double(x) * LIMIT", "double(x) * LIMIT * 1.5"),
        ('{"b", "a"}', '{"b", "c"}'),
        ("scale=1.0", "scale=2.0"),
        ("[64, 32]", "[32, 64]"),
        ('"units"', '"layers"'),
        ('{"a", "b"}', '{"a", "c"}'),
        ("np.float32(0.5)", "np.float32(0.25)"),
        ("arange(3.0)", "arange(3.0)[::-1]"),
        ("2026-01-01", "2026-01-02"),
    ],
)
def test_a_change_of_code_that_is_used_changes_it(program: Program, old: str, new: str) -> None:
    before = digest(program)
    assert digest(program, MODEL.replace(old, new), HELPERS.replace(old, new)) != before


@pytest.mark.parametrize(
    "change", [lambda text: f"# a comment\n\n{text}", lambda text: text.replace("return 1", "return 2")]
)
def test_comments_places_and_other_code_do_not(program: Program, change: Callable[[str], str]) -> None:
    before = digest(program)
    assert before is not None
    assert digest(program, change(MODEL), change(HELPERS)) == before


def test_neither_a_variable_of_the_environment_nor_a_large_table_does(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = MODEL.replace("np.arange(3.0)", "np.zeros(1 << 24)")
    before = digest(program, large)
    monkeypatch.setenv("PSFLOW_ANY", "other")
    assert digest(program, large.replace("np.zeros", "np.ones")) == before


def test_a_container_of_numbers_alone_is_not_walked(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    walked, walk = [], parts._parts
    monkeypatch.setattr(parts, "_parts", lambda value: (walked.append(value), walk(value))[1])
    text = "ROWS, NAMES, HOOKS = [0.5] * 9, {1: 'a'}, [print, 1]\ndef f():\n    return ROWS, NAMES, HOOKS\n"
    module: Any = program({"tables_of_digest.py": text})
    assert code_digest(module.f) is not None
    assert module.HOOKS in walked
    assert module.ROWS not in walked
    assert module.NAMES not in walked


def test_what_is_psflows_own_or_installed_has_none() -> None:
    assert code_digest(functools.partial(TrainSpec, print), EvalSpec(print)) is None
