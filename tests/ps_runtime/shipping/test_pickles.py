"""Definitions of a program work in a process that cannot import it, as in the original one."""

from __future__ import annotations

import functools
import pickle
import re
import shutil
import sys
import threading
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import markupsafe
import numpy as np
import pytest

from psflow import EvalSpec, RunConfig, TrainSpec
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.shipping.pickles import Shipped, pickled, unpickled
from tests.user_modules import Program

pytestmark = pytest.mark.process

Elsewhere = Callable[..., str]

SHARED = """
import shared_of_t.mine
def f():
    import shared_of_t.mine
    import shared_of_t.lib
    from shared_of_t import other
    return shared_of_t.mine.f(), shared_of_t.lib.__name__, other.__name__, shared_of_t.mine.__name__
def g():
    return shared_of_t.mine.f()
"""


def test_a_module_in_a_namespace_that_it_shares_with_a_library_travels(
    program: Program, elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "site-packages"
    (library / "shared_of_t").mkdir(parents=True)
    for name in ("lib", "other"):
        (library / "shared_of_t" / f"{name}.py").touch()
    monkeypatch.syspath_prepend(str(library))
    program({"shared_of_t/mine.py": LATE, "shares_of_t.py": SHARED})
    elsewhere(f"__import__('sys').path.append({str(library)!r})")
    data = pickled((sys.modules["shares_of_t"].f, sys.modules["shares_of_t"].g), "the job")
    mine, lib, other = (f"shared_of_t.{name}" for name in ("mine", "lib", "other"))
    assert elsewhere("opened[0][0](), opened[0][1]()", data) == repr(((mine, lib, other, mine), mine))


USES_LATER = """
import parts_of_t
def size():
    return parts_of_t.f()
class Hook:
    def begin(self):
        import parts_of_t.late
        from parts_of_t import deep
        import parts_of_t.deep.later
        return parts_of_t.late.f(), deep.later.f(), parts_of_t.deep is deep
"""


def test_a_submodule_that_is_imported_late_is_on_its_package(program: Program, elsewhere: Elsewhere) -> None:
    names = ("__init__", "late", "deep/__init__", "deep/later")
    program({f"parts_of_t/{name}.py": LATE for name in names})
    for name in [name for name in sys.modules if name.partition(".")[0] == "parts_of_t"]:
        del sys.modules[name]
    module: Any = program({"uses_later_of_t.py": USES_LATER})
    data = pickled([module.size, module.Hook()], "the job")
    assert elsewhere("(opened[0][0](), opened[0][1].begin())", data) == repr(
        ("parts_of_t", ("parts_of_t.late", "parts_of_t.deep.later", True))
    )


RECORDS = """
from __future__ import annotations
import dataclasses
import typing
from dataclasses import KW_ONLY, InitVar
from typing import ClassVar
class Row:
    pass
def f():
    @dataclasses.dataclass
    class Record:
        of_all: ClassVar[int] = 1
        of_typing: typing.ClassVar[int] = 1
        given: InitVar[int] = 1
        row: Row = None
        _: KW_ONLY
        last: int = 2
    hints = typing.get_type_hints(Record)
    return [field.name for field in dataclasses.fields(Record)], hints["row"] is Row, Record.__qualname__
def keyed():
    class Kind(type):
        def __new__(mcls, name, bases, names, **options):
            return super().__new__(mcls, name, bases, {**names, **options})
    class Keyed(metaclass=Kind, size=3):
        def own(self):
            return __class__ is Keyed
    return Keyed.size, Keyed().own(), Keyed.__module__
"""


def test_a_dataclass_whose_annotations_are_text_may_be_made_in_a_function(
    program: Program, elsewhere: Elsewhere
) -> None:
    module: Any = program({"records_of_t.py": RECORDS})
    data = pickled((module.f, module.keyed), "the job")
    assert module.f() == (["row", "last"], True, "f.<locals>.Record")
    assert elsewhere("opened[0][0](), opened[0][1]()", data) == repr((module.f(), module.keyed()))
    left = "[name for name in __import__('sys').modules if 'records_of_t' in name]"
    assert elsewhere(f"(__import__('gc').collect(), {left})[1]") == "[]"


STATE = """
REGISTRY = {}
COUNT = 0
def bump():
    global COUNT
    COUNT += 1
    return COUNT
"""
LAYERS = """
import enum
import functools
import threading
import shop_of_t
from .state import REGISTRY, bump
lock = threading.Lock()
class Kind(enum.Enum):
    A = 1
class Base:
    def hello(self):
        return "hello"
class Hook(Base):
    def after(self):
        REGISTRY["hook"] = Kind.A
        return super().hello()
@functools.lru_cache(maxsize=3)
def slow(x):
    return x + 1
def model(hook):
    from . import late
    import shop_of_t.later
    with lock:
        REGISTRY["model"] = slow(1)
        return isinstance(hook, Base), bump(), shop_of_t.state.COUNT, late.f(), shop_of_t.later.f(), Kind(1) is Kind.A
def registry():
    return REGISTRY
"""


LATE = """
def f():
    return __name__
"""


def shop(program: Program) -> Any:
    """Return a package whose modules import each other, some of them late."""
    return program(
        {
            "shop_of_t/__init__.py": "from . import layers\n",
            "shop_of_t/state.py": STATE,
            "shop_of_t/layers.py": LAYERS,
            "shop_of_t/late.py": LATE,
            "shop_of_t/later.py": LATE,
        }
    ).layers


def test_functions_and_hooks_of_a_package_share_its_state_elsewhere(program: Program, elsewhere: Elsewhere) -> None:
    layers = shop(program)
    data = pickled([layers.model, layers.Hook(), layers.registry], "the job")
    called = "[(m(h), h.after(), sorted(r()), r()['hook'] is type(r()['hook']).A) for m, h, r in opened]"
    first = ((True, 1, 1, "shop_of_t.late", "shop_of_t.later", True), "hello", ["hook", "model"], True)
    second = ((True, 2, 2, *first[0][3:]), *first[1:])
    # who opens it a second time in a process shares the modules, not the hook
    assert elsewhere(called, data, data) == repr([first, second])
    assert elsewhere("opened[0][1] is opened[1][1], 'shop_of_t' in sys.modules", data, data) == ("(False, False)")


def test_where_it_was_written_it_is_the_program_itself(program: Program) -> None:
    layers = shop(program)
    after = layers.Hook.after
    model, hook, registry = unpickled(pickled([layers.model, layers.Hook(), layers.registry], "the job"))
    assert model(hook)[:3] == (True, 1, 1)
    assert registry() is layers.REGISTRY
    assert type(hook) is layers.Hook
    assert layers.Hook.after is after


def test_an_edited_module_is_new_where_the_old_one_is_in_use(program: Program, elsewhere: Elsewhere) -> None:
    text = "RATE = {rate}\nclass Hook:\n    rate = {rate}\ndef f():\n    return {rate}, RATE, Hook.rate\n"
    pickles = []
    for rate in (1, 100):
        module: Any = program({"rates_of_t.py": text.format(rate=rate)})
        pickles.append(pickled([module.f, module.Hook()], "the job"))
    assert elsewhere("[(*f(), h.rate) for f, h in opened]", *pickles) == str([(1,) * 4, (100,) * 4])


KNOBS = """
RATE = 1
class Hook:
    rate = 1
def f():
    return RATE, Hook.rate
"""


def test_changed_globals_of_one_version_are_new_elsewhere(program: Program, elsewhere: Elsewhere) -> None:
    module: Any = program({"knobs_of_t.py": KNOBS})
    first = pickled(module.f, "the job")
    module.RATE = module.Hook.rate = 2
    assert elsewhere("(opened[0](), opened[1]())[1]", first, pickled(module.f, "the job")) == "(2, 2)"


FAULTS = """
class OutOfStock(ValueError):
    pass
def f():
    return OutOfStock('tea')
"""


def test_errors_of_the_program_cross_both_ways(program: Program, elsewhere: Elsewhere) -> None:
    module: Any = program({"faults_of_t.py": FAULTS})
    as_dask_does = "__import__('cloudpickle').dumps(opened[0]())"
    answer = pickle.loads(eval(elsewhere(as_dask_does, pickled(module.f, "the job"))))
    assert type(answer) is module.OutOfStock
    assert answer.args == ("tea",)


def test_psflow_and_what_is_installed_travels_by_reference() -> None:
    assert len(pickled([TrainSpec, np.linalg.norm, EvalSpec], "the job")) < 200
    config, norm = unpickled(pickled([RunConfig, np.linalg.norm], "the job"))
    assert config is RunConfig
    assert norm is np.linalg.norm


STORE = """
import sqlite3
con = sqlite3.connect(':memory:')
def rows():
    return list(con.execute('select 1'))
class Hook:
    def __init__(self, con):
        self.con = con
"""


@pytest.mark.parametrize(
    ("made", "place"),
    [
        (lambda m: m.rows, "global 'con' of store_of_t"),
        (lambda m: functools.partial(print, m.con), "argument 0 of it"),
        (lambda m, con=None: (lambda con: lambda: con)(m.con), "variable 'con' of .*lambda.*"),
        (lambda m: TrainSpec(m.rows), "input_fn, global 'con' of store_of_t"),
        (lambda m: {"hook": m.Hook(m.con)}, "the value of 'hook', Hook.con"),
    ],
)
def test_what_cannot_travel_is_named_with_its_place(program: Program, made: Callable[..., Any], place: str) -> None:
    with pytest.raises(UsageError) as caught:
        pickled(made(program({"store_of_t.py": STORE})), "the job")
    words = rf"the job cannot travel to other processes: {place} is a sqlite3.Connection \(.*cannot pickle .*; create"
    assert re.match(words, str(caught.value))


SETTINGS = """
import threading
numbers = (n for n in range(3))
lock = threading.RLock()
def free():
    return 1
"""
USES = """
import settings_of_t
def f(name):
    getattr(settings_of_t, name)
    return settings_of_t.free()
"""


def test_a_member_of_a_module_that_no_process_uses_may_stay(program: Program, elsewhere: Elsewhere) -> None:
    module: Any = program({"settings_of_t.py": SETTINGS, "uses_of_t.py": USES})
    data = pickled(sys.modules["uses_of_t"].f, "the job")
    assert module.free() == 1
    assert elsewhere("opened[0]('lock')", data) == "1"
    words = elsewhere("opened[0]('numbers')", data)
    assert "module 'settings_of_t' has no 'numbers' here; it stayed in the caller's process: cannot pickle" in words
    assert "has no 'nobody' here; there is none" in elsewhere("opened[0]('nobody')", data)


HELPERS = """
import sqlite3
connection = sqlite3.connect(":memory:")
POOL = {"db": connection}
def query():
    return connection.execute("select 1")
def scale(x):
    return x / 7
"""


def test_a_function_of_a_module_that_no_process_calls_may_stay_with_what_it_reads(
    program: Program, elsewhere: Elsewhere
) -> None:
    of_helpers = "import helpers_of_t\ndef f(x):\n    return helpers_of_t.scale(x)\n"
    of_query = "def g():\n    return helpers_of_t.query()\n"
    program({"helpers_of_t.py": HELPERS, "calls_of_t.py": of_helpers + of_query})
    data = pickled((sys.modules["calls_of_t"].f, sys.modules["calls_of_t"].g), "the job")
    assert elsewhere("opened[0][0](14)", data) == "2.0"
    words = elsewhere("opened[0][1]()", data)
    assert "module 'helpers_of_t' has no 'query' here; it stayed in the caller's process: cannot pickle" in words
    sys.modules["helpers_of_t"].connection.close()


WRAPPED = """
from autograd.extend import primitive
@primitive
def double(x):
    return 2 * x
"""


def test_what_a_library_has_wrapped_travels(program: Program, elsewhere: Elsewhere) -> None:
    module: Any = program({"wrapped_of_t.py": WRAPPED})
    assert elsewhere("opened[0](2)", pickled(module.double, "the job")) == "4"


BASES = """
import abc
SEEN = []
class Base(abc.ABC):
    def __init_subclass__(cls, name, **options):
        super().__init_subclass__(**options)
        cls.name = name
        SEEN.append((name, cls.size))
class Shelf(Base, name="shelf"):
    size = 3
    def __init__(self):
        super().__init__()
class Wide(Shelf, name="wide"):
    size = 4
def f():
    class Local(Wide, name="local"):
        size = 5
    return [(kind.name, kind.size, kind.__mro__[1].__name__) for kind in (Shelf, Wide, type(Wide()))], SEEN, Local.name
"""


def test_a_base_that_looks_at_its_subclasses_is_shown_none_that_is_empty(
    program: Program, elsewhere: Elsewhere
) -> None:
    module: Any = program({"bases_of_t.py": BASES})
    data = pickled(module.f, "the job")
    words = elsewhere("opened[0]()", data)
    assert words == repr(module.f())
    del module.SEEN[2:]
    assert repr(unpickled(data)()) == words


PLUGINS = """
class Plugin:
    kinds = []
    def __init_subclass__(cls):
        Plugin.kinds.append(cls)
class Shelf(Plugin):
    pass
def f():
    class Local(Plugin):
        pass
    return [kind.__name__ for kind in Plugin.kinds], Plugin.kinds[0] is Shelf
"""
KINDS = """
import abc
KINDS = {}
class Kind(abc.ABCMeta):
    kinds = {}
    def __new__(mcls, name, bases, names):
        return super().__new__(mcls, name, bases, {**names, "shown": sorted(names)})
    def __init__(cls, name, bases, names):
        super().__init__(name, bases, names)
        if name in KINDS:
            raise TypeError(f"{name} is there")
        KINDS[name] = Kind.kinds[name] = cls
class Base(metaclass=Kind):
    @abc.abstractmethod
    def size(self): ...
class Shelf(Base):
    def size(self):
        return 3
def f():
    class Local(Shelf):
        pass
    kinds = KINDS.pop("Local"), *KINDS.values()
    return Kind.kinds["Shelf"] is KINDS["Shelf"] is Shelf, Shelf().size(), sorted(Base.__abstractmethods__), [
        (kind.__name__, "size" in kind.shown, type(kind) is Kind) for kind in kinds
    ]
"""


@pytest.mark.parametrize("text", [PLUGINS, KINDS])
def test_a_base_or_metaclass_that_keeps_its_classes_has_them_once(
    text: str, program: Program, elsewhere: Elsewhere
) -> None:
    module: Any = program({f"kinds_{text is KINDS}_of_t.py": text})
    data = pickled(module.f, "the job")
    words = elsewhere("opened[0]()", data)
    unpickled(data)  # where they are, none is made
    assert words == repr(module.f())


NAMES = """
from typing import NewType
Price = NewType("Price", int)
def f(price: Price):
    return Price(price)
class Nothing:
    def __reduce__(self):
        return "NOTHING"
NOTHING = Nothing()
def g():
    return NOTHING
"""


def test_nothing_travels_by_its_name(program: Program, elsewhere: Elsewhere) -> None:
    module: Any = program({"names_of_t.py": NAMES})
    assert elsewhere("opened[0](3)", pickled(module.f, "the job")) == "3"
    with pytest.raises(
        UsageError, match=r"global 'NOTHING' of names_of_t is a names_of_t.Nothing \(.*the name of a variable"
    ):
        pickled(module.g, "the job")


def test_an_extension_module_stays_and_is_named(program: Program, elsewhere: Elsewhere, tmp_path: Path) -> None:
    [built] = [
        path for end in EXTENSION_SUFFIXES for path in Path(markupsafe.__file__).parent.glob(f"_speedups*{end}")
    ][:1]
    shutil.copy(built, tmp_path / "program" / "_speedups.so")
    module: Any = program({"fast_of_t.py": "import _speedups\ndef f():\n    return _speedups\n"})
    words = elsewhere("opened", pickled(module.f, "the job"))
    assert (
        "the program needs '_speedups', which cannot be imported here (No module named '_speedups'); install" in words
    )


LARGE = """
import numpy as np
TABLE = np.arange(1 << 20)
def f():
    return int(TABLE[-1])
"""


def test_a_large_global_travels(program: Program, elsewhere: Elsewhere) -> None:
    module: Any = program({"large_of_t.py": LARGE})
    assert elsewhere("opened[0]()", pickled(module.f, "the job")) == str((1 << 20) - 1)


def test_several_threads_may_write_and_read_at_once(program: Program) -> None:
    layers = shop(program)
    seen: list[Any] = []
    work = [threading.Thread(target=lambda: seen.append(unpickled(pickled(layers.registry, "it"))())) for _ in range(8)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert all(registry is layers.REGISTRY for registry in seen)
    assert len(seen) == len(work)


def test_what_is_shipped_is_opened_once(program: Program) -> None:
    shipped = pickle.loads(pickle.dumps(Shipped([shop(program).registry], "it")))
    assert shipped.opened is shipped.opened


def test_code_keeps_the_name_of_its_file(program: Program, elsewhere: Elsewhere) -> None:
    module: Any = program({"filed_of_t.py": "def f():\n    return lambda: 0\n"})
    name = repr(module.__file__)
    called = "opened[0].__code__.co_filename, opened[0]().__code__.co_filename"
    assert elsewhere(called, pickled(module.f, "the job")) == f"({name}, {name})"
