"""First values out of a checkpoint: which variables, from where, what is refused, what it says."""

import inspect
import logging

import cloudpickle
import numpy as np
import pytest

import psflow
from psflow import (
    Adagrad,
    Dataset,
    DNNClassifier,
    DNNRegressor,
    Estimator,
    EstimatorSpec,
    GradientDescent,
    LinearClassifier,
    LinearRegressor,
    RunConfig,
    TrainSpec,
    VocabInfo,
    WarmStartSettings,
    embedding_lookup,
    get_variable,
)
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.shards import save_shard
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.columns.features import BucketIds, HashIds, Number, VocabularyIds
from psflow.ps_runtime.columns.labels import Label
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import Column
from psflow.ps_runtime.errors import CheckpointError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.fork import Fork
from psflow.ps_runtime.estimator.warm_start import plan_warm_start
from psflow.ps_runtime.initializers import constant
from psflow.ps_runtime.model.warm_start import warm_rows, warm_value
from psflow.ps_runtime.protocol.cut import Cut
from psflow.ps_runtime.roles.warm_checkpoint import write_warm_checkpoint
from psflow.ps_runtime.server.input_position import InputPosition
from psflow.ps_runtime.server.shard import ShardArrays
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.layout import piece_views, place
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema
from psflow.ps_runtime.specs.tables import TableSpec
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec
from psflow.ps_runtime.tables.table import Table

SGD = GradientDescent(learning_rate=0.5)
ROWS = np.float32([[1, 2], [3, 4], [5, 6], [7, 8]])
BIAS = np.float32([10, 20])
STEP = 7


def table_spec(name, num_rows, dim=2, seed=5, **asked):
    return TableSpec(name, num_rows, dim, "float32", 0, {"name": "constant", "value": 9.0}, seed, **asked)


def model_of(variables, tables=(), schema=None, frozen=()):
    """Return a model of variables by name, given as arrays or shapes."""
    specs = []
    for name, value in variables.items():
        shape, dtype = (value, "float32") if isinstance(value, tuple) else (value.shape, value.dtype.name)
        specs.append(VariableSpec(name, shape, dtype, None if name in frozen else 0))
    return ModelSpec(tuple(specs), (SGD.config(),), tuple(tables), schema)


def write(path, variables, tables=(), schema=None, num_ps=2):
    """Write a checkpoint of variables and of rows of tables, ``[(spec, {id: row})]``; return its model_dir."""
    model = model_of(variables, [spec for spec, _ in tables], schema)
    store, records = CheckpointStore(str(path)), []
    for layout in place(model, num_ps):
        arrays = ShardArrays.over(np.empty(layout.nbytes, np.uint8), layout, (SGD,))
        for piece, view in zip(layout.pieces, piece_views(layout, arrays.arena), strict=True):
            whole = variables[piece.variable]
            view[...] = whole[piece.row_start : piece.row_stop] if piece.shape else whole
        parts = []
        for spec, rows in tables:
            part = Table(spec, SGD, layout.index, num_ps)
            ids = np.array(sorted(rows), np.int64)
            part.load({"ids": ids, "weights": np.float32([rows[i] for i in ids]).reshape(len(ids), spec.dim)})
            parts.append(part)
        records.append(save_shard(store, STEP, num_ps, layout, arrays.arena, arrays.slots, parts))
    cut = Cut(STEP, {}, InputPosition(InputSpec(None)).to_facts(), 0)
    store.commit(Manifest.of(STEP, model, cut.to_facts(), records))
    return str(path)


@pytest.fixture
def parent(tmp_path):
    return write(tmp_path / "parent", {"rows": ROWS, "bias": BIAS, "scope/frozen": np.float32(3)})


def planned(settings, model, frozen=()):
    trainable = {v.name for v in model.variables} - set(frozen)
    return plan_warm_start(settings, model, trainable)


def first_values(start, variables):
    """Return the first values of variables that would be -1 without a warm start."""
    sources = {source.name: source for source in start.sources}
    with CheckpointReader.pinned(CheckpointStore(start.model_dir), start.step, "test") as reader:
        return {
            name: warm_value(reader, sources[name], np.full(shape, -1, np.float32), 3) if name in sources else None
            for name, shape in variables.items()
        }


def vocabulary(path, *words):
    path.write_text("".join(f"{word}\n" for word in words))
    return str(path)


SHAPES = {"rows": (4, 2), "bias": (2,), "scope/frozen": ()}


