"""Exports with functions that read what clients send, and with several signatures."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.scoring_server import invocations

from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import ArgumentTypeError, InputError, ModelFnError, UsageError
from psflow.ps_runtime.model.export import ServingInputReceiver, build_raw_serving_input_receiver_fn
from psflow.ps_runtime.model.export.receiver import placeholder
from psflow.ps_runtime.model.export.serving_input import ServingInput, served_features
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema, Scaling
from psflow.tasks.exports.signature import model_signature, tried_receiver
from psflow.tasks.exports.writer import MlflowModelWriter
from psflow.tasks.prediction.model import read_model_info
from tests.tasks.exports.test_writer import bundle_of

X = np.array([0.5, 2, -1], np.float32)
PAIRS = np.array([[0.5, 9], [2, 9]], np.float32)
ONE = np.float32(1).reshape(())


@pytest.fixture(scope="module")
def user_model() -> Iterator[Any]:
    """Return the module of a user, as it can be imported beside its parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        yield importlib.import_module("user_model")
    for name in ("user_model", "user_parts"):
        sys.modules.pop(name, None)


def written(folder: Path, model_fn: Any, features: Any, function: Any, **params: Any) -> Any:
    """Return an export of a model with a serving_input_receiver_fn."""
    bundle = bundle_of(model_fn, features, params, w=ONE)
    bundle.signatures = ("serving_default", "price", "level") if model_fn.__name__ == "heads" else ()
    bundle.serving_input_receiver_fn = function
    MlflowModelWriter().write(str(folder), bundle)
    return mlflow.pyfunc.load_model(str(folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


@pytest.fixture(scope="module")
def of_lines(user_model: Any, folder: Path) -> Any:
    return written(folder / "lines", user_model.linear, X, user_model.lines, scale=2.0)


@pytest.fixture(scope="module")
def of_features(user_model: Any, folder: Path) -> Any:
    function = build_raw_serving_input_receiver_fn({"x": PAIRS})
    return written(folder / "features", user_model.heads, {"x": PAIRS}, function)


def served(model: Any, **body: Any) -> Any:
    """Return what a server makes of a body of JSON."""
    answer = invocations(json.dumps(body), "application/json", model, model.metadata.get_input_schema())
    assert answer.status == 200
    return json.loads(answer.response)["predictions"]


def test_lines_are_sent_as_a_column(of_lines: Any) -> None:
    lines = ["0.5;red", "2;", "-1"]
    for given in (pd.DataFrame({"line": lines}), {"line": np.array(lines)}):
        assert of_lines.predict(given)["y"].tolist() == [1, 4, -2]
    assert served(of_lines, inputs={"line": lines})["y"] == [1, 4, -2]
    assert served(of_lines, dataframe_records=[{"line": line} for line in lines])["y"] == [1, 4, -2]
    assert [(spec.name, spec.type.name) for spec in of_lines.metadata.get_input_schema()] == [("line", "string")]


def test_what_the_function_cannot_read_is_an_error_of_the_request(of_lines: Any) -> None:
    said = "the input cannot be read by lines: ValueError: could not convert string to float: 'red'"
    with pytest.raises(ValueError, match=said) as caught:
        of_lines.predict({"line": np.array(["0.5;", "red;"])})
    assert caught.value.get_http_status_code() == 400  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="the input: array 'line' has 7 in row 1, expected text"):
        of_lines.unwrap_python_model().predict(None, {"line": ["0.5", 7]})
    with pytest.raises(MlflowException, match=r"Model is missing inputs \['line'\]"):
        of_lines.predict(pd.DataFrame({"lines": ["0.5"]}))


def test_features_just_as_they_are(of_features: Any) -> None:
    assert of_features.predict({"x": PAIRS})["y"].tolist() == [0.5, 2]
    assert served(of_features, inputs={"x": PAIRS.tolist()})["y"] == [0.5, 2]
    with pytest.raises(ValueError, match=r"the input: array 'x' has rows of shape \[3\], expected \[2\]"):
        of_features.unwrap_python_model().predict(None, {"x": np.ones((1, 3), np.float32)})


def test_a_request_names_a_signature(of_features: Any) -> None:
    given = {"x": PAIRS}
    assert list(of_features.predict(given)) == ["y"]
    assert list(of_features.predict(given, params={"signature_name": "serving_default"})) == ["y"]
    assert of_features.predict(given, params={"signature_name": "price"})["outputs"].tolist() == [0.5, 2]
    level = served(of_features, inputs={"x": PAIRS.tolist()}, params={"signature_name": "level"})
    assert level == {"scores": [[0.5, -0.5], [2.0, -2.0]], "classes": [["low"], ["high"]]}
    assert of_features.metadata.metadata["psflow"]["signatures"] == ["serving_default", "price", "level"]
    said = "signature_name is 'prise': expected one of 'serving_default', 'price', 'level'; did you mean 'price'"
    with pytest.raises(ValueError, match=said):
        of_features.predict(given, params={"signature_name": "prise"})


def test_numbers_are_columns_that_mlflow_leaves_alone(user_model: Any) -> None:
    def numbers() -> ServingInputReceiver:
        row = {name: placeholder(dtype, [None], name, example=1) for name, dtype in (("n", int), ("is_new", bool))}
        return ServingInputReceiver(row, row)

    bundle = bundle_of(user_model.linear, X, {"scale": 1.0}, w=ONE)
    columns = model_signature(bundle, ServingInput.of(numbers)).inputs
    assert [(spec.name, type(spec.type).__name__) for spec in columns] == [("n", "AnyType"), ("is_new", "AnyType")]


def test_a_model_of_one_signature_takes_no_parameter(of_lines: Any) -> None:
    assert of_lines.metadata.signature.params is None
    assert "signatures" not in of_lines.metadata.metadata["psflow"]


def test_batch_prediction_refuses_a_model_that_receives_other_rows(of_lines: Any, folder: Path) -> None:
    path = str(folder / "lines")
    with pytest.raises(UsageError, match="takes inputs of its serving_input_receiver_fn, not rows of"):
        read_model_info(path, path, path, None)


def test_features_that_the_model_does_not_read_are_found_out_before_anything_is_written(
    user_model: Any, tmp_path: Path
) -> None:
    said = "what serving_input_receiver_fn makes of its examples has no feature 'x'; its features are 'other'"
    with pytest.raises(InputError, match=said):
        written(tmp_path / "model", user_model.heads, {"x": PAIRS}, user_model.letters)
    assert not (tmp_path / "model").exists()


PEOPLE = """age,job,pay
26,clerk,0
42,smith,1
30,,0
"""


def test_features_are_raw_columns_where_training_had_them(tmp_path: Path) -> None:
    def people() -> ServingInputReceiver:
        line = placeholder(str, [None], example="26;clerk")
        ages, jobs = zip(*(text.split(";") for text in line), strict=True)
        return ServingInputReceiver({"age": np.array(ages, int), "job": np.array(jobs)}, {"line": line})

    def ages_alone() -> ServingInputReceiver:
        age = placeholder(int, [None])
        return ServingInputReceiver({"age": age}, {"age": age})

    (tmp_path / "people.csv").write_text(PEOPLE)
    schema = Csv(path=str(tmp_path / "people.csv"), label="pay").read().learn("keep", "the train input").schema()
    receiver = tried_receiver(people, schema)
    given = receiver.features({"line": ["42;smith", "30;"]}, "the input")
    features = served_features(given, schema, "the input")
    of_file = Csv(path=str(tmp_path / "people.csv")).read().open(schema, "keep", "the input", needs_labels=False)
    expected = of_file.read(0, 1, 3)[0]
    assert {name: array.tolist() for name, array in features.items()} == {
        name: array.tolist() for name, array in expected.items()
    }
    with pytest.raises(InputError, match=r"column 'job' .* is missing"):
        tried_receiver(ages_alone, schema)


def test_columns_have_the_names_that_pandas_reads(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE.replace("age,job,pay", " age,job ,pay"))
    data = Csv(path=str(path), label="pay").read().learn("keep", "the train input")
    features = served_features(pd.read_csv(path), data.schema(), "the input")
    assert {name: array.tolist() for name, array in features.items()} == {
        name: array.tolist() for name, array in data.read(0, 0, 3)[0].items()
    }


def test_numbers_that_are_scaled_already_are_found_out_before_anything_is_written() -> None:
    def scaled() -> ServingInputReceiver:
        pixels = placeholder("uint8", [None, 2], example=[100, 200])
        return ServingInputReceiver({"features": pixels / 255}, {"pixels": pixels})

    def stored() -> ServingInputReceiver:
        pixels = placeholder("uint8", [None, 2], example=[100, 200])
        return ServingInputReceiver({"features": pixels}, {"pixels": pixels})

    schema = InputSchema((ArraySpec("features", "float32", (2,)),), scaling=Scaling(255, 0, 1))
    tried_receiver(stored, schema)
    with pytest.raises(InputError, match=r"its examples: feature 'features' has 0.39.* the model itself scales them"):
        tried_receiver(scaled, schema)


def nothing() -> None:
    return None


def test_functions_that_no_export_can_hold_are_found_out_before_training(user_model: Any) -> None:
    MlflowModelWriter().check(user_model.linear, {}, [user_model.lines, build_raw_serving_input_receiver_fn({"x": X})])
    with pytest.raises(
        ModelFnError, match=r"serving_input_receiver_fn .*<lambda> cannot be exported: move it to the top"
    ):
        MlflowModelWriter().check(user_model.linear, {}, [lambda: None])  # type: ignore[list-item, return-value]
    with pytest.raises(ArgumentTypeError, match="the result of nothing should be a ServingInputReceiver, got None"):
        tried_receiver(nothing, None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"user_model:broken raised KeyError on its examples at .*user_model\.py:"):
        MlflowModelWriter().check(user_model.linear, {}, [user_model.broken])


def test_a_function_that_model_fn_cannot_import_is_refused(user_model: Any, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.py"
    path.write_text(
        "import psflow\n\ndef numbers():\n    x = psflow.placeholder('f4', [None])\n"
        "    return psflow.export.TensorServingInputReceiver(x, x)\n"
    )
    namespace: dict[str, Any] = {"__name__": "elsewhere"}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    with pytest.raises(ModelFnError, match=r"numbers is in .*elsewhere\.py, which model_fn, in .* cannot import"):
        MlflowModelWriter().check(user_model.linear, {}, [namespace["numbers"]])
