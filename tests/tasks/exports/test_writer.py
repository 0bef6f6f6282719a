from __future__ import annotations

import importlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.enforcement import schema_of
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.dnn import dnn_model
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.optimizers import Adagrad, ExponentialDecay, GradientDescent, LinearWarmup
from psflow.ps_runtime.specs.schema import InputSchema, Scaling
from psflow.ps_runtime.tables.table import Table
from psflow.tasks.exports.code import RequiredCode, source_of, source_of_rule
from psflow.tasks.exports.writer import MlflowModelWriter
from tests.tasks.exports.elsewhere import Elsewhere, mlflow_alone

ROOT = Path(__file__).parents[3]
COLUMNS = ("a", "b", "c", "d")


def bundle_of(
    model_fn: Callable[..., Any],
    features: Any,
    params: dict[str, Any],
    schema: InputSchema | None = None,
    **values: Any,
) -> Any:
    schema = schema or schema_of(features, None)
    caller = ModelCaller(model_fn, params, None, schema)
    built = caller.build(features, None, ModeKeys.PREDICT, seed=1)
    model_values = ModelValues(values) if values else ModelValues.initial(built.model, built.initial_values)
    spec = caller.apply(features, None, ModeKeys.PREDICT, model_values, 700)
    return SimpleNamespace(
        name="model",
        global_step=700,
        values=model_values,
        model_fn=model_fn,
        params=params,
        features=features,
        predictions=spec.predictions,
        metrics={"loss": 0.1},
        saved_at=0.5,
        schema=schema,
        signatures=(),
        serving_input_receiver_fn=None,
    )


@pytest.fixture(scope="module")
def dnn() -> Any:
    matrix = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    params = {
        "hidden_units": (3,),
        "activation_fn": "relu",
        "dropout": None,
        "head": ClassifierSpec(3),
        "optimizer": Adagrad(learning_rate=ExponentialDecay(0.1, 100, 0.9)),
    }
    bundle = bundle_of(dnn_model, {"features": matrix}, params)
    bundle.schema = replace(bundle.schema, columns=COLUMNS)
    return bundle


