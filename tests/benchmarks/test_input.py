"""The bare loops of the input benchmark read what psflow reads."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.input_forms import BATCH_ROWS, FORMS, NUM_COLUMNS, Form
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.splittable import SplittableInput

NUM_ROWS = 2 * BATCH_ROWS + 3


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_bare_loop_and_an_epoch_have_the_same_batches(form: Form, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    form.write(tmp_path / "data", random.random((NUM_ROWS, NUM_COLUMNS), np.float32), random.integers(0, 10, NUM_ROWS))
    data = open_input(partial(open_dataset, form.described(tmp_path / "data")), mode="train")
    assert isinstance(data, SplittableInput)
    start = 0
    for matrix, labels in form.bare(tmp_path / "data"):
        features, own_labels = data.read(0, start, start + len(matrix))
        assert isinstance(features, dict)
        np.testing.assert_allclose(features["features"], matrix, rtol=1e-6)
        np.testing.assert_array_equal(own_labels, labels)
        assert matrix.dtype == features["features"].dtype == np.float32
        start += len(matrix)
    assert start == data.num_records == NUM_ROWS
    assert matrix[1:].std() > 0.1
