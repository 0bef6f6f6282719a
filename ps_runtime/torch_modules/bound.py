"""A torch module whose parameters and buffers are the variables of a model.

Parameters point at the pulled values, without a copy. Statistics of normalization layers, which no gradient moves, are
moving averages on the ps: in training a layer measures its batch, and the push carries that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.utils.parametrizations import _SpectralNorm

from psflow.ps_runtime.errors import ModelFnError, did_you_mean
from psflow.ps_runtime.initializers import constant
from psflow.ps_runtime.model.calls.scope import Declared, ModelScope
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.optimizers import Counter, MovingAverage, Optimizer
from psflow.ps_runtime.optimizers.base import TrainOp
from psflow.ps_runtime.torch_modules.inputs import ForwardArguments, call
from psflow.ps_runtime.torch_modules.random_numbers import seed_step
from psflow.ps_runtime.torch_modules.sparse import SparseLayer, sparse_layers
from psflow.ps_runtime.torch_modules.tracked import LAST_VALUE, TrackedBuffer

ARRAY_DTYPES = frozenset(
    {
        torch.float16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
        torch.bool,
    }
)  # fmt: skip
"""Types of tensors that numpy has, too."""


@dataclass(slots=True)
class HeldTensor:
    """A tensor of a module that holds a variable."""

    name: str
    tensor: torch.Tensor
    declared: Declared
    part: torch.nn.Module | None = None
    """The part of the module that it is a buffer of."""
    value: NDArray[Any] | None = None
    """The pulled value that it points at."""
    version: int = 0
    """Count of writes to the tensor, as torch counts them, when the call began."""

    @property
    def key(self) -> str:
        """The name in its part of the module."""
        return self.name.rpartition(".")[2]

    @property
    def is_replaced(self) -> bool:
        """Whether forward has put another tensor in the place of this buffer."""
        return self.part is not None and getattr(self.part, self.key, None) is not self.tensor

    @property
    def is_changed(self) -> bool:
        """Whether forward has changed it since the call began."""
        return self.is_replaced or self.tensor._version != self.version

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor, owner: str, *, trainable: bool) -> HeldTensor:
        """Describe a tensor; ModelFnError if psflow cannot hold it."""
        if torch.nn.parameter.is_lazy(tensor):
            raise ModelFnError(
                (
                    f"{owner}.{name} has no shape before the first batch: give lazy layers their sizes, such as "
                    "nn.Linear(64, 10) for nn.LazyLinear(10)",
                )
            )
        if tensor.dtype not in ARRAY_DTYPES or tensor.layout != torch.strided:
            kind = str(tensor.dtype).removeprefix("torch.")
            form = "" if tensor.layout == torch.strided else f" with layout {tensor.layout}"
            raise ModelFnError(
                (
                    f"{owner}.{name} is a {kind} tensor{form}, which a ps cannot hold: keep it as real numbers of 32 "
                    "or 64 bits, and convert it in forward, for example under torch.autocast",
                )
            )
        if tensor.device.type != "cpu":
            raise ModelFnError(
                (
                    f"{owner}.{name} is on the device {tensor.device}, where psflow cannot point it at pulled values: "
                    "leave parameters and buffers on the CPU, and move copies to the device in forward",
                )
            )
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ModelFnError(
                (
                    f"{owner}.{name} holds NaN or infinite numbers, which no checkpoint keeps: register a constant, "
                    "such as a mask, with register_buffer(..., persistent=False), and initialize parameters",
                )
            )
        dtype = str(tensor.dtype).removeprefix("torch.")
        return cls(name, tensor, Declared(tuple(tensor.shape), dtype, trainable))

    def begin(self, scope: ModelScope) -> None:
        """Point the tensor at the value of the call."""
        value = scope.variable(self.name, self.declared, self._initial)
        if value is not self.value:
            self.value = value
            self.tensor.data = torch.from_numpy(value)
        self.version = self.tensor._version

    def _initial(self, shape: Any, dtype: Any, rng: Any) -> NDArray[Any]:
        """Return the value that the module was built with, which is an initializer for the variable."""
        array: NDArray[Any] = self.tensor.detach().numpy().copy()
        return array


class _Norm:
    """The running statistics of a normalization layer."""

    def __init__(self, prefix: str, layer: Any, owner: str) -> None:
        self.layer, self.prefix = layer, prefix
        named = {f"{prefix}running_mean": layer.running_mean, f"{prefix}running_var": layer.running_var}
        self.statistics = [HeldTensor.of(name, tensor, owner, trainable=True) for name, tensor in named.items()]
        self._measured = [torch.zeros_like(tensor) for tensor in named.values()]
        self.count_name = f"{prefix}num_batches_tracked"
        self._count = Declared((), "float64", trainable=True)  # an int64 cannot be pushed; exact up to 2**53
        self._first_count = float(layer.num_batches_tracked)
        self.num_before = 0
        self.num_passes = 0
        layer.register_forward_hook(self._count_pass)

    def _count_pass(self, *_: Any) -> None:
        self.num_passes += 1

    @property
    def is_cumulative(self) -> bool:
        """Whether the statistics are means over all batches."""
        return self.layer.momentum is None

    def begin(self, scope: ModelScope) -> None:
        """Give the layer its statistics; or in training, zeros to which it adds those of the batch."""
        self.num_passes = 0
        number = scope.variable(self.count_name, self._count, constant(self._first_count))
        self.num_before = int(number)
        if not self.layer.training:
            self.layer.num_batches_tracked.fill_(self.num_before)
            for held in self.statistics:
                held.begin(scope)
            return
        self.layer.num_batches_tracked.zero_()
        for held, measured in zip(self.statistics, self._measured, strict=True):
            scope.variable(held.name, held.declared, held._initial)
            held.value = None
            held.tensor.data = measured.zero_()

    def rate(self, num_passes: int) -> float:
        """Return the weight of a batch that went through the layer `num_passes` times."""
        if self.is_cumulative:
            return num_passes / (self.num_before + num_passes)
        return float(1.0 - (1.0 - self.layer.momentum) ** num_passes)

    def measured(self) -> dict[str, NDArray[Any]]:
        """Return the statistics of the batch by the names of their variables."""
        share = 1.0 if self.is_cumulative else self.rate(self.num_passes)
        found: dict[str, NDArray[Any]] = {}
        for held, measured in zip(self.statistics, self._measured, strict=True):
            found[held.name] = measured.numpy() / measured.numpy().dtype.type(share)
        return found


class BoundModule:
    """A torch module of this thread, in one call of a model_fn; made by `TorchModule.bound`.

    Attributes
    ----------
    module : torch.nn.Module
        The module itself.
    float_dtype : torch.dtype
        The type of floats that it computes with: that of its first parameter.
    """

    def __init__(
        self, module: torch.nn.Module, label: str, dot: str, rules: Mapping[str, MovingAverage | Counter]
    ) -> None:
        self.module, self.label = module, label
        self._tables = list(sparse_layers(module, dot, self.label))
        self._parameters = [
            HeldTensor.of(dot + name, parameter, self.label, trainable=parameter.requires_grad)
            for name, parameter in module.named_parameters()
        ]
        self._trained = [held for held in self._parameters if held.declared.trainable]
        self._norms = [
            _Norm(f"{dot}{prefix}." if prefix else dot, layer, self.label)
            for prefix, layer in module.named_modules()
            if isinstance(layer, _NormBase) and layer.running_mean is not None and _moves(layer)
        ]
        self._buffers, self._tracked = self._other_buffers(dot, rules)
        floats = [held.tensor.dtype for held in self._parameters if held.tensor.is_floating_point()]
        self.float_dtype = floats[0] if floats else torch.float32
        self._rates: list[float] | None = None
        """For each moving average of the train_op, the weight of a batch in the first call."""
        self._mode: ModeKeys | None = None
        self._copies: dict[str, torch.Tensor] | None = None
        """The values before the first training call, to find changes that torch does not count."""
        self._is_checked = False
        self.scope: ModelScope | None = None
        """That of the present call."""

    def _other_buffers(
        self, dot: str, rules: Mapping[str, MovingAverage | Counter]
    ) -> tuple[list[HeldTensor], list[TrackedBuffer]]:
        """Return the buffers that are constant, and those that `rules` name or that spectral normalization has."""
        norms = {id(norm.layer) for norm in self._norms}
        constant: list[HeldTensor] = []
        tracked: list[TrackedBuffer] = []
        seen: set[int] = set()
        for prefix, part in self.module.named_modules():
            for name, buffer in part._buffers.items():
                is_elsewhere = buffer is None or name in part._non_persistent_buffers_set or id(part) in norms
                if is_elsewhere or id(buffer) in seen:
                    continue
                seen.add(id(buffer))
                held = HeldTensor.of(f"{dot}{prefix}{'.' * bool(prefix)}{name}", buffer, self.label, trainable=False)
                held.part = part
                found = [rule for pattern, rule in rules.items() if fnmatchcase(held.name, pattern)]
                rule = found[0] if found else LAST_VALUE if isinstance(part, _SpectralNorm) else None
                if rule is None:
                    constant.append(held)
                else:
                    tracked.append(TrackedBuffer(held, rule))
        names = [one.name for one in tracked]
        if unused := [pattern for pattern in rules if not any(fnmatchcase(name, pattern) for name in names)]:
            others = [held.name for held in constant]
            raise ModelFnError((f"buffers: {self.label} has no buffer {unused[0]!r}{did_you_mean(unused[0], others)}",))
        return constant, tracked

    def begin(self, scope: ModelScope, mode: ModeKeys, config: Any) -> None:
        """Give the module its mode, its values, and in training its random numbers."""
        is_training = mode == ModeKeys.TRAIN
        if mode != self._mode:
            self.module.train(is_training)  # which may be the user's, to keep a part in evaluation
        self.scope, self._mode = scope, mode
        for held in (*self._parameters, *self._buffers):
            held.begin(scope)
        parts: list[_Norm | SparseLayer | TrackedBuffer] = [*self._norms, *self._tables, *self._tracked]
        for part in parts:
            part.begin(scope)
        if is_training:
            if not self._is_checked:
                fixed = (*self._parameters, *self._buffers)
                self._copies = {one.name: one.tensor.detach().clone() for one in fixed}
            seed_step(scope, config)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Return what forward returns; with a graph for gradients in training only.

        Raises ModelFnError with the user's line and the shapes of the arguments if it fails.
        """
        with torch.set_grad_enabled(self._mode == ModeKeys.TRAIN):
            return call(self.module, self._mode, *arguments, **named)

    @cached_property
    def arguments(self) -> ForwardArguments:
        """Chooses the features that forward takes."""
        return ForwardArguments(self.module.forward, self.label)

    def train_ops(
        self, optimizer: Optimizer, outputs: torch.Tensor, gradient: torch.Tensor | None = None
    ) -> list[TrainOp]:
        """Return the updates of one batch: the gradients of parameters, and what normalization layers measured.

        Parameters
        ----------
        optimizer : Optimizer
            Trains the parameters.
        outputs : torch.Tensor
            The loss; or other outputs, with their gradient.
        gradient : torch.Tensor, optional
            The gradient of the loss with respect to `outputs`.

        Raises
        ------
        ModelFnError
            If `outputs` depend on no trainable parameter; or if forward has changed a parameter or a buffer in place.
        """
        leaves = [leaf for table in self._tables for leaf in table.leaves]
        if not outputs.requires_grad or not (self._trained or leaves):
            raise ModelFnError(
                (
                    f"the loss of {self.label} depends on no parameter that requires a gradient: do not call detach() "
                    "or numpy() in forward, and leave requires_grad on",
                )
            )
        wanted = [*(held.tensor for held in self._trained), *leaves]
        if gradient is not None:  # handed to torch as it is, it would import sympy, which takes half a second
            outputs = (outputs * gradient).sum()
        found = list(torch.autograd.grad(outputs, wanted, allow_unused=True))
        self._check_unchanged()
        gradients: dict[str, Any] = {
            held.name: (value.to_dense() if value.is_sparse else value).numpy()
            for held, value in zip(self._trained, found, strict=False)
            if value is not None
        }
        del found[: len(self._trained)]
        for table in self._tables:
            gradients[table.name] = table.gradient([found.pop(0) for _ in table.leaves])
        trained = (*(held.name for held in self._trained), *(table.name for table in self._tables))
        ops = [replace(optimizer.apply_gradients(gradients), var_list=trained)]
        return [*ops, *self._averages(), *self._tracked_ops()]

    def _averages(self) -> Iterator[TrainOp]:
        active = [norm for norm in self._norms if norm.layer.training]
        if not active:
            return
        groups: dict[float, list[_Norm]] = {}
        for norm in active:
            passes = norm.num_passes or 1
            key = 0.0 if norm.is_cumulative else norm.rate(passes)
            groups.setdefault(key, []).append(norm)
        if self._rates is None:
            self._rates = list(groups)
        if not groups.keys() <= set(self._rates):
            raise ModelFnError(
                (
                    f"{self.label} calls a normalization layer another number of times than in its first step: "
                    + ", ".join(f"{norm.prefix.rstrip('.')} {norm.num_passes}" for norm in active),
                )
            )
        for key in self._rates:
            norms = groups.get(key, [])
            used = [norm for norm in norms if norm.num_passes]
            rate = key or (used[0].rate(used[0].num_passes) if used else 1.0)
            measured = {name: value for norm in used for name, value in norm.measured().items()}
            names = tuple(held.name for norm in norms for held in norm.statistics)
            yield replace(MovingAverage(rate).apply_gradients(measured), var_list=names)
        counted = {norm.count_name: float(norm.layer.num_batches_tracked) for norm in active}
        counts = {name: np.float64(number) for name, number in counted.items() if number}  # torch counts in some layers
        yield replace(Counter().apply_gradients(counts), var_list=tuple(norm.count_name for norm in active))

    def _tracked_ops(self) -> Iterator[TrainOp]:
        for rule in dict.fromkeys(one.rule for one in self._tracked):
            of_rule = [one for one in self._tracked if one.rule == rule]
            pushed = {one.name: one.pushed() for one in of_rule}  # without those that are None
            yield replace(rule.apply_gradients(pushed), var_list=tuple(pushed))

    def _check_unchanged(self) -> None:
        """Refuse writes to parameters and buffers: the next pull would undo them."""
        copies, self._copies, self._is_checked = self._copies or {}, None, True
        for held in (*self._parameters, *self._buffers):
            before = copies.get(held.name)
            if held.is_changed or (before is not None and not torch.equal(before, held.tensor)):
                raise ModelFnError((_changed(self.label, held, "replaces" if held.is_replaced else "changes"),))


def _moves(layer: Any) -> bool:
    """Return whether training moves the running statistics of a layer: without a momentum, only a mean of all."""
    return isinstance(layer, _BatchNorm) if layer.momentum is None else bool(layer.momentum)


def _changed(label: str, held: HeldTensor, what: str) -> str:
    if held.part is None:
        return (
            f"{label} {what} its parameter {held.name} in place in training, which only the optimizer on the ps can: "
            "the next pull would undo it; compute a new tensor in forward"
        )
    return (
        f"{label} {what} its buffer {held.name} in training, and psflow does not know how the values of several "
        f"replicas become one: say so by buffers={{{held.name!r}: MovingAverage(0.1)}}, with the weight of a batch, or "
        "Counter() where each adds; a temporary value needs register_buffer(..., persistent=False)"
    )
