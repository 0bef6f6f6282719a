"""Reads YAML configuration files that keep the line of each key, merges them, and applies overrides."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from psflow.ps_runtime.errors import ConfigError


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of everything that is not a mapping, and of empty mappings.

    Examples
    --------
    >>> dict(flat({"train": {"max_steps": 3}, "params": {}, "units": [64]}))
    {'train.max_steps': 3, 'params': {}, 'units': [64]}
    """
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


MAX_FILE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a key: a file and line, from 1, or the command line.

    Examples
    --------
    >>> str(Origin("conf/digits.yaml", 12))
    'conf/digits.yaml:12'
    """

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


COMMAND_LINE = Origin("command line")

IsText = Callable[[str, str], bool]
"""Receives the key and the value of an override."""


def _is_never_text(key: str, value: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Settings:
    """Nested plain values, with the origin of each key by its dotted name, such as ``train.max_steps``."""

    values: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def merged(self, later: Settings) -> Settings:
        """Return both as one: mappings merge key by key, for everything else the later one wins."""
        origins = {key: origin for key, origin in self.origins.items() if not _is_replaced(key, later.values)}
        return Settings(_merge(self.values, later.values), origins | dict(later.origins))

    def overridden(
        self, overrides: Sequence[str], by: Origin | None = None, is_text: IsText = _is_never_text
    ) -> Settings:
        """Return the settings with each ``key=value`` applied, with the origin `by` or the command line.

        If `is_text` holds for key and value, the value is a plain string, else YAML.

        Raises ConfigError if one of them is malformed.
        """
        settings = self
        for text in overrides:
            key, value = _read_override(text, by or COMMAND_LINE, is_text)
            settings = settings.merged(_at(key, None)).merged(_at(key, value, by or COMMAND_LINE))
        return settings

    def origin(self, key: str) -> Origin | None:
        """Return the origin of the dotted `key`, None if it was not set.

        Examples
        --------
        >>> settings = load([], ["train={consistency: sync}"])
        >>> str(settings.origin("train.consistency.name")), settings.origin("train.max_steps")
        ('command line', None)
        """
        value: Any = self.values
        parts = key.split(".")
        for length, name in enumerate(parts, 1):
            if not isinstance(value, Mapping):  # a value that was set as a whole covers the keys below it
                return self.origins.get(".".join(parts[: length - 1]))
            if name not in value:
                return None
            value = value[name]
        return self.origins.get(key)


def load(paths: Sequence[str | Path], overrides: Sequence[str] = (), is_text: IsText = _is_never_text) -> Settings:
    """Read configuration files and overrides; later ones win, mappings of files key by key.

    Raises
    ------
    ConfigError
        If a file is missing, larger than 1 MB, not YAML or not a mapping, has a key twice, a key that is not a string,
        or an alias; or if an override is malformed. It names file and line.
    """
    settings = Settings()
    for path in paths:
        settings = settings.merged(_read_file(Path(path)))
    return settings.overridden(overrides, is_text=is_text)


def parse(text: str, source: str) -> Settings:
    """Read the text of a configuration; `source` names it in faults and origins. ConfigError as from `load`."""
    return _YamlReader(source).read(text)


def dump(values: Mapping[str, Any]) -> str:
    """Return plain values as YAML that `parse`, and any YAML 1.1 or 1.2 reader, reads back unchanged.

    Examples
    --------
    >>> print(dump({"train": {"max_steps": 3}, "name": "1e-3", "rate": 1e-3, "no": None}), end="")
    train:
      max_steps: 3
    name: '1e-3'
    rate: 0.001
    'no': null
    """
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=120)


def inline(value: Any) -> str:
    """Return a plain value as YAML on one line, which reads back like that of `dump`.

    Examples
    --------
    >>> print(inline({"impute": "median", "names": ["no", "a b"]}))
    {impute: median, names: ['no', a b]}
    """
    if isinstance(value, str) and _is_plain(value):
        return value  # faster than YAML for many names of columns
    text = _on_one_line(value, None)
    return _on_one_line(value, '"') if "\n" in text else text  # double quotes escape the line ends of a string


def _is_plain(text: str) -> bool:
    """Return whether YAML 1.1 and 1.2 read a text without quotes as a string."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) is None:
        return False
    return not any(pattern.match(text) for _, pattern in _Dumper.yaml_implicit_resolvers.get(text[0], []))


def _on_one_line(value: Any, style: str | None) -> str:
    text: str = yaml.dump(
        [value],
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=True,
        default_style=style,
        allow_unicode=True,
        width=math.inf,
    )
    return text.removesuffix("\n")[1:-1]


def is_override(text: str) -> bool:
    """Return whether an argument is an override; else it names a file.

    Examples
    --------
    >>> is_override("train.max_steps=100"), is_override("conf/a=b.yaml")
    (True, False)
    """
    return re.match(r"[^/\\=]*=", text) is not None


