"""Warm starts that cannot be, and what is said of them before anything starts."""

import numpy as np
import pytest

from psflow import (
    VocabInfo,
    WarmStartSettings,
)
from psflow.ps_runtime.errors import CheckpointError, UsageError
from psflow.ps_runtime.initializers import constant
from tests.conformance.warm_checkpoints import OLD_WORDS, first_values, model_of, planned, table_spec, vocabulary, write


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("",), "ckpt_to_initialize_from must be set: a model_dir or the directory of a checkpoint, got ''"),
        ((None,), "ckpt_to_initialize_from must be set: .* got None"),
        (("d", 3), "vars_to_warm_start should be a regular expression, a list of them, or None; got 3"),
        (("d", [3]), r"vars_to_warm_start should be a regular expression, a list of them, or None; got \[3\]"),
        (("d", ["a", None]), "vars_to_warm_start should be a regular expression"),
        (("d", ".*", {"w": "words.txt"}), r"var_name_to_vocab_info\['w'\] should be a VocabInfo, got 'words.txt'"),
        (("d", ".*", ["w"]), r"var_name_to_vocab_info should be a mapping by variable names, got \['w'\]"),
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
        ({"bias": (2,)}, {"vars_to_warm_start": "rows"}, "'rows' matches no variable of bias"),
        ({"bias": (2,)}, {"vars_to_warm_start": ["bias", "x"]}, "vars_to_warm_start: 'x' matches no variable of bias"),
        (
            {"bias": (2,)},
            {"vars_to_warm_start": "("},
            r"vars_to_warm_start: '\(' is not a regular expression: missing \)",
        ),
        (
            {"bias": (2,)},
            {"var_name_to_prev_var_name": {"bais": "rows"}},
            "var_name_to_prev_var_name has 'bais', which is not a variable to warm-start; "
            "did you mean 'bias'.* are bias",
        ),
        (
            {"bias": (2,), "rows": (4, 2)},
            {"vars_to_warm_start": "bias", "var_name_to_prev_var_name": {"rows": "bias"}},
            "var_name_to_prev_var_name has 'rows', which is not .*; vars_to_warm_start leaves it out; those are bias",
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
        ((4, 2), {"old_vocab_size": 6}, "expected 6 lines or more, got 5"),
        ((4, 2), {"new_vocab": "missing.txt"}, "variable 'rows': vocabulary missing.txt: cannot be read: No such file"),
        ((4, 2), {"new_vocab": "twice.txt"}, "twice.txt: line 3 repeats 'a' of line 1"),
        ((4, 2), {"new_vocab": "latin.txt"}, "latin.txt: byte 0 is not UTF-8; save it as UTF-8 text"),
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


@pytest.mark.parametrize("path", ["nowhere", "parent/checkpoints/step_00000099"])
def test_a_checkpoint_that_is_not_there_is_refused(parent, tmp_path, path):
    with pytest.raises(CheckpointError, match=r"there is no checkpoint yet|no checkpoint of step 99"):
        planned(WarmStartSettings(str(tmp_path / path)), model_of({"rows": (4, 2)}))


def test_a_checkpoint_without_one_of_its_files_is_refused_before_anything_starts(parent, tmp_path):
    next((tmp_path / "parent" / "checkpoints" / "step_00000007").glob("*.safetensors")).unlink()
    with pytest.raises(CheckpointError, match=r"is missing, expected .* bytes; warm-start from another checkpoint"):
        planned(WarmStartSettings(parent), model_of({"rows": (4, 2)}))