@pytest.mark.parametrize(
    ("chosen", "warm"),
    [
        (".*", ["rows", "bias"]),
        ("rows", ["rows"]),
        ("r", ["rows"]),
        ("b|r", ["rows", "bias"]),
        ("bias$", ["bias"]),
        ("bias:0", ["bias"]),
        ("bias[^/]", ["bias"]),
        ([".*"], ["rows", "bias", "scope/frozen"]),
        (["scope/"], ["scope/frozen"]),
        (["bias", "scope"], ["bias", "scope/frozen"]),
        (("bias",), ["bias"]),
        (["bias", "b.*"], ["bias"]),
        ([], []),
        (None, []),
    ],
)
def test_which_variables_are_chosen(parent, chosen, warm):
    start = planned(WarmStartSettings(parent, chosen), model_of(SHAPES), frozen=["scope/frozen"])
    assert [source.name for source in start.sources] == warm
    values = first_values(start, SHAPES)
    for name, expected in (("rows", ROWS), ("bias", BIAS), ("scope/frozen", np.float32(3))):
        if name in warm:
            np.testing.assert_array_equal(values[name], expected)


@pytest.mark.parametrize("suffix", ["", "/checkpoints/step_00000007", "/checkpoints/step_00000007/"])
def test_a_model_dir_or_a_checkpoint_may_be_named(parent, suffix):
    start = planned(WarmStartSettings(parent + suffix), model_of({"rows": (4, 2)}))
    assert (start.model_dir, start.step) == (parent, STEP)


def test_a_variable_may_have_had_another_name(parent):
    settings = WarmStartSettings(parent, var_name_to_prev_var_name={"head/b": "bias", "again": "bias"})
    shapes = {"head/b": (2,), "again": (2,), "rows": (4, 2)}
    values = first_values(planned(settings, model_of(shapes)), shapes)
    np.testing.assert_array_equal(values["head/b"], BIAS)
    np.testing.assert_array_equal(values["again"], BIAS)
    np.testing.assert_array_equal(values["rows"], ROWS)


def test_two_variables_may_change_names(tmp_path):
    path = write(tmp_path / "parent", {"a": BIAS, "b": BIAS + 1})
    settings = WarmStartSettings(path, var_name_to_prev_var_name={"a": "b", "b": "a"})
    values = first_values(planned(settings, model_of({"a": (2,), "b": (2,)})), {"a": (2,), "b": (2,)})
    np.testing.assert_array_equal(values["a"], BIAS + 1)
    np.testing.assert_array_equal(values["b"], BIAS)


OLD_WORDS = ("apple", "banana", "guava", "orange")


@pytest.mark.parametrize(
    ("words", "size", "oov", "old_size", "backup", "expected"),
    [
        (("orange", "guava", "banana", "apple"), 4, 0, -1, None, [[7, 8], [5, 6], [3, 4], [1, 2]]),
        (("orange", "guava", "banana", "apple", "raspberry"), 5, 1, -1, None, [[7, 8], [5, 6], [3, 4], [1, 2], 0, 0]),
        (("orange", "guava"), 2, 1, -1, None, [[7, 8], [5, 6], 0]),
        (("orange", "guava", "banana"), 2, 0, -1, None, [[7, 8], [5, 6]]),
        (("orange", "guava", "banana", "apple"), 4, 0, 2, None, [0, 0, [3, 4], [1, 2]]),
        (("orange", "kiwi"), 2, 2, -1, constant(0.5), [[7, 8], 0.5, 0.5, 0.5]),
        (("kiwi",), 1, 0, -1, None, [0]),
    ],
)
def test_rows_move_with_their_words(parent, tmp_path, words, size, oov, old_size, backup, expected):
    info = VocabInfo(
        vocabulary(tmp_path / "new.txt", *words),
        size,
        oov,
        vocabulary(tmp_path / "old.txt", *OLD_WORDS),
        old_size,
        backup,
    )
    settings = WarmStartSettings(parent, "rows", {"rows": info})
    shapes = {"rows": (size + oov, 2)}
    found = first_values(planned(settings, model_of(shapes)), shapes)["rows"]
    np.testing.assert_array_equal(found, np.float32([np.broadcast_to(row, 2) for row in expected]))


def test_columns_move_with_their_words(parent, tmp_path):
    old = vocabulary(tmp_path / "old.txt", "cat", "dog")
    new = vocabulary(tmp_path / "new.txt", "dog", "fox", "cat")
    infos = {"rows": VocabInfo(new, 3, 0, old, axis=1), "bias": VocabInfo(new, 3, 0, old)}
    shapes = {"rows": (4, 3), "bias": (3,)}
    values = first_values(planned(WarmStartSettings(parent, ".*", infos), model_of(shapes)), shapes)
    np.testing.assert_array_equal(values["rows"], np.stack([ROWS[:, 1], ROWS[:, 0] * 0, ROWS[:, 0]], axis=1))
    np.testing.assert_array_equal(values["bias"], [20, 0, 10])


