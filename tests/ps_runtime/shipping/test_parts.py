"""A digest tells versions of the user's code apart, and nothing else."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psflow import EvalSpec, TrainSpec
from psflow.ps_runtime.shipping.parts import code_digest
from tests.user_modules import Program

MODEL = """
from helpers_of_digest import RATES, double
LIMIT = 3
class Hook:
    every = 2
    def after(self):
        return {"b", "a"} <= {"a", "b", "c"}
def model(features, scale=1.0):
    inner = lambda x: double(x) * LIMIT
    return inner(features) * scale * RATES[0]
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


HOLDERS = """
import dataclasses, enum, functools
import numpy as np
class Kind(enum.Enum):
    A = 1.5
class Holder:
    def __init__(self):
        self.rate, self.me = 2.5, self
class Slots:
    __slots__ = ("rate",)
    def __init__(self):
        self.rate = 3.5
@dataclasses.dataclass
class Config:
    rates: list
def scaled(x, by):
    return x * by
HOLDER, SLOTS, CONFIG, DOUBLE = Holder(), Slots(), Config([4.5]), functools.partial(scaled, by=5.5)
LISTS, NAMES, SET = [[6.5], [1]], {"b": [7.5], "a": scaled}, {"x", "y", "z", 8.5}
ARRAY, SCALAR = np.array([9.5]), np.float32(10.5)
ROWS = [[11.5] * 3] * 1_000
OBJECTS = [HOLDER, {12.5: CONFIG}]
def model(factor=lambda: 13.5):
    return Kind.A, HOLDER, SLOTS, CONFIG, DOUBLE, LISTS, NAMES, SET, ARRAY, SCALAR, ROWS, OBJECTS
"""


def digest_of_holders(program: Program, text: str) -> str | None:
    module: Any = program({"holders_of_digest.py": text})
    return code_digest(module.model)


@pytest.mark.parametrize("number", range(1, 14))
def test_a_number_that_is_held_somewhere_changes_it(program: Program, number: int) -> None:
    before = digest_of_holders(program, HOLDERS)
    assert digest_of_holders(program, HOLDERS) == before
    assert digest_of_holders(program, HOLDERS.replace(f"{number}.5", f"{number}.25", 1)) != before


@pytest.mark.process
def test_the_order_of_sets_and_dictionaries_does_not(program: Program) -> None:
    module: Any = program({"holders_of_digest.py": HOLDERS})
    here = code_digest(module.model)
    turned = HOLDERS.replace('"b": [7.5], "a": scaled', '"a": scaled, "b": [7.5]')
    assert digest_of_holders(program, turned) == here
    code = "import sys; sys.path.insert(0, sys.argv[1]); import holders_of_digest as module; from psflow.ps_runtime."
    code += "shipping.parts import code_digest; print(code_digest(module.model))"
    for seed in ("1", "2"):
        command = [sys.executable, "-c", code, str(Path(module.__file__).parent)]
        other = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True)
        assert other.stdout.decode().strip() == here


def test_an_argument_of_a_partial_and_an_attribute_of_a_hook_change_it(program: Program) -> None:
    module: Any = program({"holders_of_digest.py": HOLDERS})
    two, three = module.Holder(), module.Holder()
    three.rate = 3
    partials = [functools.partial(module.model, factor=factor) for factor in (2, 3)]
    digests = {code_digest(value) for value in (*partials, two, three)}
    assert len(digests) == 4


def test_what_is_psflows_own_or_installed_has_none() -> None:
    assert code_digest(functools.partial(TrainSpec, print), EvalSpec(print)) is None
