"""Encodes events as plain data that Dask carries between processes, and log records as events."""

from __future__ import annotations

import logging
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any, get_args, get_type_hints

from psflow.ps_runtime.errors import ProtocolError, UsageError, did_you_mean
from psflow.ps_runtime.model.summary_files import NAME
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.event_dispatch import makes_events
from psflow.ps_runtime.roles.events import Event, LogMessage, RoleEvent
from psflow.ps_runtime.specs.roles import RoleId
from psflow.ps_runtime.transport.listeners import Address

MAX_WHOLE = 2**63 - 1
MAX_CHARS = 1 << 16
"""Of one text: a path, a name, a log message."""
MAX_METRICS = 1 << 16
"""Numbers of one event."""


def encode_event(event: Event) -> tuple[str, dict[str, Any]]:
    """Return an event as the name of its type and its fields: numbers, texts and dicts of them.

    Dask's ``log_event`` carries it unchanged; the scheduler would add its own key to a bare dict.

    Examples
    --------
    >>> from psflow.ps_runtime.roles.events import FirstStep
    >>> encode_event(FirstStep(role="worker-0", number=2, time=1.5))
    ('FirstStep', {'role': 'worker-0', 'incarnation': 0, 'number': 2, 'time': 1.5})
    """
    return type(event).__name__, asdict(event)


def decode_event(data: object) -> Event:
    """Decode the result of `encode_event`; types and bounds of all fields are checked.

    Raises ProtocolError if `data` is not an event; with all its faults.
    """
    if not isinstance(data, list | tuple) or len(data) != 2 or not isinstance(data[1], Mapping):
        raise _refused(None, f"expected an event, its type and its fields, got {_shown(data)}")
    name, facts = data
    if not isinstance(name, str) or name not in _CLASSES:
        near = did_you_mean(name, _CLASSES) if isinstance(name, str) else ""
        raise _refused(facts.get("role"), f"expected an event of a known type, got {_shown(name)}{near}")
    readers = _READERS[name]
    faults = [f"unknown field {_shown(key)}" for key in facts if key not in readers]
    values = {}
    for key, read in readers.items():
        try:
            values[key] = read(facts[key])
        except KeyError:
            faults.append(f"{key!r} is missing")
        except ValueError as error:
            faults.append(f"{key!r} should be {error}, got {_shown(facts[key])}")
    if faults:
        raise _refused(facts.get("role"), f"in the event {name}, {'; '.join(faults)}")
    event: Event = _CLASSES[name](**values)
    return event


def _refused(role: object, fault: str) -> ProtocolError:
    try:
        sender = _role(role)
    except ValueError:
        sender = "a role"
    return ProtocolError(sender, f"{fault}; install the same version of psflow on all Dask workers and in the flow")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# One reader for each type of a field. It returns the value, or raises ValueError with what it expected.


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_WHOLE:
        raise ValueError("an integer from 0 to 2**63 - 1")
    return value


def _number(value: Any) -> float:
    if type(value) is not float and (type(value) is not int or abs(value) > MAX_WHOLE):
        raise ValueError("a number")
    return float(value)