@pytest.fixture(scope="module")
def dnn_export(dnn: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dnn") / "model"
    MlflowModelWriter().write(str(path), dnn)
    return path


def test_the_umask_alone_decides_who_reads_an_export(dnn: Any, tmp_path: Path) -> None:
    umask = 0o027
    before = os.umask(umask)
    try:
        MlflowModelWriter().write(str(tmp_path / "model"), dnn)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").rglob("*")}
    assert tmp_path / "model" / "artifacts" / "model" / "variables.safetensors" in modes
    assert modes == {path: (0o777 if path.is_dir() else 0o666) & ~umask for path in modes}


def push(table: Table, ids: list[int], times: int = 1) -> None:
    """Bring a table that is only read to where pushes of ones would have brought it."""
    trained = Table(table.spec, GradientDescent(learning_rate=1.0))
    for number in range(times):
        trained.push(
            np.array(ids), np.ones((len(ids), table.spec.dim), np.float32), learning_rate=1, num_updates=number
        )
    table.load(trained.tensors())


@pytest.fixture
def user_model(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import user_model

    yield user_model
    for name in ("user_model", "user_parts"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    with mlflow_alone() as process:
        yield process


def predict(elsewhere: Elsewhere, model: Path, expression: str) -> Any:
    """Predict in a process where psflow and the user's files cannot be imported but from the export."""
    program = f"""
        import importlib.machinery, json, os, sys, warnings
        warnings.simplefilter("ignore")
        model = {str(model)!r}

        class OnlyTheExport:
            def find_spec(name, path=None, target=None):
                if name.partition(".")[0] in ("psflow", "user_model", "user_parts"):
                    spec = importlib.machinery.PathFinder.find_spec(name, path)
                    if spec is None or not spec.origin.startswith(model):
                        raise ModuleNotFoundError(name)

        sys.meta_path.insert(0, OnlyTheExport)
        import mlflow.pyfunc, numpy as np, pandas as pd
        result = mlflow.pyfunc.load_model(model).predict({expression})
        print(json.dumps({{name: value.tolist() for name, value in result.items()}}))
    """
    return json.loads(elsewhere.run(program, model.parent))


def agree(got: Any, expected: Any, rtol: float = 0.0) -> None:
    assert set(got) == set(expected)
    for name, value in expected.items():
        given = np.asarray(got[name], value.dtype)
        if value.dtype.kind == "f":
            np.testing.assert_allclose(given, value, rtol=rtol)
        else:
            np.testing.assert_array_equal(given, value)


def test_canned_model_predicts_where_psflow_is_not_installed(dnn: Any, dnn_export: Path, elsewhere: Elsewhere) -> None:
    rows = [dict(zip(COLUMNS, row, strict=True)) | {"label": 1} for row in dnn.features["features"].tolist()]
    agree(predict(elsewhere, dnn_export, f"pd.DataFrame({rows!r}).astype('float32')"), dnn.predictions)


def test_ids_are_looked_up_in_variables_and_tables_of_an_export(tmp_path: Path) -> None:
    features = {
        "few": np.array([3, 0]),
        "many": np.array([70_000, 5]),
        "some": np.array([1, 2]),
        "x": np.float32([1, 2]),
    }
    declared = {"num_ids": {"few": 4, "many": 10**6, "some": 9}, "embedding": {"few": 2, "many": 3}}
    schema = Dataset(features, **declared).schema()
    bundle = bundle_of(
        dnn_model,
        features,
        {"hidden_units": [3], "activation_fn": "relu", "dropout": None, "head": RegressionHead(2)},
        schema,
    )
    assert list(bundle.values.tables) == ["dnn/input_layer/many_embedding/embedding_weights"]
    MlflowModelWriter().write(str(tmp_path / "model"), bundle)
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    agree(model.predict(pd.DataFrame(dict(reversed(features.items())))), bundle.predictions)
    assert "scipy" not in (tmp_path / "model" / "requirements.txt").read_text()
    with pytest.raises(ValueError, match=r"the input: feature 'some' has the id 9 in row 1, expected ids in \[0, 9\)"):
        model.unwrap_python_model().predict(None, {**features, "some": np.array([0, 9])})


def test_functions_in_a_file_take_the_files_beside_it_along(
    user_model: Any, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    numbers = np.array([0.5, 2, -1], np.float32)
    bundle = bundle_of(user_model.linear, numbers, {"scale": 2.0}, w=np.float32(1.5).reshape(()))
    bundle.serving_input_receiver_fn = user_model.lines
    MlflowModelWriter().write(str(tmp_path / "model"), bundle)
    lines = "pd.DataFrame({'line': ['0.5;red', '2', '-1;']})"
    agree(predict(elsewhere, tmp_path / "model", lines), bundle.predictions)
    requirements = (tmp_path / "model" / "requirements.txt").read_text()
    assert "scipy==" in requirements
    assert "prefect" not in requirements


def test_method_of_a_class(user_model: Any, tmp_path: Path) -> None:
    bundle = bundle_of(user_model.Model().model_fn, np.ones(3), {"scale": 3.0}, w=np.float32(2).reshape(()))
    MlflowModelWriter().write(str(tmp_path / "model"), bundle)
    agree(mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(np.ones(3)), bundle.predictions)


def test_columns_are_found_by_name_in_any_order(dnn: Any, dnn_export: Path) -> None:
    model = mlflow.pyfunc.load_model(str(dnn_export))
    columns = dict(zip(COLUMNS, dnn.features["features"].T, strict=True))
    agree(model.predict({"label": np.ones(5), **dict(reversed(columns.items()))}), dnn.predictions)
    agree(model.unwrap_python_model().predict(None, dnn.features), dnn.predictions)
    agree(model.unwrap_python_model().predict(None, dnn.features["features"]), dnn.predictions)


def test_wrong_input(dnn_export: Path) -> None:
    model = mlflow.pyfunc.load_model(str(dnn_export)).unwrap_python_model()
    with pytest.raises(ValueError, match=r"feature 'features' has rows of shape \[3\], expected \[4\]"):
        model.predict(None, np.ones((2, 3)))
    with pytest.raises(ValueError, match="the input has no feature 'features'; its features are 'x'"):
        model.predict(None, {"x": np.ones((2, 4))})


@pytest.fixture(scope="module")
def pixels_export(dnn: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export the same model as one that training has given pixels, scaled to [-1, 1]."""
    path = tmp_path_factory.mktemp("pixels") / "model"
    bundle = SimpleNamespace(**vars(dnn) | {"schema": replace(dnn.schema, scaling=Scaling(255, -1, 1))})
    MlflowModelWriter().write(str(path), bundle)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_a_model_scales_what_is_stored(dnn: Any, pixels_export: Path, dtype: type) -> None:
    stored = np.arange(20, dtype=dtype).reshape(5, 4) * 12
    model = mlflow.pyfunc.load_model(str(pixels_export))
    given = {"features": stored.astype(np.float32) / np.float32(127.5) - np.float32(1)}
    expected = ModelCaller(dnn.model_fn, dnn.params, None, dnn.schema).apply(
        given, None, ModeKeys.PREDICT, dnn.values, 700
    )
    agree(model.predict(pd.DataFrame(stored, columns=COLUMNS)), expected.predictions)


def test_a_model_refuses_what_is_scaled_already(dnn: Any, pixels_export: Path) -> None:
    model = mlflow.pyfunc.load_model(str(pixels_export)).unwrap_python_model()
    words = "expected whole numbers from 0 to 255, as they are stored; the model itself scales them to .-1, 1"
    with pytest.raises(ValueError, match=words):
        model.predict(None, dnn.features)


def test_a_table_without_a_column_is_refused(dnn_export: Path) -> None:
    model = mlflow.pyfunc.load_model(str(dnn_export)).unwrap_python_model()
    with pytest.raises(ValueError, match=r"the input has no column 'd'; did you mean 'dd'\?"):
        model.predict(None, pd.DataFrame(np.ones((2, 4)), columns=["a", "b", "c", "dd"]))


def test_no_pickle_and_no_training_code(dnn_export: Path) -> None:
    files = {path.relative_to(dnn_export).as_posix(): path for path in dnn_export.rglob("*") if path.is_file()}
    assert not [name for name, path in files.items() if name.endswith(".pkl") or path.read_bytes()[:1] == b"\x80"]
    assert "code/psflow/ps_runtime/model/canned/dnn.py" in files
    rooms = {name.split("/")[3] for name in files if name.startswith("code/psflow/ps_runtime/")}
    assert not rooms & {"server", "transport", "roles", "cluster", "checkpoint", "data", "client"}
    requirements = files["requirements.txt"].read_text().split()
    assert {line.split("==")[0] for line in requirements} == {"mlflow", "numpy", "safetensors"}
    assert all("==" in line for line in requirements)


def test_nothing_is_said(
    dnn: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    MlflowModelWriter().write(str(tmp_path / "model"), dnn)
    mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


def test_config_of_an_export(dnn: Any, dnn_export: Path) -> None:
    config = json.loads((dnn_export / "artifacts" / "model" / "config.json").read_text())
    assert config["global_step"] == 700
    assert InputSchema.from_facts(config["schema"]) == dnn.schema
    assert dnn.schema.columns == COLUMNS
    assert config["model_fn"]["qualname"] == "dnn_model"


def test_parameters_come_back(dnn: Any, dnn_export: Path) -> None:
    params = mlflow.pyfunc.load_model(str(dnn_export)).unwrap_python_model()._call.params
    optimizer = params.pop("optimizer")
    head = params.pop("head")
    assert params == {"hidden_units": [3], "activation_fn": "relu", "dropout": None}
    assert (type(head).__name__, asdict(head)) == ("ClassifierSpec", asdict(dnn.params["head"]))
    assert (type(optimizer).__name__, asdict(optimizer)) == ("Adagrad", asdict(dnn.params["optimizer"]))


def test_tables_hold_the_rows_that_were_trained_and_make_the_others_up(
    user_model: Any, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    features = {"items": np.array([[3, 999_999], [4, -1], [5, 3]]), "user": np.array([0, 7, 2], np.int32)}
    bundle = bundle_of(user_model.baskets, features, {})
    untrained = bundle.predictions
    tables = bundle.values.tables
    push(tables["shop/items"], [3, 5, 999_999], times=2)
    push(tables["shop/items"], [4])  # waits for its admission
    push(tables["users"], [7])
    bundle.predictions = (
        ModelCaller(user_model.baskets, {}, None)
        .apply(features, None, ModeKeys.PREDICT, bundle.values, 700)
        .predictions
    )
    assert (bundle.predictions["items"] == untrained["items"]).all(axis=1).tolist() == [False, True, False]
    MlflowModelWriter().write(str(tmp_path / "model"), bundle)
    given = {name: f"np.array({ids.tolist()}, np.{ids.dtype})" for name, ids in features.items()}
    expression = "{" + ", ".join(f"{name!r}: {array}" for name, array in given.items()) + "}"
    agree(predict(elsewhere, tmp_path / "model", expression), bundle.predictions)
    stored = load_file(tmp_path / "model" / "artifacts" / "model" / "table_0.safetensors")
    assert stored["ids"].tolist() == [3, 5, 999_999]
    assert not len(stored["candidate_ids"])
    requirements = (tmp_path / "model" / "requirements.txt").read_text()
    assert "autograd" not in requirements


def test_arrays_that_are_not_contiguous(user_model: Any, tmp_path: Path) -> None:
    whole = np.arange(12, dtype=np.float32).reshape(3, 4)
    bundle = bundle_of(user_model.linear, np.ones((2, 4, 3), np.float32), {"scale": 1.0}, w=np.float32(1).reshape(()))
    arrays = {"w": np.float32(1).reshape(()), "f": np.asfortranarray(whole), "t": whole.T, "s": whole[::2, ::-1]}
    bundle.values = ModelValues(arrays)
    MlflowModelWriter().write(str(tmp_path / "model"), bundle)
    model = mlflow.pyfunc.load_model(str(tmp_path / "model")).unwrap_python_model()
    for name, value in arrays.items():
        np.testing.assert_array_equal(model._values.variables[name], value)


def test_two_versions_of_a_model_predict_in_one_process(user_model: Any, tmp_path: Path) -> None:
    bundle = bundle_of(user_model.linear, np.ones(3, np.float32), {"scale": 2.0}, w=np.float32(1).reshape(()))
    for version in ("first", "second"):
        MlflowModelWriter().write(str(tmp_path / version), bundle)
    changed = tmp_path / "second" / "code" / "user_model.py"
    text = changed.read_text()
    changed.write_text(text.replace("scaled(w", "scaled(10 * w"))
    assert changed.read_text() != text
    models = [mlflow.pyfunc.load_model(str(tmp_path / version)) for version in ("first", "second", "first")]
    predicted = [model.predict(np.ones(1, np.float32))["y"].tolist() for model in models]
    assert predicted == [[2.0], [20.0], [2.0]]
    assert sys.modules["user_model"] is user_model


def test_a_copy_of_a_model_outlives_the_first_one(user_model: Any, tmp_path: Path) -> None:
    bundle = bundle_of(user_model.linear, np.ones(3, np.float32), {"scale": 2.0}, w=np.float32(1).reshape(()))
    MlflowModelWriter().write(str(tmp_path / "first"), bundle)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    mlflow.pyfunc.load_model(str(tmp_path / "first"))
    shutil.rmtree(tmp_path / "first")
    model = mlflow.pyfunc.load_model(str(tmp_path / "second"))  # whose linear imports when it is called
    assert model.predict(np.ones(1, np.float32))["y"].tolist() == [2.0]


HALVING = """
from dataclasses import dataclass
from psflow import Schedule

@dataclass(frozen=True)
class Halving(Schedule):
    learning_rate: float

    def __call__(self, global_step):
        return self.learning_rate * 0.5**global_step

class NoDataclass(Schedule):
    __call__ = Halving.__call__
"""


def test_a_schedule_of_a_user_comes_back_with_its_optimizer(
    user_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: Elsewhere
) -> None:
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "halving.py").write_text(HALVING)
    monkeypatch.syspath_prepend(str(tmp_path / "my"))
    module = importlib.import_module("halving")
    params = {"scale": 2.0, "optimizer": GradientDescent(LinearWarmup(module.Halving(0.8), 1))}
    bundle = bundle_of(user_model.linear, np.ones(3, np.float32), params, w=np.float32(1).reshape(()))
    MlflowModelWriter().write(str(tmp_path / "model"), bundle)
    program = f"""
        import mlflow.pyfunc
        model = mlflow.pyfunc.load_model({str(tmp_path / "model")!r}).unwrap_python_model()
        print(model._call.params["optimizer"].learning_rate_at(2))
    """
    assert elsewhere.run(program, tmp_path) == "0.2\n"
    with pytest.raises(
        ModelFnError, match=r"learning_rate is a NoDataclass, .*: expected .* a schedule that is a dataclass"
    ):
        MlflowModelWriter().check(user_model.linear, {"optimizer": GradientDescent(module.NoDataclass())})
    monkeypatch.delitem(sys.modules, "halving")
    with pytest.raises(ModelFnError, match=r"the schedule Halving cannot be exported: .* such as my_schedule\.py"):
        source_of_rule(module.Halving(0.8))


def test_an_optimizer_that_inherits_its_update_is_looked_for_where_its_class_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "heavy.py").write_text(
        "from dataclasses import dataclass\nfrom psflow import Momentum\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Heavy(Momentum):\n    momentum: float = 0.5\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    heavy = importlib.import_module("heavy").Heavy(learning_rate=0.1)
    assert source_of_rule(heavy).module == "heavy"
    monkeypatch.delitem(sys.modules, "heavy")
    with pytest.raises(ModelFnError, match="the optimizer Heavy cannot be exported"):
        source_of_rule(heavy)


OTHERS = {
    "psflow/__init__.py": "VERSION = 9",
    "psflow/ps_runtime/__init__.py": "raise SystemExit('the wrong psflow')",
    "user_model.py": "def linear(features, mode, params): raise SystemExit('the wrong model')",
    "user_parts.py": "raise SystemExit('the wrong part')",
    "tasks.py": "raise SystemExit('a task runner of the user')",
    "flows/__init__.py": "raise SystemExit('flows of the user')",
}


def test_a_model_is_loaded_beside_another_psflow_and_files_of_the_same_names(
    user_model: Any, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    bundle = bundle_of(user_model.linear, np.ones(3, np.float32), {"scale": 2.0}, w=np.float32(1).reshape(()))
    MlflowModelWriter().write(str(tmp_path / "model"), bundle)
    for name, text in OTHERS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    program = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        before = list(sys.path)
        import mlflow.pyfunc, numpy as np
        print(mlflow.pyfunc.load_model({str(tmp_path / "model")!r}).predict(np.ones(3, np.float32))["y"].tolist())
        import psflow
        print(psflow.VERSION, sys.path == before)
    """
    assert elsewhere.run(program, tmp_path) == "[2.0, 2.0, 2.0]\n9 True\n"


def test_model_fn_without_a_file() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def model_fn(features, mode): ...", "<stdin>", "exec"), namespace)
    with pytest.raises(ModelFnError, match=r"model_fn has no file .*<stdin>.* move it to a module"):
        MlflowModelWriter().check(namespace["model_fn"], {})


def test_model_fn_inside_a_function(user_model: Any) -> None:
    with pytest.raises(ModelFnError, match="move it to the top level"):
        MlflowModelWriter().check(user_model.outer(), {})


@pytest.mark.parametrize(
    ("own", "beside", "words"),
    [
        (
            "import json\nfrom psflow import *\n",
            "",
            r"star_model\.py, line 2: from psflow import \* would take all of training into the export; import what "
            r"the file uses: from psflow import EstimatorSpec, get_variable$",
        ),
        ("import star_parts\n", "from psflow import *\n", r"star_parts\.py, line 1: .*; import what the file uses$"),
        ("if TYPE_CHECKING:\n    from psflow import *\nfrom math import *\nfrom star_parts import *\n", "", None),
    ],
)
def test_all_names_of_psflow_are_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, beside: str, words: str | None
) -> None:
    body = "def model_fn(features, mode):\n    return EstimatorSpec(mode, predictions=get_variable('w', ()))\n"
    (tmp_path / "star_model.py").write_text(own + body)
    (tmp_path / "star_parts.py").write_text(beside)
    namespace: dict[str, Any] = {"__name__": "star_model"}
    exec(compile(body, str(tmp_path / "star_model.py"), "exec"), namespace)
    if words is None:
        MlflowModelWriter().check(namespace["model_fn"], {})
        return
    with pytest.raises(ModelFnError, match=words):
        MlflowModelWriter().check(namespace["model_fn"], {})


def test_model_fn_that_is_no_function() -> None:
    with pytest.raises(ModelFnError, match="expected a function or a method"):
        MlflowModelWriter().check(SimpleNamespace(__qualname__="f"), {})  # type: ignore[arg-type]


def test_parameter_that_json_cannot_hold(user_model: Any) -> None:
    with pytest.raises(ModelFnError, match=r"params\['nested'\]\[0\] is a object, which an export cannot hold"):
        MlflowModelWriter().check(user_model.linear, {"nested": [object()]})


def test_script_that_runs_as_main(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("def model_fn(features, mode): ...\n")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(script.read_text(), str(script), "exec"), namespace)
    source = source_of(namespace["model_fn"])
    assert (source.module, source.qualname, source.root) == ("train", "model_fn", tmp_path)


def test_code_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "my_models"
    (package / "nets").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "nets" / "__init__.py").write_text("from . import parts\n")
    (package / "nets" / "parts.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import dask\n")
    (package / "nets" / "deep.py").write_text("from ..tools import x\ndef model_fn(features, mode): ...\n")
    (package / "tools.py").write_text("import json, no_such_library\nx = 1\n")
    (package / "unused.py").write_text("import prefect\n")
    path = package / "nets" / "deep.py"
    namespace: dict[str, Any] = {"__name__": "my_models.nets.deep"}
    exec(compile(path.read_text().replace("from ..tools import x", ""), str(path), "exec"), namespace)
    code = RequiredCode(source_of(namespace["model_fn"]))
    mine = {below.as_posix() for below in code.files if below.parts[0] == "my_models"}
    assert mine == {
        "my_models/__init__.py",
        "my_models/tools.py",
        "my_models/nets/__init__.py",
        "my_models/nets/parts.py",
        "my_models/nets/deep.py",
    }
    assert "dask" not in code.libraries
    assert not [line for line in code.requirements() if "prefect" in line]


def test_function_of_a_class_that_inherits_it(user_model: Any) -> None:
    parts = sys.modules["user_parts"]
    source = source_of(parts.Ages.less_mean, "the function")
    assert (source.module, source.qualname) == ("user_parts", "Ages.less_mean")
    with pytest.raises(ModelFnError, match=r"the function Centered.less_own is bound to a Ages, .* use a function"):
        source_of(parts.Ages().less_own, "the function")
    assert source_of(parts.Ages().less_own).qualname == "Ages.less_own"


def test_a_function_whose_file_is_on_another_machine_is_refused_with_its_file(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "model"}
    exec(compile("def model_fn(features): return features", str(tmp_path / "model.py"), "exec"), namespace)
    with pytest.raises(ModelFnError, match=r"comes from .*model\.py, which does not exist on \S+; .* same path"):
        source_of(namespace["model_fn"])
