"""Reduces a script to what a model_fn in it uses, so that loading an export does not run the script."""

from __future__ import annotations

import ast
import dis
import io
import tokenize
from collections.abc import Iterator, Set
from pathlib import Path
from types import CodeType
from typing import TypeGuard

from psflow.ps_runtime.errors import ModelFnError

TRAINING = {
    "train",
    "train_and_evaluate",
    "evaluate",
    "predict",
    "run_distribute_coordinator",
    "MonitoredTrainingSession",
}
"""Functions of psflow that no export may call while it is loaded."""

GUARDS = ("__name__ ==", "TYPE_CHECKING", "typing.TYPE_CHECKING")

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def reduced(path: Path, roots: Set[str]) -> bytes:
    """Return a script without the statements that its functions `roots` do not use; lines keep their numbers.

    It keeps all imports, and the definitions and assignments that `roots` use, directly or through others, with
    assignments to their parts, such as ``SIZES["a"] = 1``, and calls of methods of these variables, such as
    ``SIZES.update(a=1)``. ``pass`` replaces any other statement.

    Raises ModelFnError if a kept statement trains, evaluates or predicts.
    """
    text = path.read_bytes()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
    statements = [_Statement(node) for node in ast.parse(text, str(path)).body]
    own = {name for one in statements if not one.is_import for name in one.bound}
    variables = own - {name for one in statements if one.is_definition for name in one.bound}
    needed, kept = set(roots), set[_Statement]()
    while found := {one for one in statements if one not in kept and one.is_used(needed, variables, own)}:
        kept |= found
        needed.update(*(one.read for one in found))
    for one in kept:
        one.check(path)
    lines = [line.encode() for line in text.decode(encoding).split("\n")]
    for one in reversed(statements):
        if one not in kept:
            one.replace(lines)
    return b"\n".join(lines).decode().encode(encoding)


class _Statement:
    """A statement at the top level of a script, and the global names that it binds, reads and changes."""

    def __init__(self, node: ast.stmt) -> None:
        self._node = node
        self.is_definition = isinstance(node, _Definition)
        self.is_import = isinstance(node, ast.Import | ast.ImportFrom)
        code = compile(ast.Module([node], []), "", "exec", dont_inherit=True)
        self.bound = {one.argval for one in dis.get_instructions(code) if one.opname in ("STORE_NAME", "STORE_GLOBAL")}
        self.read = set(_read(code))
        parts = [] if self.is_definition else list(ast.walk(node))
        self._assigned = {_root(each) for each in parts if _is_assigned(each)}
        self._called = {_root(each.value) for each in parts if _is_method_call(each)}

    def is_used(self, needed: Set[str], variables: Set[str], own: Set[str]) -> bool:
        """Return whether the names `needed` need this: ``own` are the names that the script does not import."""
        match self._node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                return True
            case ast.If(test=test) if ast.unparse(test).startswith(GUARDS):
                return False
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                # a decorator or a base class of the script may keep a list of what it has been applied to
                by_others = {_root(each) for each in self._node.decorator_list} & own
                bases = self._node.bases if isinstance(self._node, ast.ClassDef) else []
                return self._node.name in needed or bool(by_others or {_root(each) for each in bases} & needed)
            case _:
                return bool((self.bound | self._assigned | self._called & variables) & needed)

    def check(self, path: Path) -> None:
        """Raise ModelFnError if the statement calls one of `TRAINING`."""
        if self.is_definition:
            return
        for node in ast.walk(self._node):
            if isinstance(node, ast.Call) and (name := _last(node.func)) in TRAINING:
                raise ModelFnError(
                    (
                        f"{path}, line {node.lineno}: loading the export would call {name} again, because the model "
                        'uses what this statement sets; put the call under if __name__ == "__main__":, and pass the '
                        "value in params",
                    )
                )

    def replace(self, lines: list[bytes]) -> None:
        """Replace the statement by ``pass`` in the lines of its script."""
        node = self._node
        decorators = node.decorator_list if isinstance(node, _Definition) else []
        assert node.end_lineno is not None
        first = min([node.lineno, *(each.lineno for each in decorators)]) - 1
        head, tail = lines[first][: node.col_offset], lines[node.end_lineno - 1][node.end_col_offset :]
        lines[first : node.end_lineno] = [head + b"pass" + tail, *[b""] * (node.end_lineno - 1 - first)]


def _read(code: CodeType) -> Iterator[str]:
    """Yield the global names that code reads, functions in it included."""
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            yield one.argval
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _read(const)


def _is_assigned(node: ast.AST) -> TypeGuard[ast.Attribute | ast.Subscript]:
    return isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)


def _is_method_call(node: ast.AST) -> TypeGuard[ast.Expr]:
    return (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute)
    )


def _root(node: ast.expr) -> str | None:
    """Return the name at the start of an expression such as ``name.part[0](x)``."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Call(func=value):
            return _root(value)
        case _:
            return None


def _last(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return None