def test_without_a_regular_expression_only_variables_with_a_vocabulary_are_warm(parent, tmp_path):
    words = vocabulary(tmp_path / "words.txt", *OLD_WORDS)
    settings = WarmStartSettings(parent, None, {"rows": VocabInfo(words, 4, 0, words)})
    start = planned(settings, model_of(SHAPES))
    assert [source.name for source in start.sources] == ["rows"]
    np.testing.assert_array_equal(first_values(start, SHAPES)["rows"], ROWS)


def test_a_vocabulary_and_a_former_name_go_together(parent, tmp_path):
    words = vocabulary(tmp_path / "words.txt", *reversed(OLD_WORDS))
    info = VocabInfo(words, 4, 0, vocabulary(tmp_path / "old.txt", *OLD_WORDS))
    settings = WarmStartSettings(parent, "e", {"embedding": info}, {"embedding": "rows"})
    found = first_values(planned(settings, model_of({"embedding": (4, 2)})), {"embedding": (4, 2)})
    np.testing.assert_array_equal(found["embedding"], ROWS[::-1])


TABLE_ROWS = {1: [1, 1], 2: [2, 2], 5: [5, 5]}


def rows_of(start, name, num_rows):
    source = next(source for source in start.sources if source.name == name)
    with CheckpointReader.pinned(CheckpointStore(start.model_dir), start.step, "test") as reader:
        blocks = [(ids.copy(), rows.copy()) for ids, rows in warm_rows(reader, source, num_rows)]
    return {int(i): row.tolist() for ids, rows in blocks for i, row in zip(ids, rows, strict=True)}


def test_created_rows_of_a_table_are_taken(tmp_path):
    path = write(tmp_path / "parent", {}, [(table_spec("items", 6), TABLE_ROWS)])
    start = planned(WarmStartSettings(path), model_of({}, [table_spec("items", 6, seed=8)]))
    assert rows_of(start, "items", 6) == TABLE_ROWS


def test_rows_of_a_table_move_with_their_words(tmp_path):
    path = write(tmp_path / "parent", {}, [(table_spec("items", 6), TABLE_ROWS)])
    info = VocabInfo(vocabulary(tmp_path / "new.txt", *"fxbeac"), 6, 1, vocabulary(tmp_path / "old.txt", *"abcdef"))
    start = planned(WarmStartSettings(path, ".*", {"items": info}), model_of({}, [table_spec("items", 7)]))
    assert rows_of(start, "items", 7) == {0: [5, 5], 2: [1, 1], 5: [2, 2]}


def test_a_table_may_become_a_variable_and_a_variable_a_table(tmp_path):
    path = write(tmp_path / "parent", {"rows": ROWS}, [(table_spec("items", 6), TABLE_ROWS)])
    start = planned(
        WarmStartSettings(path, var_name_to_prev_var_name={"few": "items", "many": "rows"}),
        model_of({"few": (6, 2)}, [table_spec("many", 4)]),
    )
    few = first_values(start, {"few": (6, 2)})["few"]
    np.testing.assert_array_equal(few[:, 0], [-1, 1, 2, -1, -1, 5])  # the rest begins as it would have
    assert rows_of(start, "many", 4) == {i: row.tolist() for i, row in enumerate(ROWS)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("",), "ckpt_to_initialize_from must be set: a model_dir or the directory of a checkpoint, got ''"),
        ((None,), "ckpt_to_initialize_from must be set: .* got None"),
        (("d", 3), "vars_to_warm_start should be a regular expression, a list of them, or None; got 3"),
        (("d", [3]), r"vars_to_warm_start should be a regular expression, a list of them, or None; got \[3\]"),
        (("d", ["a", None]), "vars_to_warm_start should be a regular expression"),
        (("d", ".*", {"w": "words.txt"}), r"var_name_to_vocab_info\['w'\] should be a VocabInfo, got 'words.txt'"),
        (("d", ".*", ["w"]), r"var_name_to_vocab_info should be a mapping by the names of variables, got \['w'\]"),
        (("d", ".*", None, {"w": 3}), r"var_name_to_prev_var_name\['w'\] should be a name, got 3"),
    ],
)
def test_settings_that_cannot_be_are_refused(arguments, words):
    with pytest.raises(UsageError, match=words):
        WarmStartSettings(*arguments)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"axis": 2}, "VocabInfo.axis should be 0 or 1, got 2"),
        ({"new_vocab_size": 0}, "VocabInfo.new_vocab_size should be an integer of 1 or more, got 0"),
        ({"new_vocab_size": 2.5}, "VocabInfo.new_vocab_size should be an integer of 1 or more, got 2.5"),
        ({"num_oov_buckets": -1}, "VocabInfo.num_oov_buckets should be an integer of 0 or more, got -1"),
        ({"old_vocab_size": 0}, "VocabInfo.old_vocab_size should be an integer of 1 or more, or -1 for all, got 0"),
        ({"old_vocab_size": -2}, "VocabInfo.old_vocab_size should be an integer of 1 or more, or -1 for all, got -2"),
        ({"new_vocab": ["a"]}, r"VocabInfo.new_vocab should be the path of a text file, got \['a'\]"),
        ({"old_vocab": ""}, "VocabInfo.old_vocab should be the path of a text file, got ''"),
        ({"backup_initializer": 0.5}, "VocabInfo.backup_initializer should be an initializer, got 0.5"),
    ],
)
def test_a_vocab_info_that_cannot_be_is_refused(changed, words):
    with pytest.raises(UsageError, match=words):
        VocabInfo(**({"new_vocab": "n", "new_vocab_size": 2, "num_oov_buckets": 0, "old_vocab": "o"} | changed))


