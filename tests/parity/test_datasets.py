"""Data sets against tf.data of TensorFlow 2.15.1: the same elements in the same order."""

from __future__ import annotations

import json

import pytest

from psflow import Dataset
from psflow.ps_runtime.data.transformations import Transformations
from tests.parity.datasets import CASES, ELEMENTS_FILE, elements

TENSORFLOW = json.loads(ELEMENTS_FILE.read_text())


@pytest.mark.parametrize("name", CASES)
def test_elements_are_those_of_tensorflow(name: str) -> None:
    assert elements(CASES[name](Dataset)) == TENSORFLOW["elements"][name]


def test_every_case_is_compared_and_every_method_is_in_one() -> None:
    assert TENSORFLOW["tensorflow"].startswith("2.15")
    assert TENSORFLOW["elements"].keys() == CASES.keys()
    methods = {name for name in vars(Transformations) if not name.startswith("_")} - {
        "by_number",
        "stream",
        "one_epoch",
        "is_batched",
    }
    assert {method for method in methods if not any(method in name for name in CASES)} == set()
