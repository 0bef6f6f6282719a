import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psflow.ps_runtime.config.files import COMMAND_LINE, MAX_FILE_BYTES, Origin, inline, load
from psflow.ps_runtime.errors import ConfigError


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str) -> str:
        Path(name).write_text(text)
        return name

    return write


def test_every_key_knows_its_file_and_line(write):
    write("a.yaml", "seed: 3\ntrain:\n  max_steps: 10\n  # why\n  deep: {key: 1}\n")

    settings = load(["a.yaml"])

    assert settings.values == {"seed": 3, "train": {"max_steps": 10, "deep": {"key": 1}}}
    assert settings.origins == {
        "seed": Origin("a.yaml", 1),
        "train": Origin("a.yaml", 2),
        "train.max_steps": Origin("a.yaml", 3),
        "train.deep": Origin("a.yaml", 5),
        "train.deep.key": Origin("a.yaml", 5),
    }


def test_later_files_win_key_by_key_and_the_command_line_wins_over_files(write):
    write("a.yaml", "seed: 3\ntrain: {max_steps: 10, log: 1}\n")
    write("b.yaml", "\ntrain: {max_steps: 20}\n")

    settings = load(["a.yaml", "b.yaml"], ["train.log=5", "new.key=[64, 32]"])

    assert settings.values == {"seed": 3, "train": {"max_steps": 20, "log": 5}, "new": {"key": [64, 32]}}
    assert settings.origins["seed"] == Origin("a.yaml", 1)
    assert settings.origins["train.max_steps"] == Origin("b.yaml", 2)
    assert settings.origins["train.log"] == settings.origins["new.key"] == COMMAND_LINE


def test_an_override_replaces_a_mapping(write):
    write("a.yaml", "model: {name: x, params: {a: 1}}\nseed: 3\n")

    settings = load(["a.yaml"], ["model.params={b: 2}"])

    assert settings.values == {"model": {"name": "x", "params": {"b": 2}}, "seed": 3}
    assert "model.params.a" not in settings.origins
    assert settings.origins["model.params.b"] == COMMAND_LINE


def test_a_mapping_that_is_replaced_takes_its_origins_along(write):
    write("a.yaml", "train: {max_steps: 10}\n")

    settings = load(["a.yaml"], ["train=7"])

    assert settings.values == {"train": 7}
    assert settings.origins == {"train": COMMAND_LINE}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("1.", 1.0),
        (".inf", float("inf")),
        ("true", True),
        ("no", "no"),
        ("on", "on"),
        ("null", None),
        ("", None),
        ("~", None),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("'3'", "3"),
        ("models:/x@best", "models:/x@best"),
        ("a=b", "a=b"),
        ("{a: [1, b]}", {"a": [1, "b"]}),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any):
    read = load([], [f"key={text}"]).values["key"]

    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: 1\nb: 2\na: 3\n", r"^bad\.yaml:3: a is set twice, first in line 1$"),
        ("t:\n  a: 1\n  a: 3\n", r"^bad\.yaml:3: t\.a is set twice, first in line 2$"),
        ("t: [{a: 1, a: 2}]\n", r"^bad\.yaml:1: t\.0\.a is set twice"),
        ("- 1\n", r"^bad\.yaml:1: expected a mapping of keys to values, got list$"),
        ("a\n", r"^bad\.yaml:1: expected a mapping of keys to values, got str$"),
        ("a: 1\n1: 2\n", r"^bad\.yaml:2: expected a string as key, got 1$"),
        ("a: 1\n[b]: 2\n", r"^bad\.yaml:2: expected a string as key, got \['b'\]$"),
        ("a: &x 1\nb: *x\n", r"^bad\.yaml:2: aliases such as \*x are not supported; write the value out$"),
        ("a: &x\n  b: *x\n", r"^bad\.yaml:2: aliases such as \*x"),
        ("a: 1\nb: [1\n", r"^bad\.yaml:3: expected ',' or ']'"),
        ("a: 1\n---\nb: 2\n", r"^bad\.yaml:2: but found another document$"),
        ("a: !!python/name:os.system x\n", r"^bad\.yaml:1: could not determine a constructor"),
        ("a: \x07\n", r"^bad\.yaml: unacceptable character"),
        ("a: " + "9" * 5000, r"^bad\.yaml: Exceeds the limit"),
        (
            "a: 1\nb: " + "[" * 500,
            r"^bad\.yaml:2: lists or mappings are nested too deeply to be read; write",
        ),
        ("#" * (MAX_FILE_BYTES + 1), r"^bad\.yaml: expected a configuration of at most 1048576 bytes"),
    ],
)
def test_a_bad_file_is_an_error_that_says_where(write, text, fault):
    with pytest.raises(ConfigError, match=fault):
        load([write("bad.yaml", text)])


def test_a_file_that_cannot_be_read_is_an_error(write, tmp_path):
    with pytest.raises(ConfigError, match=r"^none\.yaml: cannot be read: No such file or directory$"):
        load(["none.yaml"])
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    with pytest.raises(ConfigError, match=r"^latin\.yaml: expected UTF-8 text, got the byte 0xe9$"):
        load(["latin.yaml"])


def test_an_empty_file_changes_nothing(write):
    assert load([write("empty.yaml", "# nothing\n")]).values == {}


@pytest.mark.parametrize("text", ["seed", "=3", "train..max=1", "a-b=1", ".a=1"])
def test_a_malformed_override_is_an_error(text):
    with pytest.raises(ConfigError, match=r"^command line: expected key=value with a dotted key, got '"):
        load([], [text])


def test_a_malformed_value_is_an_error_that_shows_it():
    with pytest.raises(ConfigError, match=r"^command line, 'a=\[1':1: expected ',' or ']'"):
        load([], ["a=[1"])


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(ConfigError):
        assert load([], [f"key={text}"]).values.keys() == {"key"}


@pytest.mark.parametrize(
    "word", ["age", "_1", "x0", "e3", "y", "no", "On", "null", "true", "inf", "nan", "0x1", "a-b", ""]
)
def test_a_string_has_quotes_alone_where_it_has_them_in_a_list(word: str) -> None:
    assert f"[{inline(word)}, {inline(word)}]" == inline([word, word])
    assert load([], [f"a=[{inline(word)}]"]).values == {"a": [word]}