def test_the_arguments_have_the_order_and_the_defaults_of_the_estimator():
    defaults = {name: p.default for name, p in inspect.signature(WarmStartSettings).parameters.items()}
    assert defaults == {
        "ckpt_to_initialize_from": inspect.Parameter.empty,
        "vars_to_warm_start": ".*",
        "var_name_to_vocab_info": None,
        "var_name_to_prev_var_name": None,
    }
    defaults = {name: p.default for name, p in inspect.signature(VocabInfo).parameters.items()}
    assert list(defaults) == [
        "new_vocab",
        "new_vocab_size",
        "num_oov_buckets",
        "old_vocab",
        "old_vocab_size",
        "backup_initializer",
        "axis",
    ]
    assert (defaults["old_vocab_size"], defaults["backup_initializer"], defaults["axis"]) == (-1, None, 0)


@pytest.mark.parametrize(
    ("shapes", "settings", "words"),
    [
        (
            {"new": (2,)},
            {},
            "variable 'new': checkpoint .*step_00000007 has no variable 'new'; name it in var_name_to_p",
        ),
        ({"biass": (2,)}, {}, "has no variable 'biass'; did you mean 'bias'"),
        (
            {"rows": (4, 3)},
            {},
            r"variable 'rows' is float32\[4, 3\], but 'rows' of .* is float32\[4, 2\]; give a Vocab",
        ),
        ({"rows": (8,)}, {}, r"variable 'rows' is float32\[8\], but 'rows' of .* is float32\[4, 2\]"),
        ({"bias": np.zeros(2)}, {}, r"variable 'bias' is float64\[2\], but 'bias' of .* is float32\[2\]"),
        ({"bias": (2,)}, {"vars_to_warm_start": "rows"}, "'rows' matches no variable; there are bias"),
        ({"bias": (2,)}, {"vars_to_warm_start": ["bias", "x"]}, "vars_to_warm_start: 'x' matches no variable; there a"),
        ({"bias": (2,)}, {"vars_to_warm_start": "("}, r"vars_to_warm_start: '\(' is no regular expression: missing \)"),
        (
            {"bias": (2,)},
            {"var_name_to_prev_var_name": {"bais": "rows"}},
            "var_name_to_prev_var_name has 'bais', which is no variable to warm-start; did you mean 'bias'.* are bias",
        ),
        (
            {"bias": (2,), "rows": (4, 2)},
            {"vars_to_warm_start": "bias", "var_name_to_prev_var_name": {"rows": "bias"}},
            "var_name_to_prev_var_name has 'rows', which is no .*; vars_to_warm_start leaves it out; these are bias",
        ),
        (
            {"bias": (2,)},
            {"var_name_to_prev_var_name": {"bias": "scope/frozn"}},
            "has no variable 'scope/frozn'; did you mean 'scope/frozen'",
        ),
    ],
)
def test_what_does_not_fit_the_checkpoint_is_refused(parent, shapes, settings, words):
    with pytest.raises(UsageError, match=words):
        planned(WarmStartSettings(parent, **settings), model_of(shapes))


def test_all_that_is_wrong_is_told_together(parent):
    with pytest.raises(UsageError) as caught:
        planned(WarmStartSettings(parent), model_of({"rows": (4, 3), "other": (1,), "bias": (2,)}))
    assert len(caught.value.faults) == 2


