"""Differentiable `gather` and `pool` for autograd; their derivatives are sums by a sparse matrix.

autograd's own derivative of indexing loops over the indices one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from autograd.core import VJPNode, add_outgrads
from autograd.extend import defvjp, primitive
from autograd.numpy.numpy_boxes import ArrayBox
from autograd.tracer import Box, isbox, new_box, trace_stack
from autograd.util import toposort
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.model.embedding import take, weighted_sum
from psflow.ps_runtime.tables.duplicate_ids import Occurrences


class Trace:
    """Traces values through a computation; made by `opened`.

    Unlike ``autograd.grad`` it accepts further values during the computation, such as rows that are looked up.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._keys: dict[VJPNode, Hashable] = {}

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Trace]:
        """Yield a trace for the duration of a computation; ModelFnError if a function in it has no gradient."""
        _guard_traced_arrays()
        with trace_stack.new_trace() as number:
            try:
                yield cls(number)
            except NotImplementedError as error:
                if not str(error).startswith("VJP of "):
                    raise
                raise _without_gradient(error) from error

    def follow(self, key: Hashable, value: Any) -> Any:
        """Return `value` traced by autograd; `key` names it in `gradients`."""
        node = VJPNode.new_root()
        self._keys[node] = key
        return new_box(value, self._number, node)

    def gradients(self, end: Any) -> dict[Hashable, Any]:
        """Return the gradient of the scalar `end` with respect to each value that it depends on, by key.

        Other values have no entry, rather than zeros.
        """
        if not isbox(end) or end._trace != self._number:
            return {}
        found: dict[Hashable, Any] = {}
        gradients = {end._node: (np.ones_like(end._value), False)}
        for node in toposort(end._node):
            gradient, _ = gradients.pop(node)
            if node in self._keys:
                found[self._keys[node]] = gradient
            for parent, part in zip(node.parents, node.vjp(gradient), strict=True):
                gradients[parent] = add_outgrads(gradients.get(parent), part)
        return found


def left_the_trace(what: str) -> ModelFnError:
    """Return the error for a computation that autograd could not trace."""
    return ModelFnError(
        (
            f"{what}: a value that autograd traces went through plain numpy; with minimize(loss), compute the loss "
            "with `import autograd.numpy as np`, and do not call float() or .item() on it",
        )
    )


def _without_gradient(error: NotImplementedError) -> ModelFnError:
    return ModelFnError(
        (
            f"a function has no gradient ({error}); call defvjp in model_fn, or install the module that does: "
            "your own modules are imported only in the caller's process",
        )
    )


def _guard_traced_arrays() -> None:
    """Make plain numpy refuse traced values at once; otherwise it loops over them element by element."""

    def refuse(what: str) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            raise left_the_trace(what)

        return method

    if any(cls.__name__ == "TracedArray" for cls in Box.types):
        return
    traced = type(
        "TracedArray",
        (ArrayBox,),
        {
            "__slots__": [],
            "__array__": refuse("a plain numpy function was called on a traced value"),
            "__float__": refuse("float() was called on a traced value"),
            "__int__": refuse("int() was called on a traced value"),
            "__round__": refuse("round() was called on a traced value"),
            "item": refuse(".item() was called on a traced value"),
            "tolist": refuse(".tolist() was called on a traced value"),
        },
    )
    for value_type in [t for t, box in Box.type_mappings.items() if box is ArrayBox and t is not ArrayBox]:
        traced.register(value_type)  # type: ignore[attr-defined]


def _of_rows(gradient: NDArray[Any], weights: NDArray[Any] | None, found: Occurrences) -> NDArray[Any]:
    """Return ``(num_unique, dim)``: for each row the weighted gradients of the sums that contain it."""
    return found.sum(gradient, None if weights is None else weights.reshape(-1))


def _of_weights(gradient: NDArray[Any], rows: NDArray[Any], weights: NDArray[Any], found: Occurrences) -> NDArray[Any]:
    """Return ``(num_sums, k)``: the derivative of each sum by each of its weights."""
    if not len(rows):
        return np.zeros(weights.shape, gradient.dtype)
    each = take(rows, found).reshape(*weights.shape, rows.shape[1])
    return np.asarray(np.einsum("nd,nkd->nk", gradient, each))


gather = primitive(take)
defvjp(gather, lambda ans, rows, found: found.sum, argnums=(0,))

pool = primitive(weighted_sum)
defvjp(
    pool,
    lambda ans, rows, weights, found, num_sums: lambda gradient: _of_rows(gradient, weights, found),
    lambda ans, rows, weights, found, num_sums: lambda gradient: _of_weights(gradient, rows, weights, found),
    argnums=(0, 1),
)
