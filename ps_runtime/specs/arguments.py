"""Collects the faults of the arguments of one call, and raises them as one error of the right kind."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from psflow.ps_runtime.errors import ArgumentTypeError, UsageError
from psflow.ps_runtime.numeric import is_number, whole_number

NAME = r"^[A-Za-z0-9_][\w.-]{0,99}$"
"""Pattern of names of directories and metrics: it cannot leave a directory, and MLflow accepts it."""
NAME_IN_WORDS = "letters, digits, '_', '-' and '.', at most 100, the first one a letter, a digit or '_'"

GIVE_A_FUNCTION = "give a function that returns it, such as lambda: dataset"
"""Advice for an input in place of an input_fn."""
MAX_SHOWN = 80
"""Length limit of quoted values."""


class ArgumentFaults:
    """Collects the faults of the arguments of one call."""

    def __init__(
        self,
        where: str = "",
        error: type[UsageError] = UsageError,
        type_error: type[ArgumentTypeError] = ArgumentTypeError,
    ) -> None:
        self._where = where
        self._error = error
        self._type_error = type_error
        self._faults: list[str] = []
        self._has_wrong_type = False

    def add(self, *faults: str) -> None:
        """Record faults of values."""
        self._faults += faults

    def add_type(self, name: str, expected: str, given: Any, advice: str = "") -> None:
        """Record that the argument `name` has the wrong type; `advice` is the remedy."""
        self._has_wrong_type = True
        what = f"{self._where}{name} should be {expected}, got {_shown(given)}"
        self._faults.append(f"{what}; {advice}" if advice else what)

    def items(self, name: str, given: Any, kind: type, expected: str, *, may_be_empty: bool = True) -> tuple[Any, ...]:
        """Return an argument that holds items of one type as a tuple, empty for None."""
        if given is None:
            return ()
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            self.add_type(name, f"a sequence of {expected}, or None", given)
            return ()
        items = tuple(given)
        for place, item in enumerate(items):
            if not isinstance(item, kind):
                self.add_type(f"{name}[{place}]", with_article(expected), item)
        if not items and not may_be_empty:
            self.add(f"{self._where}{name} is empty, expected at least {with_article(expected)}")
        return items

    def callable(self, name: str, given: Any) -> None:
        """Record a fault unless `given` is callable."""
        if not callable(given):
            self.add_type(name, "callable", given)

    def input_fn(self, name: str, given: Any) -> None:
        """Record a fault unless `given` is a function, for example if it is the input itself."""
        if not callable(given):
            is_data = given is not None and not isinstance(given, str | int | float)
            self.add_type(name, "callable", given, GIVE_A_FUNCTION if is_data else "")

    def text(self, name: str, given: Any) -> None:
        """Record a fault unless `given` is a str or None."""
        if given is not None and not isinstance(given, str):
            self.add_type(name, "a str or None", given)

    def name(self, name: str, given: Any) -> None:
        """Record a fault unless `given` is None, empty, or a str that may name a directory; spaces are allowed."""
        self.text(name, given)
        if isinstance(given, str) and given and (given[0] == " " or not re.fullmatch(NAME, given.replace(" ", "_"))):
            self.add(f"{self._where}{name} names a directory, expected {NAME_IN_WORDS}, got {given!r}")

    def flag(self, name: str, given: Any) -> None:
        """Record a fault unless `given` is True or False."""
        if not isinstance(given, bool):
            self.add_type(name, "True or False", given)

    def steps(self, name: str, given: Any) -> int | None:
        """Return a number of steps, greater than 0, or None; ``1e4`` is allowed, 5.5 is not."""
        if given is None:
            return None
        number = whole_number(given)
        if number is None:
            self.add_type(name, "a whole number or None", given)
        elif number <= 0:
            self.add(f"{self._where}{name} should be greater than 0, got {given}")
        return number

    def whole(self, name: str, given: Any, *, at_least: int) -> None:
        """Record a fault unless `given` is a whole number of at least `at_least`."""
        number = whole_number(given)
        if number is None:
            self.add_type(name, "a whole number", given)
        elif number < at_least:
            self.add(f"{self._where}{name} should be {at_least} or more, got {given}")

    def number(self, name: str, given: Any, *, above_zero: bool = False) -> None:
        """Record a fault unless `given` is a number that is not negative; NaN is not a number here."""
        if not is_number(given) or math.isnan(given):
            self.add_type(name, "a number", given)
        elif given < 0 or (above_zero and given == 0):
            self.add(f"{self._where}{name} should be {'greater than 0' if above_zero else '0 or more'}, got {given!r}")

    def raise_any(self) -> None:
        """Raise all faults in one error, if there are any."""
        if self._faults:
            raise (self._type_error if self._has_wrong_type else self._error)(tuple(self._faults))


def with_article(name: str) -> str:
    """Return a name with its article, such as ``an Exporter`` or ``a TrainSpec``."""
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _shown(value: Any) -> str:
    """Return type and value; for arrays, and containers of them, only the type."""
    if value is None:
        return "None"
    text = repr(value)
    is_shown = isinstance(value, str | int | float) or (len(text) <= MAX_SHOWN and "\n" not in text)
    return f"{type(value).__name__} {text}" if is_shown else type(value).__name__