@pytest.mark.parametrize(
    ("shape", "info", "words"),
    [
        ((5, 2), {}, r"'rows' is float32\[5, 2\], but its VocabInfo is of 4 along axis 0: new_vocab_size 3 and num"),
        ((4, 3), {}, r"'rows' is float32\[4, 3\], but .* float32\[4, 2\]; a VocabInfo of axis 0 allows another length"),
        ((4,), {"axis": 1}, r"'rows' is float32\[4\], and 'rows' of .* no VocabInfo of axis 1 fits both"),
        ((4, 2), {"new_vocab_size": 9, "num_oov_buckets": 0}, "its VocabInfo is of 9 along axis 0"),
        ((4, 2), {"old_vocab_size": 6}, "expected 6 words or more, a word in each line, got 5"),
        ((4, 2), {"new_vocab": "missing.txt"}, "variable 'rows': vocabulary missing.txt: cannot be read: No such file"),
        ((4, 2), {"new_vocab": "twice.txt"}, "twice.txt: line 3 repeats 'a' of line 1"),
        ((4, 2), {"new_vocab": "latin.txt"}, "latin.txt: byte 0 is no UTF-8; save it as UTF-8 text"),
        ((4, 2), {"new_vocab": "old.txt", "new_vocab_size": 4, "num_oov_buckets": 0, "old_vocab": "shifted.txt"},
         r"line 5 of shifted.txt has no place in 'rows' of .*, which is float32\[4, 2\]; give its own vocabulary"),
    ],
)  # fmt: skip
def test_a_vocabulary_that_does_not_fit_is_refused(parent, tmp_path, monkeypatch, shape, info, words):
    monkeypatch.chdir(tmp_path)
    vocabulary(tmp_path / "old.txt", *"abcde")
    vocabulary(tmp_path / "new.txt", *"abc")
    vocabulary(tmp_path / "twice.txt", *"aba"[:2], "a")
    vocabulary(tmp_path / "shifted.txt", *"xyzwa")
    (tmp_path / "latin.txt").write_bytes("ä\nb\nc\n".encode("latin-1"))
    facts = {"new_vocab": "new.txt", "new_vocab_size": 3, "num_oov_buckets": 1, "old_vocab": "old.txt"} | info
    with pytest.raises(UsageError, match=words):
        planned(WarmStartSettings(parent, "rows", {"rows": VocabInfo(**facts)}), model_of({"rows": shape}))


def test_a_table_gives_new_rows_its_own_initial_values(tmp_path):
    path = write(tmp_path / "parent", {}, [(table_spec("items", 2), {})])
    words = vocabulary(tmp_path / "words.txt", *"ab")
    info = VocabInfo(words, 2, 0, words, backup_initializer=constant(1.0))
    with pytest.raises(
        UsageError, match="table 'items' gives new rows the values of its own initializer; leave backup"
    ):
        planned(WarmStartSettings(path, ".*", {"items": info}), model_of({}, [table_spec("items", 2)]))


def test_columns_of_a_table_have_no_vocabulary(tmp_path):
    path = write(tmp_path / "parent", {}, [(table_spec("items", 2), {})])
    words = vocabulary(tmp_path / "words.txt", *"ab")
    settings = WarmStartSettings(path, ".*", {"items": VocabInfo(words, 2, 0, words, axis=1)})
    with pytest.raises(UsageError, match=r"'items' is table float32\[2, 2\], and .* no VocabInfo of axis 1 fits both"):
        planned(settings, model_of({}, [table_spec("items", 2)]))


def test_a_backup_initializer_of_another_shape_is_refused(parent, tmp_path):
    words = vocabulary(tmp_path / "words.txt", *OLD_WORDS)
    info = VocabInfo(words, 4, 0, words, backup_initializer=lambda shape, dtype, rng: np.zeros(3, dtype))
    start = planned(WarmStartSettings(parent, "rows", {"rows": info}), model_of({"rows": (4, 2)}))
    with pytest.raises(UsageError, match=r"backup_initializer of 'rows' gave float32\[3\], expected float32\[4, 2\]"):
        first_values(start, {"rows": (4, 2)})


def test_a_vocabulary_of_windows_has_the_same_words(tmp_path, parent):
    (tmp_path / "windows.txt").write_bytes("\r\n".join(OLD_WORDS).encode())
    info = VocabInfo(str(tmp_path / "windows.txt"), 4, 0, vocabulary(tmp_path / "old.txt", *OLD_WORDS))
    found = first_values(planned(WarmStartSettings(parent, "rows", {"rows": info}), model_of(SHAPES)), SHAPES)
    np.testing.assert_array_equal(found["rows"], ROWS)


@pytest.mark.parametrize("path", ["nowhere", "parent/checkpoints/step_00000099"])
def test_a_checkpoint_that_is_not_there_is_refused(parent, tmp_path, path):
    with pytest.raises(CheckpointError, match=r"there is no checkpoint yet|no checkpoint of step 99"):
        planned(WarmStartSettings(str(tmp_path / path)), model_of({"rows": (4, 2)}))


def test_a_checkpoint_without_one_of_its_files_is_refused_before_anything_starts(parent, tmp_path):
    next((tmp_path / "parent" / "checkpoints" / "step_00000007").glob("*.safetensors")).unlink()
    with pytest.raises(CheckpointError, match=r"is missing, expected .* bytes; warm-start from another checkpoint"):
        planned(WarmStartSettings(parent), model_of({"rows": (4, 2)}))


# What was learned from the training input