def _read_file(path: Path) -> Settings:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise ConfigError((f"{path}: cannot be read: {error.strerror}",)) from None
    except UnicodeDecodeError as error:
        raise ConfigError((f"{path}: expected UTF-8 text, got the byte {data[error.start]:#04x}",)) from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError((f"{path}: expected a configuration of at most {MAX_FILE_BYTES} bytes, this one is larger",))
    return _YamlReader(str(path)).read(text)


def _read_override(text: str, by: Origin, is_text: IsText) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in key.split(".")):
        raise ConfigError((f"{by}: expected key=value with a dotted key, got {text!r}",))
    return key, value if is_text(key, value) else _YamlReader(f"{by}, {text!r}").read_value(value)


def _at(key: str, value: Any, origin: Origin = COMMAND_LINE) -> Settings:
    """Return settings in which the dotted `key` has `value`."""
    values = value
    for name in reversed(key.split(".")):
        values = {name: values}
    return Settings(values, dict.fromkeys(_keys(values), origin))


class _YamlLoader(yaml.SafeLoader):
    """Plain data only, with the scalars of YAML 1.2 and without aliases, which can grow without bounds."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own API

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]  # missing in the stubs
            raise yaml.MarkedYAMLError(
                problem=f"aliases such as *{event.anchor} are not supported; write the value out",
                problem_mark=event.start_mark,
            )
        return super().compose_node(parent, index)

    def construct_int(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node)
        return int(text, 16 if text.startswith("0x") else 8 if text.startswith("0o") else 10)


for tag, pattern, first in (
    ("null", r"null|Null|NULL|~|", ["n", "N", "~", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _YamlLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern})$"), first)
_YamlLoader.add_constructor("tag:yaml.org,2002:int", _YamlLoader.construct_int)


class _Dumper(yaml.SafeDumper):
    """Quotes strings that YAML 1.1 or 1.2 would read as another type; writes no aliases."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own API
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
            *_YamlLoader.yaml_implicit_resolvers.get(first, []),
        ]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_YamlLoader.yaml_implicit_resolvers}
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _YamlReader:
    """Turns YAML text into values, and records the line of every key."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._origins: dict[str, Origin] = {}
        self._faults: list[str] = []

    def read(self, text: str) -> Settings:
        """Read a document that is a mapping; an empty one is an empty mapping."""
        values = self.read_value(text)
        if values is None:
            values = {}
        if not isinstance(values, dict):
            self._fail(f"{self._source}:1: expected a mapping of keys to values, got {type(values).__name__}")
        return Settings(values, self._origins)

    def read_value(self, text: str) -> Any:
        """Read a document with any value."""
        loader: Any = None
        try:
            loader = _YamlLoader(text)
            node = loader.get_single_node()
            value = None if node is None else self._value(loader, node, "")
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            self._fail(f"{self._source}{f':{mark.line + 1}' if mark else ''}: {error.problem or error.context}")
        except yaml.YAMLError as error:
            self._fail(f"{self._source}: {' '.join(str(error).split())}")
        except RecursionError:
            what = "lists or mappings are nested too deeply to be read; write fewer levels"
            self._fail(f"{self._source}:{loader.line + 1}: {what}")
        except ValueError as error:
            self._fail(f"{self._source}: {error}")
        if self._faults:
            raise ConfigError(tuple(self._faults))
        return value

    def _value(self, loader: _YamlLoader, node: yaml.Node, prefix: str) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(loader, node, prefix)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, item, f"{prefix}{i}.") for i, item in enumerate(node.value)]
        return loader.construct_object(node, deep=True)

    def _mapping(self, loader: _YamlLoader, node: yaml.MappingNode, prefix: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._value(loader, key_node, prefix)
            if not isinstance(key, str):
                self._faults.append(f"{self._source}:{line}: expected a string as key, got {key!r}")
                continue
            if key in values:
                first = self._origins[prefix + key].line
                self._faults.append(f"{self._source}:{line}: {prefix}{key} is set twice, first in line {first}")
            self._origins[prefix + key] = Origin(self._source, line)
            values[key] = self._value(loader, value_node, f"{prefix}{key}.")
        return values

    def _fail(self, fault: str) -> NoReturn:
        raise ConfigError((*self._faults, fault)) from None


def _merge(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(earlier)
    for key, value in later.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _is_replaced(key: str, later: Mapping[str, Any]) -> bool:
    """Return whether `later` replaces the value of the dotted `key`, or of a key above it."""
    value: Any = later
    for name in key.split("."):
        if not isinstance(value, Mapping):
            return True
        if name not in value:
            return False
        value = value[name]
    return True


def _keys(values: Any, prefix: str = "") -> list[str]:
    if not isinstance(values, Mapping):
        return []
    return [dotted for key, inner in values.items() for dotted in (prefix + key, *_keys(inner, f"{prefix}{key}."))]
