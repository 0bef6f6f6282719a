"""Objects that Python knows by name keep their identity in other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psflow.ps_runtime.shipping.pickles import pickled
from tests.user_modules import Program

pytestmark = pytest.mark.process

Elsewhere = Callable[..., str]

TYPES = """
from typing import Callable, Generic, ParamSpec, TypeVar, TypeVarTuple
T = TypeVar("T", bound="Box")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
"""
BOXES = """
from types_of_names import Callable, Generic, P, T, Ts
class Box(Generic[T]):
    pass
def call(f: Callable[P, T]) -> T:
    return f
def f():
    kept = Box.__parameters__[0] is T and call.__annotations__["return"] is T
    return kept, T.__bound__, T.__module__, P.__name__, Ts.__name__
"""


def test_type_parameters_of_another_module(program: Program, elsewhere: Elsewhere) -> None:
    program({"types_of_names.py": TYPES})
    module: Any = program({"boxes_of_names.py": BOXES})
    assert elsewhere("opened[0]()", pickled(module.f, "the job")) == repr(module.f())


ENUMS = """
import abc, dataclasses, datetime, enum, functools
def add(a, b):
    return a + b, Operator.ADD.name
class Operator(enum.Enum):
    ADD = functools.partial(add)
class Planet(enum.Enum):
    EARTH = 5.9, 6.3
    MARS = 6.4, 3.3
    def __init__(self, mass, radius):
        self.mass = mass
class Code(bytes, enum.Enum):
    def __new__(cls, value, label):
        made = bytes.__new__(cls, [value])
        made._value_, made.label = value, label
        return made
    A = 1, "one"
    ONE = 1, "another"
class Permission(enum.IntFlag):
    R, W = 4, 2
    RW = 6
class AbstractMeta(abc.ABCMeta, enum.EnumMeta):
    pass
class Abstract(enum.Enum, metaclass=AbstractMeta):
    pass
class Shape(Abstract):
    SQUARE = [1]
@dataclasses.dataclass
class Creature:
    legs: int
class Beast(Creature, enum.Enum):
    DOG = 4
class Day(datetime.date, enum.Enum):
    FIRST = 2020, 1, 2
FAVOURITES = {Planet.MARS: Beast.DOG}
def f():
    return [
        Operator.ADD.value(1, 2),
        (Planet.EARTH.mass, Planet((6.4, 3.3)) is Planet.MARS, list(Planet), FAVOURITES[Planet.MARS] is Beast.DOG),
        (Code.A.label, Code(1) is Code.A, bytes(Code.A), Code.ONE is Code.A, list(Code.__members__)),
        (Permission.R | Permission.W, Permission(6) is Permission.RW, Permission(6).name, ~Permission.R),
        (Shape([1]) is Shape.SQUARE, isinstance(Shape.SQUARE, Abstract), isinstance(1, Shape)),
        (Beast.DOG, Beast.DOG.legs, Day.FIRST.year, Day(datetime.date(2020, 1, 2)) is Day.FIRST),
    ]
"""


def test_members_of_enumerations_are_as_they_were_made(program: Program, elsewhere: Elsewhere) -> None:
    module: Any = program({"enums_of_names.py": ENUMS})
    data = pickled((module.f, module.Planet.MARS, module.Permission(6), module.Planet), "the job")
    found = "opened[0][0](), opened[0][1] is opened[0][3].MARS, opened[0][2].name"
    assert elsewhere(found, data) == repr((module.f(), True, "RW"))
    # with the class another pickle has brought
    again = pickled((module.Planet.MARS, module.f), "the job")
    assert elsewhere("opened[1][0] is opened[0][3].MARS, opened[1][1]()", data, again) == repr((True, module.f()))


SENTINELS = """
import dataclasses, socket
from dataclasses import MISSING
from socket import _GLOBAL_DEFAULT_TIMEOUT
MINE = object()
@dataclasses.dataclass
class Row:
    x: int
def f(default=MINE):
    fields = dataclasses.fields(Row)
    return (
        MISSING is dataclasses.MISSING,
        fields[0].default is MISSING,
        _GLOBAL_DEFAULT_TIMEOUT is socket._GLOBAL_DEFAULT_TIMEOUT,
        default is MINE,
    )
"""


def test_sentinels_of_libraries_are_themselves(program: Program, elsewhere: Elsewhere) -> None:
    module: Any = program({"sentinels_of_names.py": SENTINELS})
    assert elsewhere("opened[0]()", pickled(module.f, "the job")) == "(True, True, True, True)"


def test_nested_classes_keep_their_names(program: Program, elsewhere: Elsewhere) -> None:
    module: Any = program({"nested_of_names.py": "class Outer:\n    class Inner:\n        pass\n"})
    assert elsewhere("opened[0].Inner.__qualname__", pickled(module.Outer, "the job")) == "'Outer.Inner'"