def schema_of(*features, classes=None, columns=()):
    words = [Column(RawColumn(feature.column, "string"), "string") for feature in features]
    label = None if classes is None else Label(Column(RawColumn("kind", "string"), "string"), "int64", classes)
    arrays = tuple(ArraySpec(feature.name, "float32", ()) for feature in features)
    if columns:
        return InputSchema((ArraySpec("features", "float32", (len(columns),)),), columns=columns)
    return InputSchema(arrays, preprocessing=Preprocessing(tuple(words), features, label))


OLD_CITIES = VocabularyIds("city", ("bonn", "kiel", "ulm"))
NEW_CITIES = VocabularyIds("city", ("ulm", "jena", "bonn", "kiel"))
MOVED = [[5, 6], -1, [1, 2], [3, 4], [7, 8]]


@pytest.mark.parametrize(
    "name",
    ["linear/linear_model/city/weights", "dnn/input_layer/city_embedding/embedding_weights", "city", "city_embedding"],
)
def test_rows_of_a_learned_vocabulary_move_without_being_told(tmp_path, name):
    path = write(tmp_path / "parent", {name: ROWS}, schema=schema_of(OLD_CITIES))
    model = model_of({name: (5, 2)}, schema=schema_of(NEW_CITIES))
    found = first_values(planned(WarmStartSettings(path), model), {name: (5, 2)})[name]
    np.testing.assert_array_equal(found, np.float32([np.broadcast_to(row, 2) for row in MOVED]))


def test_a_learned_vocabulary_that_only_changes_its_order_moves_rows_too(tmp_path):
    path = write(tmp_path / "parent", {"city": ROWS}, schema=schema_of(OLD_CITIES))
    model = model_of({"city": (4, 2)}, schema=schema_of(VocabularyIds("city", ("ulm", "kiel", "bonn"))))
    found = first_values(planned(WarmStartSettings(path), model), {"city": (4, 2)})["city"]
    np.testing.assert_array_equal(found, ROWS[[2, 1, 0, 3]])


@pytest.mark.parametrize("num_rows", [3, 6])
def test_a_variable_with_more_or_fewer_rows_than_ids_is_not_that_of_the_vocabulary(tmp_path, num_rows):
    path = write(tmp_path / "parent", {"city": ROWS}, schema=schema_of(OLD_CITIES))
    model = model_of({"city": (num_rows, 2)}, schema=schema_of(NEW_CITIES))
    with pytest.raises(UsageError, match=rf"variable 'city' is float32\[{num_rows}, 2\], but 'city' of .*\[4, 2\]"):
        planned(WarmStartSettings(path), model)


def test_rows_of_a_table_move_with_a_learned_vocabulary(tmp_path):
    path = write(tmp_path / "parent", {}, [(table_spec("city", 4), {0: [1, 1], 2: [3, 3]})], schema_of(OLD_CITIES))
    start = planned(WarmStartSettings(path), model_of({}, [table_spec("city", 5)], schema_of(NEW_CITIES)))
    assert rows_of(start, "city", 5) == {0: [3, 3], 2: [1, 1]}


def test_the_vocabulary_that_is_told_wins(tmp_path):
    path = write(tmp_path / "parent", {"city": ROWS}, schema=schema_of(OLD_CITIES))
    same = vocabulary(tmp_path / "same.txt", *"abcde")
    info = VocabInfo(same, 5, 0, vocabulary(tmp_path / "old.txt", *"abcd"))
    model = model_of({"city": (5, 2)}, schema=schema_of(NEW_CITIES))
    found = first_values(planned(WarmStartSettings(path, ".*", {"city": info}), model), {"city": (5, 2)})["city"]
    np.testing.assert_array_equal(found, [*ROWS, [0, 0]])