def _secs(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= MAX_WHOLE:
        raise ValueError("a finite number of seconds from 0")
    return float(value)


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("true or false")
    return value


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_CHARS:
        raise ValueError(f"a text of at most {MAX_CHARS} characters")
    return value


def _metrics(value: Any) -> dict[str, float]:
    expected = f"at most {MAX_METRICS} numbers by name"
    if not isinstance(value, Mapping) or len(value) > MAX_METRICS:
        raise ValueError(expected)
    try:
        return {_text(name): _number(number) for name, number in value.items()}
    except ValueError:
        raise ValueError(expected) from None


def _address(value: Any) -> Address:
    try:
        return Address.from_dict(value if isinstance(value, Mapping) else {})
    except UsageError as error:
        raise ValueError(f"an address ({'; '.join(error.faults)})") from None


def _role(value: Any) -> str:
    return str(RoleId.parse(_text(value)))


def _from_one(value: Any) -> int:
    number = _whole(value)
    if number == 0:
        raise ValueError("an integer from 1 to 2**63 - 1")
    return number


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _summary_file(value: Any) -> str:
    folder, _, name = _text(value).partition("/")
    if folder != "summaries" or not NAME.fullmatch(name):
        raise ValueError("a file below summaries/")
    return f"{folder}/{name}"


def _base64(value: Any) -> str:
    try:
        b64decode(_text(value), validate=True)
    except ValueError:
        raise ValueError(f"at most {MAX_CHARS} characters of base64") from None
    return str(value)


_BY_NAME = {"role": _role, "number": _from_one, "loss": _number, "file": _summary_file, "content_base64": _base64}
_BY_TYPE: dict[object, Callable[[Any], Any]] = {
    int: _whole,
    float: _secs,
    bool: _flag,
    str: _text,
    float | None: _or_none(_secs),
    str | None: _or_none(_text),
    Mapping[str, float]: _metrics,
    Address: _address,
}


def _readers(event: type[RoleEvent]) -> dict[str, Callable[[Any], Any]]:
    """Return the reader of each field of a type of event; a field of a type without a reader is an error at import."""
    types = get_type_hints(event)
    return {each.name: _BY_NAME.get(each.name) or _BY_TYPE[types[each.name]] for each in fields(event)}


_CLASSES: dict[str, Any] = {event.__name__: event for event in get_args(Event)}
_READERS = {name: _readers(event) for name, event in _CLASSES.items()}


LIBRARIES = ("asyncio", "bokeh", "distributed", "tornado")
"""Loggers of the machinery that carries the role and these events; they say nothing about the role."""
MAX_LOG_CHARS = 8000
"""Of one record."""
BURST = 200
PER_SEC = 20.0
"""How many records a role may log on average; the scheduler carries them, and a user could not read more."""


class _RoleLog:
    """The records of one role, up to a limit."""

    def __init__(self, context: RoleContext, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._left, self._filled_at = float(BURST), clock()
        self._num_left_out = 0

    def take(self, record: logging.LogRecord, text: str) -> None:
        now = self._clock()
        self._left = min(float(BURST), self._left + PER_SEC * (now - self._filled_at))
        self._filled_at = now
        if self._left < 1:
            self._num_left_out += 1
            return
        self._left -= 1
        self.report_dropped()
        self._forward(record.created, record.levelno, record.name, text)

    def report_dropped(self) -> None:
        """Report how many records were dropped since the last report, if any."""
        if self._num_left_out:
            text = f"{self._num_left_out} log records were dropped: a role may log {PER_SEC:g} per second"
            self._num_left_out = 0
            self._forward(time.time(), logging.WARNING, __name__, text)

    def _forward(self, created: float, level: int, name: str, text: str) -> None:
        self._context.emit(LogMessage(max(level, 0), str(name), text[:MAX_LOG_CHARS], time=max(created, 0.0)))


class _ProcessLogs(logging.Handler):
    """Finds the role of a log record: a Dask worker with several threads may run several roles.

    A record belongs to the role in whose thread it was made; records of other threads belong to the first role.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))
        self.addFilter(_is_forwarded)
        self._roles: dict[int, _RoleLog] = {}
        self._changes = threading.Lock()
        self._level_before = self._level_set = logging.WARNING

    def add(self, role: _RoleLog) -> None:
        """Start to collect the records of this thread."""
        root = logging.getLogger()
        with self._changes:
            if not self._roles:
                self._level_before = root.level
                self._level_set = min(root.level, logging.INFO)  # otherwise a logger without its own level is silent
                root.setLevel(self._level_set)
                root.addHandler(self)
            self._roles[threading.get_ident()] = role

    def remove(self) -> None:
        """Stop collecting them."""
        with self._changes:
            try:
                self._roles.pop(threading.get_ident()).report_dropped()
            finally:
                if not self._roles:
                    self._leave()

    def root_level(self) -> int:
        """Return the level of the root logger, as it would be without a role."""
        level = logging.getLogger().level
        return self._level_before if self._roles and level == self._level_set else level

    def _leave(self) -> None:
        root = logging.getLogger()
        root.removeHandler(self)
        if root.level == self._level_set:  # otherwise the user has set another one meanwhile, which stays
            root.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        role = self._roles.get(record.thread or 0) or next(iter(list(self._roles.values())), None)
        if role is not None:
            try:
                role.take(record, self.format(record))
            except Exception:  # as every handler: logging must not fail
                self.handleError(record)


def _is_forwarded(record: logging.LogRecord) -> bool:
    """Filter: a thread that logs in a `without_events` block does not wait for the lock of the handler.

    It may hold the lock of sending events, while a thread that holds that of the handler is about to send a record.
    """
    return makes_events() and record.name.partition(".")[0] not in LIBRARIES


_process_logs = _ProcessLogs()


def forwards_records(handler: logging.Handler) -> bool:
    """Return whether a handler of the root logger is ours, which sends records to the owner of the job."""
    return handler is _process_logs


def level_without_forwarding(name: str) -> int:
    """Return the effective level of a logger as the program has set it: a role lowers that of the root logger."""
    logger = logging.getLogger(name)
    while logger.level == logging.NOTSET and logger.parent is not None:
        logger = logger.parent
    return _process_logs.root_level() if logger.parent is None else logger.level


@contextmanager
def forwarded_logs(context: RoleContext) -> Iterator[None]:
    """Send a LogMessage for each record at INFO or above while a role runs in this thread.

    Notes
    -----
    What is printed is not sent: it stays where the process writes it.
    """
    _process_logs.add(_RoleLog(context))
    try:
        yield
    finally:
        _process_logs.remove()
