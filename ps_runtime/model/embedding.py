"""Looks up rows of sparse tables by their ids in a model_fn."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from psflow.ps_runtime.errors import InputError, ModelFnError, did_you_mean
from psflow.ps_runtime.model.calls.scope import current_scope
from psflow.ps_runtime.model.lookups import ABSENT, Lookup, integer_ids
from psflow.ps_runtime.numeric import plain
from psflow.ps_runtime.specs.variables import TableSpec
from psflow.ps_runtime.tables.duplicate_ids import Occurrences
from psflow.ps_runtime.tables.initial_rows import initializer_faults


def take(rows: NDArray[Any], found: Occurrences) -> NDArray[Any]:
    """Return ``(size, dim)``: for each position its row of ``(num_unique, dim)``."""
    return np.take(rows, found.inverse(), axis=0)


def weighted_sum(rows: NDArray[Any], weights: NDArray[Any] | None, found: Occurrences, num_sums: int) -> NDArray[Any]:
    """Return ``(num_sums, dim)``: weighted sums of the rows of equally many consecutive ids.

    `weights` are ``(num_sums, size // num_sums)``, or None for 1 each.
    """
    return found.pool(rows, num_sums, None if weights is None else weights.reshape(-1))


def gather(rows: Any, found: Occurrences) -> Any:
    """Differentiable `take`."""
    if plain(rows) is rows:
        return take(rows, found)
    from psflow.ps_runtime.model.calls import autodiff  # imports autograd

    return autodiff.gather(rows, found)


def pool(rows: Any, weights: Any, found: Occurrences, num_sums: int) -> Any:
    """Differentiable `weighted_sum`."""
    if plain(rows) is rows and plain(weights) is weights:
        return weighted_sum(rows, weights, found, num_sums)
    from psflow.ps_runtime.model.calls import autodiff

    return autodiff.pool(rows, weights, found, num_sums)


Combiner = Literal["sum", "mean", "sqrtn"]
Initializer = Literal["uniform", "normal", "constant", "zeros"]
COMBINERS: tuple[str, ...] = get_args(Combiner)

_SCALE_OF = {"uniform": "scale", "normal": "scale", "constant": "value"}
"""Name of the `scale` argument of each initializer."""


def embedding_lookup(
    name: str,
    ids: Any,
    num_rows: int,
    dim: int,
    *,
    combiner: Combiner | None = None,
    weights: Any = None,
    initializer: Initializer = "uniform",
    scale: float = 0.05,
    dtype: DTypeLike = np.float32,
    admit_after: int = 1,
    expire_after_steps: int | None = None,
) -> Any:
    """Look ids up in a sparse table of the model; the first call in a mode creates the table.

    Only the rows that a batch looks up travel. The first gradient for a row creates it; until then it has its initial
    values, without being stored.

    Parameters
    ----------
    name : str
        Unique in the model, including the variables. Several lookups in one table share its rows.
    ids : array of integers, any shape
        In ``[0, num_rows)``; with a combiner also -1, which marks an absent id.
    num_rows : int
        At least 1; memory use does not depend on it.
    dim : int
        Length of a row, at least 1.
    combiner : {"sum", "mean", "sqrtn"}, optional
        Combine the rows over the last axis of `ids`: their weighted sum, divided by the sum of the weights (mean) or by
        the square root of the sum of their squares (sqrtn). Zeros where all ids are absent, or the divisor is zero.
    weights : array of numbers, of the shape of `ids`, optional
        Weights for the combiner; default: 1 each. They may be computed from variables.
    initializer : {"uniform", "normal", "constant", "zeros"}
        Initial values: uniform in [-scale, scale), normal with standard deviation `scale`, `scale` itself, or 0. They
        depend only on the job's seed, `name`, id and column.
    scale : float
        Size of the initial values: see `initializer`; ignored by ``"zeros"``.
    dtype : dtype
        A float dtype.
    admit_after : int
        A row is created once this many pushes have touched it; until then it keeps its initial values.
    expire_after_steps : int, optional
        A row that no push has touched for this many steps is reset to its initial values when a checkpoint is made;
        default: never.

    Returns
    -------
    ``(*ids.shape, dim)`` array, or ``(*ids.shape[:-1], dim)`` array with a combiner
        In the dtype of the table; traced by autograd within `minimize`.

    Raises
    ------
    ModelFnError
        Outside a model_fn; for a new table, or other facts of a known one, after the first call; for invalid facts.
    InputError
        If ids are not integers, or out of range; the error names the first one.

    References
    ----------
    ``tf.nn.embedding_lookup_sparse`` has the same combiners.

    Examples
    --------
    Inside a model_fn::

        items = embedding_lookup("items", features["items"], num_rows=1_000_000, dim=16, combiner="mean")
    """
    scope = current_scope("embedding_lookup")
    facts = (name, num_rows, dim, initializer, scale, np.dtype(dtype), admit_after, expire_after_steps)
    try:
        asked, faults = _asked(*facts)
    except TypeError:  # not hashable
        asked, faults = _asked.__wrapped__(*facts)
    array = integer_ids(name, ids)
    faults += _combiner_faults(name, combiner, array, weights)
    if faults:
        raise ModelFnError(faults)
    spec = scope.table(asked, ids)
    lookup = scope.lookups.of(spec, array)
    shape = array.shape if combiner is None else array.shape[:-1]
    if combiner is None and lookup.present is not None:
        raise _absent(name, lookup)
    rows = scope.rows(spec, lookup.unique)
    if combiner is None:
        return gather(rows, lookup.found).reshape((*shape, dim))
    return _combined(spec, rows, lookup, combiner, weights).reshape((*shape, dim))


def _combined(spec: TableSpec, rows: Any, lookup: Lookup, combiner: Combiner, given: Any) -> Any:
    """Return ``(n, dim)`` for ids ``(n, k)``."""
    *shape, num_joined = lookup.ids.shape
    num_sums = math.prod(shape)
    weights = None if given is None else _weights(spec, lookup, given).reshape((num_sums, num_joined))
    pooled = pool(rows, weights, lookup.found, num_sums)
    if combiner == "sum":
        return pooled
    if weights is None:
        present = np.ones(lookup.ids.size, np.bool) if lookup.present is None else lookup.present
        weights = present.reshape(num_sums, num_joined).astype(spec.dtype)
    total = (weights if combiner == "mean" else weights * weights).sum(axis=-1)
    is_zero = plain(total) == 0
    divisor = total + is_zero
    if combiner == "sqrtn":
        divisor = divisor**0.5
    return pooled * (~is_zero / divisor).reshape((-1, 1))


def _weights(spec: TableSpec, lookup: Lookup, given: Any) -> Any:
    """Return weights in the table's dtype, 0 for absent ids; traced if the given weights are."""
    weights = (np.asarray(given) if plain(given) is given else given).astype(spec.dtype)
    return weights if lookup.present is None else weights * lookup.present.reshape(lookup.ids.shape)


@lru_cache(maxsize=4096, typed=True)  # every call of a model_fn requests the same tables
def _asked(
    name: str,
    num_rows: int,
    dim: int,
    initializer: str,
    scale: float,
    dtype: np.dtype[Any],
    admit_after: int,
    expire_after_steps: int | None,
) -> tuple[TableSpec, tuple[str, ...]]:
    """Return the requested table, and the faults of its facts."""
    counts = {"num_rows": num_rows, "dim": dim, "admit_after": admit_after, "expire_after_steps": expire_after_steps}
    plain_counts: dict[str, Any] = {what: int(n) if isinstance(n, np.integer) else n for what, n in counts.items()}
    scale_name = _SCALE_OF.get(initializer) if isinstance(initializer, str) else None
    spec = TableSpec(
        name,
        dtype=dtype.name,
        optimizer=None,
        initializer={"name": initializer} | ({scale_name: scale} if scale_name else {}),
        seed=0,  # set by the scope
        **plain_counts,
    )
    faults = [f"a table needs a name, got {name!r}"] if not isinstance(name, str) or not name else []
    for what, count in plain_counts.items():
        is_left_out = what == "expire_after_steps" and count is None
        if not is_left_out and (type(count) is not int or count < 1):
            faults.append(f"{what} of table {name!r} is {count!r}, expected an integer >= 1")
    if dtype.kind != "f":
        faults.append(f"the dtype of table {name!r} is {spec.dtype}, expected a float dtype")
    elif dtype.itemsize > 8:
        faults.append(f"the dtype of table {name!r} is {spec.dtype}, which no checkpoint can hold; use 64 bits or less")
    faults += [f"table {name!r}: {fault}" for fault in initializer_faults(spec.initializer)]
    return spec, tuple(faults)


def _combiner_faults(name: str, combiner: str | None, ids: NDArray[Any], weights: Any) -> tuple[str, ...]:
    if combiner is None:
        has_weights = f"the lookup in table {name!r} has weights but no combiner; give one, such as combiner='sum'"
        return () if weights is None else (has_weights,)
    faults = []
    if combiner not in COMBINERS:
        near = did_you_mean(str(combiner), COMBINERS)
        faults.append(
            f"combiner of the lookup in table {name!r} is {combiner!r}, expected {', '.join(COMBINERS)}{near}"
        )
    if not ids.ndim:
        faults.append(f"the lookup in table {name!r} has a combiner but a single id; give ids of shape (..., k)")
    if weights is not None:
        value = np.asarray(plain(weights))
        if value.shape != ids.shape or value.dtype.kind not in "fiu":
            faults.append(
                f"the weights of the lookup in table {name!r} are {value.dtype.name}{list(value.shape)}, "
                f"expected numbers of the shape of its ids, {list(ids.shape)}"
            )
    return tuple(faults)


def _absent(name: str, lookup: Lookup) -> InputError:
    assert lookup.present is not None
    place = [int(i) for i in np.argwhere(~lookup.present.reshape(lookup.ids.shape))[0]]
    return InputError(
        (
            f"table {name!r}: the id at {place} is {ABSENT}. {ABSENT} means 'no id' only if embedding_lookup has a "
            "combiner; without a combiner, use a separate row for unknown values",
        )
    )