SAME_SIZE = VocabularyIds("city", ("ulm", "kiel", "bonn"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            schema_of(OLD_CITIES),
            schema_of(SAME_SIZE),
            r"the vocabulary of column 'city' \(4 ids here, 4 there\) differs",
        ),
        (schema_of(OLD_CITIES), schema_of(HashIds("city", 3)), "the vocabulary of column 'city'"),
        (
            schema_of(OLD_CITIES),
            schema_of(VocabularyIds("town", ("bonn", "kiel", "ulm"))),
            "feature 'town' is not in the",
        ),
        (
            schema_of(OLD_CITIES, classes=("a", "b")),
            schema_of(OLD_CITIES, classes=("b", "a")),
            "the classes of the label",
        ),
        (schema_of(columns=("a", "b")), schema_of(columns=("a", "c")), "column 2 is 'c' here, 'b' in the checkpoint"),
        (schema_of(columns=("a", "b")), schema_of(columns=("b", "a")), "column 1 is 'b' here, 'a' in the checkpoint"),
    ],
)
def test_weights_that_would_be_those_of_something_else_are_refused_unless_asked_for(tmp_path, old, new, words):
    path = write(tmp_path / "parent", {"dnn/hiddenlayer_0/kernel": ROWS}, schema=old)
    model = model_of({"dnn/hiddenlayer_0/kernel": (4, 2)}, schema=new)
    with pytest.raises(UsageError, match=rf"(?s){words}.*give vars_to_warm_start as a list of regular expressions"):
        planned(WarmStartSettings(path), model)
    assert len(planned(WarmStartSettings(path, [".*"]), model).sources) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (schema_of(OLD_CITIES), schema_of(OLD_CITIES)),
        (schema_of(Number("age", 1.0)), schema_of(Number("age", 2.0))),
        (schema_of(BucketIds("age", (1.0, 2.0))), schema_of(BucketIds("age", (1.5, 2.5)))),
        (schema_of(OLD_CITIES, classes=("a", "b")), schema_of(OLD_CITIES, classes=("a", "b"))),
        (schema_of(columns=("a", "b")), schema_of(columns=("a", "b"))),
        (None, schema_of(OLD_CITIES)),
        (schema_of(OLD_CITIES), None),
    ],
)
def test_what_means_the_same_is_taken(tmp_path, old, new):
    path = write(tmp_path / "parent", {"kernel": ROWS}, schema=old)
    start = planned(WarmStartSettings(path), model_of({"kernel": (4, 2)}, schema=new))
    np.testing.assert_array_equal(first_values(start, {"kernel": (4, 2)})["kernel"], ROWS)


def test_a_name_that_may_be_of_two_columns_is_refused(tmp_path):
    other = VocabularyIds("weights", OLD_CITIES.words), VocabularyIds("weights", SAME_SIZE.words)
    path = write(tmp_path / "parent", {"city/weights": ROWS}, schema=schema_of(OLD_CITIES, other[0]))
    model = model_of({"city/weights": (4, 2)}, schema=schema_of(SAME_SIZE, other[1]))
    with pytest.raises(
        UsageError, match=r"may have a row for each id of column 'city' or 'weights', .* say which is whi"
    ):
        planned(WarmStartSettings(path), model)


# Training


def records():
    return Dataset({"x": np.float32([[1, 0], [0, 1]]), "item": np.array([0, 2])}, np.float32([1, 2])).batch(2)


def small_model(features, labels, mode):
    """Nothing moves: its gradients are zero."""
    w = get_variable("w", (2,), initializer=constant(-1.0))
    get_variable("moving_mean", (), initializer=constant(-1.0), trainable=False)
    items = embedding_lookup("items", features["item"], 4, 1, initializer="constant", scale=9.0)
    loss = float(np.mean(features["x"] @ w) + np.mean(items))
    zeros = {"w": np.zeros(2, np.float32)}
    op = Adagrad(learning_rate=0.5, initial_accumulator_value=0.25).apply_gradients(zeros)
    return EstimatorSpec(mode, loss=loss, train_op=op)


@pytest.fixture
def small_parent(tmp_path):
    spec = TableSpec("items", 4, 1, "float32", 0, {"name": "constant", "value": 9.0}, 5)
    values = {"w": BIAS, "moving_mean": np.float32(3)}
    return write(tmp_path / "parent", values, [(spec, {2: [0.5], 3: [0.25]})])


def test_training_begins_with_the_values_and_nothing_else_of_the_checkpoint(tmp_path, small_parent, caplog):
    caplog.set_level(logging.INFO)
    estimator = Estimator(small_model, str(tmp_path / "child"), warm_start_from=small_parent)
    estimator.train(records, steps=1)
    assert estimator.get_variable_value("w").tolist() == [10, 20]
    assert estimator.get_variable_value("moving_mean") == -1
    assert estimator.get_variable_value("items").tolist() == [[9.0], [9.0], [0.5], [0.25]]
    store = CheckpointStore(estimator.model_dir)
    assert store.steps() == [0, 1]
    with CheckpointReader.pinned(store, 1, "test") as reader:
        assert reader.rows("w", "accumulator", 0, 2).tolist() == [0.25, 0.25]
    [line] = [r.getMessage() for r in caplog.records if "warm start from" in r.getMessage()]
    assert line == (
        f"warm start from {small_parent}/checkpoints/step_00000007: items, w; as their initializers say: moving_mean"
    )


def test_a_model_dir_with_a_checkpoint_is_gone_on_with(tmp_path, small_parent, caplog):
    directory = str(tmp_path / "child")
    Estimator(small_model, directory).train(records, steps=1)
    caplog.set_level(logging.INFO)
    estimator = Estimator(small_model, directory, warm_start_from=small_parent)
    estimator.train(records, steps=1)
    assert estimator.get_variable_value("w").tolist() == [-1, -1]
    [line] = [r.getMessage() for r in caplog.records if "warm-start" in r.getMessage()]
    assert line == (
        f"{directory} has a checkpoint of step 1: training goes on with it, and does not warm-start from {small_parent}"
    )


