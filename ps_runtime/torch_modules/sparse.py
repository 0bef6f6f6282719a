"""Sparse embeddings of torch modules as tables: the rows of a batch travel, and the whole weight never does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F  # noqa: N812  (its usual name)

from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.model.calls.scope import BuildScope, ModelScope, current_scope
from psflow.ps_runtime.model.lookups import SparseGradient
from psflow.ps_runtime.specs.variables import TableSpec

MAX_SAMPLE = 1_000_000
"""Number of initial values that are looked at to find their distribution."""
KURTOSIS = {"uniform": 1.8, "normal": 3.0}
"""Fourth moment of a distribution of mean 0 and variance 1."""


class SparseLayer:
    """One ``nn.Embedding`` or ``nn.EmbeddingBag`` with ``sparse=True`` whose rows are those of a table.

    Its own forward computes with the rows of a batch in place of the whole weight, so that `mode`, offsets, weights of
    samples and padding mean what they mean in torch.
    """

    def __init__(self, prefix: str, layer: Any, owner: str) -> None:
        self.layer, self.name = layer, f"{prefix}weight"
        if layer.max_norm is not None:
            raise ModelFnError(
                (f"{owner}.{prefix}max_norm: a sparse table does not scale its rows; leave it out, or sparse=True",)
            )
        self._owner = owner
        self._weight: torch.Tensor = layer.weight.detach()
        self._spec: TableSpec | None = None
        self._scope: ModelScope | None = None
        self._parts: list[tuple[NDArray[np.int64], torch.Tensor, int | None]] = []
        del layer._parameters["weight"]
        layer.__class__ = _without_weight(type(layer), f"{owner}.{self.name}")
        layer.forward = self._forward

    def begin(self, scope: ModelScope) -> None:
        """Look rows up in the table of a call from now on."""
        if self._scope is not scope:
            self._scope, self._parts = scope, []
            self._spec = None
        if isinstance(scope, BuildScope):
            return
        tables: Any = getattr(scope, "tables", {})
        self._spec = tables.get(self.name)

    @property
    def leaves(self) -> list[torch.Tensor]:
        """The rows of each lookup of this call."""
        return [rows for _, rows, _ in self._parts]

    def gradient(self, of_rows: list[torch.Tensor | None]) -> SparseGradient | None:
        """Return the gradient of the table, given that of each of the `leaves`; None where nothing changes."""
        total: SparseGradient | None = None
        for (ids, _, padding), gradient in zip(self._parts, of_rows, strict=True):
            if gradient is None:
                continue
            values = gradient.numpy()
            if padding is not None:
                ids, values = np.delete(ids, padding), np.delete(values, padding, axis=0)
            part = SparseGradient(ids, values)
            total = part if total is None else total + part
        return total

    def _forward(self, ids: torch.Tensor, offsets: Any = None, per_sample_weights: Any = None) -> torch.Tensor:
        scope = current_scope("a sparse embedding")
        array = getattr(ids, "of_feature", None)  # the feature itself, whose rows may be here already
        array = ids.numpy() if array is None else array
        spec = self._spec = scope.table(self._asked() if self._spec is None else self._spec, array)
        lookup = scope.lookups.of(spec, array)
        if lookup.present is not None:
            raise ModelFnError(
                (f"{self._owner}.{self.name}: an id is -1, expected ids from 0 to {spec.num_rows - 1}; shift them",)
            )
        rows, padding = scope.rows(spec, lookup.unique), self._padding_in(lookup.unique)
        if padding is not None:
            rows = rows.copy()
            rows[padding] = 0
        leaf = torch.from_numpy(rows).requires_grad_(torch.is_grad_enabled())
        self._parts.append((lookup.unique, leaf, padding))
        local = torch.from_numpy(lookup.found.inverse()).reshape(ids.shape)
        layer = self.layer
        if isinstance(layer, torch.nn.Embedding):
            return F.embedding(local, leaf, padding, scale_grad_by_freq=layer.scale_grad_by_freq)
        pooled: torch.Tensor = F.embedding_bag(
            local,
            leaf,
            offsets,
            scale_grad_by_freq=layer.scale_grad_by_freq,
            mode=layer.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=layer.include_last_offset,
            padding_idx=padding,
        )
        return pooled

    def _padding_in(self, unique: NDArray[np.int64]) -> int | None:
        wanted = self.layer.padding_idx
        if wanted is None:
            return None
        place = int(np.searchsorted(unique, wanted))
        return place if place < len(unique) and unique[place] == wanted else None

    def _asked(self) -> TableSpec:
        name, scale = self._distribution()
        parameters = {"zeros": {}, "constant": {"value": scale}}.get(name, {"scale": scale})
        return TableSpec(
            self.name,
            self.layer.num_embeddings,
            self.layer.embedding_dim,
            str(self._weight.dtype).removeprefix("torch."),
            optimizer=None,
            initializer={"name": name, **parameters},
            seed=0,  # set by the scope
        )

    def _distribution(self) -> tuple[str, float]:
        """Return the distribution of the initial values and its scale, as the module drew them.

        A table draws each row by its id, so it needs their distribution, not the values.
        """
        if self._weight.is_meta:
            return "normal", 1.0
        padding = self.layer.padding_idx
        weight = self._weight[: max(2, MAX_SAMPLE // self.layer.embedding_dim)]
        values = (weight if padding is None else torch.cat([weight[:padding], weight[padding + 1 :]])).double()
        number, low, high = values.numel(), float(values.min()), float(values.max())
        if low == high:
            return ("zeros", 0.0) if low == 0.0 else ("constant", low)
        mean, deviation = float(values.mean()), float(values.std())
        kurtosis = float(((values - mean) / deviation).pow(4).mean())
        error = 5 / math.sqrt(number)  # of a mean, in standard deviations, five times
        name = min(KURTOSIS, key=lambda one: abs(KURTOSIS[one] - kurtosis))
        is_near = abs(mean) <= error * deviation and abs(KURTOSIS[name] - kurtosis) <= max(0.2, 5 * error)
        if not is_near:
            raise ModelFnError(
                (
                    f"{self._owner}.{self.name}: the initial values of this sparse embedding are neither uniform nor "
                    f"normal around 0 (mean {mean:.3g}, deviation {deviation:.3g}), and a table draws them row by row; "
                    "initialize it with nn.init.normal_ or nn.init.uniform_, or take sparse=True out",
                )
            )
        if name == "uniform":
            return name, max(-low, high)
        return name, 1.0 if abs(deviation - 1) <= error else deviation


def _without_weight(kind: type, name: str) -> type:
    """Return the class of a layer whose weight is a table: reading the weight is an error."""

    def refuse(self: Any) -> Any:
        raise ModelFnError(
            (
                f"{name} is a sparse table, of which only the rows of a batch are here: look rows up by calling the "
                "layer, or take sparse=True out",
            )
        )

    return type(kind.__name__, (kind,), {"weight": property(refuse)})


def is_table(layer: Any) -> bool:
    """Return whether the rows of a layer are those of a table."""
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    weight = layer._parameters.get("weight") if isinstance(layer, kinds) else None
    return weight is not None and layer.sparse and weight.requires_grad


def sparse_layers(module: torch.nn.Module, dot: str, owner: str) -> Iterator[SparseLayer]:
    """Yield the embeddings of a module that are tables, each made ready for it.

    Raises ModelFnError if the weight of one has another name, too.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    for layer in filter(is_table, module.modules()):
        if len(tied := names[id(layer.weight)]) > 1:
            raise ModelFnError(
                (
                    f"{owner}: {' and '.join(tied)} are one weight, which cannot be a table and a parameter: take "
                    "sparse=True out, or untie them",
                )
            )
    for prefix, layer in list(module.named_modules()):
        if is_table(layer):
            yield SparseLayer(f"{dot}{prefix}." if prefix else dot, layer, owner)
