"""psflow: Estimator-style parameter-server training on numpy and Dask.

The stub ``__init__.pyi`` lists the public names. Each is imported on first use, so that a role or a served model loads
only what it needs.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_names(module: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for the stub of `file`: ``import X as X``, and ``Y = X``."""
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.asname: (node.module or "", alias.name) for node in imports for alias in node.names if alias.asname}
    aliases = [node for node in stub.body if isinstance(node, ast.Assign)]
    homes |= {ast.unparse(node.targets[0]): ("psflow", ast.unparse(node.value)) for node in aliases}

    def import_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        home, attribute = homes[name]
        home = __name__ + home.removeprefix("psflow")  # an export has psflow below its own package
        source = importlib.import_module(home)
        if home == module or not hasattr(source, attribute):  # a module that is not imported yet
            value: Any = importlib.import_module(f"{home}.{attribute}")
        else:
            value = getattr(source, attribute)
        setattr(sys.modules[module], name, value)
        return value

    names = sorted(homes)
    return import_name, lambda: names, names


__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
__all__.remove("torch")  # which `from psflow import *` would put in the place of torch itself