def test_a_warm_started_job_that_is_trained_on_is_not_started_again(tmp_path, small_parent):
    estimator = Estimator(small_model, str(tmp_path / "child"), warm_start_from=WarmStartSettings(small_parent, "w"))
    estimator.train(records, steps=1)
    estimator.train(records, steps=1)
    assert CheckpointStore(estimator.model_dir).latest() == 2
    assert estimator.get_variable_value("w").tolist() == [10, 20]


def test_a_refused_warm_start_leaves_nothing_behind(tmp_path, small_parent):
    estimator = Estimator(small_model, str(tmp_path / "child"), warm_start_from=WarmStartSettings(small_parent, "v"))
    with pytest.raises(UsageError, match="'v' matches no variable; there are items, w"):
        estimator.train(records, steps=1)
    assert not (tmp_path / "child").exists()


def test_a_fork_begins_with_the_checkpoint_of_its_parent(tmp_path, small_parent, caplog):
    config = RunConfig(tf_random_seed=1)
    begun = Estimator(small_model, str(tmp_path / "begun"), config).train(records, steps=1)
    caplog.set_level(logging.INFO)
    child = Estimator(small_model, str(tmp_path / "child"), config, warm_start_from=small_parent)
    fork = Fork(begun.model_dir, child.model_dir)
    assert Attempt(child, TrainSpec(records, 2), None, fork=fork).warm_start is None
    assert (
        f"is a fork, which has a checkpoint: training goes on with it, and does not warm-start from {small_parent}"
        in (caplog.text)
    )


def test_what_is_planned_reaches_another_process(parent, tmp_path):
    words = vocabulary(tmp_path / "words.txt", *reversed(OLD_WORDS))
    info = VocabInfo(words, 4, 1, words, backup_initializer=constant(0.5))
    start = planned(WarmStartSettings(parent, "rows", {"rows": info}), model_of({"rows": (5, 2)}))
    there = first_values(cloudpickle.loads(cloudpickle.dumps(start)), {"rows": (5, 2)})["rows"]
    np.testing.assert_array_equal(there, [*ROWS, [0.5, 0.5]])


@pytest.mark.parametrize("num_ps", [1, 3])
def test_the_first_checkpoint_is_of_any_number_of_ps(tmp_path, small_parent, num_ps):
    estimator = Estimator(small_model, str(tmp_path / "child"), warm_start_from=small_parent)
    with Attempt(estimator, TrainSpec(records, 1), None, num_ps=num_ps) as attempt:
        job = attempt.job()
        cold = {"w": np.float32([-1, -1]), "moving_mean": np.float32(-1)}
        assert write_warm_checkpoint(job, job.warm_start, cold, CheckpointStore(job.model_dir)) == 0
    assert len(CheckpointStore(estimator.model_dir).manifest(0).shards) == num_ps
    assert estimator.get_variable_value("w").tolist() == [10, 20]
    assert estimator.get_table_rows("items", [3, 2, 0]).tolist() == [[0.25], [0.5], [9.0]]


@pytest.mark.parametrize("given", [3, ["runs/a"], {"from": "runs/a"}])
def test_an_estimator_refuses_what_is_neither_path_nor_settings(tmp_path, given):
    with pytest.raises(UsageError, match="warm_start_from should be a path or WarmStartSettings, got"):
        Estimator(small_model, str(tmp_path), warm_start_from=given)


def numbers():
    return Dataset({"x": np.float32([[1, 0], [0, 1]])}, np.array([0, 1])).batch(2)


@pytest.mark.parametrize("kind", [DNNClassifier, DNNRegressor, LinearClassifier, LinearRegressor])
def test_canned_models_take_it(tmp_path, kind):
    arguments = {"hidden_units": [3]} if "hidden_units" in inspect.signature(kind).parameters else {}
    optimizer = GradientDescent(learning_rate=0.1)
    parent = kind(**arguments, optimizer=optimizer, model_dir=str(tmp_path / "parent")).train(numbers, steps=1)
    still = GradientDescent(learning_rate=1e-30)
    child = kind(**arguments, optimizer=still, model_dir=str(tmp_path / "child"), warm_start_from=parent.model_dir)
    child.train(numbers, steps=1)
    for name in child.get_variable_names():
        if name != "global_step":
            expected = parent.get_variable_value(name)
            np.testing.assert_allclose(child.get_variable_value(name), expected, atol=1e-20)


def test_the_names_are_those_of_the_estimator():
    assert {"WarmStartSettings", "VocabInfo"} <= set(psflow.__all__)
