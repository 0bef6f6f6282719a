from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.record_formats import Csv, LibSvm
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import InputSchema


def opened(data: LibSvm | Csv, schema: InputSchema | None = None, **options: Any) -> RecordDataset:
    enforcement = {} if schema is None else {"enforcement": Enforcement(schema)}
    found = open_input(partial(open_dataset, data), **enforcement, **options)  # type: ignore[arg-type]
    assert isinstance(found, RecordDataset)
    return found


def file(folder: Path, name: str, *lines: str) -> str:
    (folder / name).write_text("\n".join(lines) + "\n")
    return str(folder / name)


def test_labels_of_any_numbers_become_classes(tmp_path: Path) -> None:
    path = file(tmp_path, "train.svm", "-1 1:0.5", "+1 3:2", "-1")
    data = opened(LibSvm(path=path, label=LabelOptions("label", [-1, 1])))
    features, labels = data.read(0, 0, 3)
    np.testing.assert_array_equal(features["features"], np.float32([[0.5, 0, 0], [0, 0, 2], [0, 0, 0]]))
    assert (features["features"].dtype, labels.tolist()) == (np.float32, [0, 1, 0])


def test_labels_that_are_not_read_are_no_feature(tmp_path: Path) -> None:
    data = opened(LibSvm(path=file(tmp_path, "train.svm", "1 1:0.5"), label=None))
    features, labels = data.read(0, 0, 1)
    assert (list(features), labels) == (["features"], None)


def test_a_further_input_is_read_as_the_training_input_was(tmp_path: Path) -> None:
    train = opened(LibSvm(path=file(tmp_path, "train.svm", "0 0:1 3:2"), zero_based=True))
    later = file(tmp_path, "eval.svm", "1 1:1", "-5 0:3")
    data = opened(LibSvm(path=later), train.schema())
    features, labels = data.read(0, 0, 2)
    np.testing.assert_array_equal(features["features"], [[0, 1, 0, 0], [3, 0, 0, 0]])
    assert labels.tolist() == [1, -5]
    assert data.schema() == train.schema()
    shifted = LibSvm(path=file(tmp_path, "one.svm", "1 4:7"), zero_based=False)
    np.testing.assert_array_equal(opened(shifted, train.schema()).read(0, 0, 1)[0]["features"], [[0, 0, 0, 7]])


def test_features_that_the_model_does_not_have_are_refused(tmp_path: Path) -> None:
    schema = opened(LibSvm(path=file(tmp_path, "train.svm", "0 1:1 3:2"))).schema()
    with pytest.raises(InputError, match="index 4: expected indices from 1 to 3, as there are 3 features"):
        opened(LibSvm(path=file(tmp_path, "eval.svm", "1 4:1")), schema)
    with pytest.raises(InputError, match="num_features is 4, expected 3 as in training; leave it out"):
        opened(LibSvm(path=file(tmp_path, "eval.svm", "1 1:1"), num_features=4), schema)
    assert opened(LibSvm(path=file(tmp_path, "eval.svm", "1 1:1"), num_features=3), schema).num_records == 1


def test_a_value_that_is_not_finite_is_named(tmp_path: Path) -> None:
    path = file(tmp_path, "train.svm", "0 1:1", "1 2:nan")
    with pytest.raises(InputError, match=r"train\.svm: column 'features' has 1 cell that is .* the first in row 2"):
        opened(LibSvm(path=path), non_finite="error")
    assert opened(LibSvm(path=path), non_finite="drop").num_records == 1


def test_a_model_of_other_columns_reads_no_libsvm(tmp_path: Path) -> None:
    schema = opened(Csv(path=file(tmp_path, "train.csv", "a,y", "1,0"), label="y")).schema()
    with pytest.raises(InputError, match="has no column 'a'"):
        opened(LibSvm(path=file(tmp_path, "eval.svm", "1 1:1")), schema)


def test_no_process_guesses_where_indices_begin(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="zero_based is 'auto', expected true or false or None"):
        opened(LibSvm(path=file(tmp_path, "train.svm", "0 1:1"), zero_based="auto"))  # type: ignore[arg-type]


def test_the_array_has_a_type_of_its_own(tmp_path: Path) -> None:
    path = file(tmp_path, "train.svm", "0 1:1")
    with pytest.raises(InputError, match="the type of column 'features' is 'float64': it is always an array"):
        opened(LibSvm(path=path, columns={"features": ColumnOptions(type="float64")}))
