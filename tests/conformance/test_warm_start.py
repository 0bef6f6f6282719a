"""First values out of a checkpoint: which variables, and from where."""

import inspect

import cloudpickle
import numpy as np
import pytest

import psflow
from psflow import (
    VocabInfo,
    WarmStartSettings,
)
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.columns.features import BucketIds, HashIds, Number, VocabularyIds
from psflow.ps_runtime.columns.labels import Label
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import Column
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.initializers import constant
from psflow.ps_runtime.model.warm_start import warm_rows
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema
from tests.conformance.warm_checkpoints import (
    BIAS,
    OLD_WORDS,
    ROWS,
    STEP,
    TABLE_ROWS,
    first_values,
    model_of,
    planned,
    table_spec,
    vocabulary,
    write,
)

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


def test_a_vocabulary_of_windows_has_the_same_words(tmp_path, parent):
    (tmp_path / "windows.txt").write_bytes("\r\n".join(OLD_WORDS).encode())
    info = VocabInfo(str(tmp_path / "windows.txt"), 4, 0, vocabulary(tmp_path / "old.txt", *OLD_WORDS))
    found = first_values(planned(WarmStartSettings(parent, "rows", {"rows": info}), model_of(SHAPES)), SHAPES)
    np.testing.assert_array_equal(found["rows"], ROWS)


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
    other = VocabularyIds("weights", OLD_CITIES.vocabulary), VocabularyIds("weights", SAME_SIZE.vocabulary)
    path = write(tmp_path / "parent", {"city/weights": ROWS}, schema=schema_of(OLD_CITIES, other[0]))
    model = model_of({"city/weights": (4, 2)}, schema=schema_of(SAME_SIZE, other[1]))
    with pytest.raises(
        UsageError, match=r"may have a row for each id of column 'city' or 'weights', .* map them by var_n"
    ):
        planned(WarmStartSettings(path), model)


def test_what_is_planned_reaches_another_process(parent, tmp_path):
    words = vocabulary(tmp_path / "words.txt", *reversed(OLD_WORDS))
    info = VocabInfo(words, 4, 1, words, backup_initializer=constant(0.5))
    start = planned(WarmStartSettings(parent, "rows", {"rows": info}), model_of({"rows": (5, 2)}))
    there = first_values(cloudpickle.loads(cloudpickle.dumps(start)), {"rows": (5, 2)})["rows"]
    np.testing.assert_array_equal(there, [*ROWS, [0.5, 0.5]])


def test_the_names_are_those_of_the_estimator():
    assert {"WarmStartSettings", "VocabInfo"} <= set(psflow.__all__)
