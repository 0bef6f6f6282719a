"""A torch module by what builds it, of which each thread has its own."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray

from psflow.ps_runtime.data.user_code import user_code
from psflow.ps_runtime.errors import ModelFnError, UsageError, did_you_mean
from psflow.ps_runtime.model.calls.scope import BuildScope, ModelScope, current_scope
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.optimizers import Counter, MovingAverage
from psflow.ps_runtime.torch_modules.bound import BoundModule
from psflow.ps_runtime.torch_modules.random_numbers import any_seed
from psflow.ps_runtime.torch_modules.state import StateFile, fill

MAX_TABLES_BYTES = 64 << 20
"""Size of the tables up to which an export has a state_dict beside them."""
MAX_MODULES = 8
"""Modules that a thread keeps: those of a model, and of several models that take turns."""

_here = threading.local()
"""The modules of this thread."""


@dataclass(frozen=True)
class TorchModule:
    """A torch module by what builds it: each process and each export builds its own.

    Parameters
    ----------
    build : callable
        A subclass of ``torch.nn.Module``, or a function that returns a module; at the top level of its module.
    arguments : mapping
        Its keyword arguments.
    buffers : mapping of str to MovingAverage or Counter
        How the values of several replicas become one, for buffers that the module changes in training: by names or
        patterns such as ``"*.ema"``. A `MovingAverage` has the weight that a batch has in the module, 1 if each batch
        sets a new value. Batch, instance and spectral normalization need no entry.
    name : str
        Prefix of the names of its variables, where a model has several modules; ``"left"`` makes them ``left.<name>``.

    Raises
    ------
    UsageError
        If `build` has no such argument, or lacks one; or if `buffers` holds something else.

    Examples
    --------
    A model_fn with a torch module of its own::

        NET = TorchModule(Net, {"hidden": 100})

        def model_fn(features, labels, mode, config):
            net = NET.bound(mode, config)
            outputs = net(torch.from_numpy(features))
            if mode == ModeKeys.PREDICT:
                return psflow.torch.spec(mode, net, predictions={"outputs": outputs})
            loss = torch.nn.functional.mse_loss(outputs, torch.from_numpy(labels))
            return psflow.torch.spec(mode, net, loss=loss, optimizer=Adam(0.001))
    """

    build: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    buffers: Mapping[str, MovingAverage | Counter] = field(default_factory=dict)
    name: str = ""
    state: StateFile | None = field(default=None, metadata={"is_exported": False})
    """The initial values of a new training."""

    def __post_init__(self) -> None:
        faults = [f"arguments: {fault}" for fault in argument_faults(self.build, self.arguments)]
        faults += [
            f"buffers[{name!r}] is {rule!r}, expected MovingAverage(weight) or Counter()"
            for name, rule in self.buffers.items()
            if not isinstance(rule, MovingAverage | Counter) or callable(rule.learning_rate)
        ]
        if faults:
            raise UsageError(tuple(faults))

    @property
    def label(self) -> str:
        """The name in messages."""
        return _label(self.build)

    def bound(self, mode: ModeKeys, config: Any = None) -> BoundModule:
        """Return the module of this thread, with the values of the current call of a model_fn.

        Parameters
        ----------
        mode : ModeKeys
            That of the call; in TRAIN the module is in training mode, and its outputs have gradients.
        config : RunConfig, optional
            The `config` of model_fn: several replicas draw different random numbers.

        Raises
        ------
        ModelFnError
            Outside a model_fn; if it cannot be built, or has a parameter that psflow cannot hold.
        """
        scope = current_scope("a torch module")
        bound: list[tuple[TorchModule, BoundModule]] = _here.__dict__.setdefault("bound", [])
        found = next((made for module, made in bound if self._equals(module)), None)
        if found is None or (isinstance(scope, BuildScope) and found.scope is not scope):
            bound[:] = [pair for pair in bound if not self._equals(pair[0])][-MAX_MODULES + 1 :]
            module = self._built(scope)
            if self.state is not None and isinstance(scope, BuildScope) and mode == ModeKeys.TRAIN:
                self.state.load(module)
            found = BoundModule(module, self.label, self.dot, self.buffers)
            bound.append((self, found))
        if found.scope is not scope:
            found.begin(scope, mode, config)
        return found

    def _equals(self, other: TorchModule) -> bool:
        """Return whether both build the same module; not if they differ in arrays, which have no truth value."""
        try:
            return self is other or self == other
        except (ValueError, RuntimeError):
            return False

    def filled(self, values: ModelValues) -> torch.nn.Module:
        """Return a new module, in evaluation mode, with the values of a model."""
        module = self._new(0)
        fill(module, values, self.dot)
        return module.eval()

    def state_dict_of(self, values: ModelValues) -> dict[str, NDArray[Any]] | None:
        """Return the state_dict of the module with the values of a model; None if it has large tables."""
        sizes = (table.spec.num_rows * table.spec.row_nbytes for table in values.tables.values())
        if sum(sizes) > MAX_TABLES_BYTES:
            return None
        state = self.filled(values).state_dict()
        return {self.dot + name: value.numpy() for name, value in state.items() if isinstance(value, torch.Tensor)}

    @property
    def dot(self) -> str:
        """The beginning of the names of its variables."""
        return f"{self.name}." if self.name else ""

    def _built(self, scope: ModelScope) -> torch.nn.Module:
        if scope.seed is None:
            return self._new(0)
        module = self._new(scope.seed)
        if isinstance(scope, BuildScope) and (unregistered := dict(_unregistered(module))):
            again = dict(_unregistered(self._new(scope.seed + 1)))
            for name, value in unregistered.items():
                if name in again and not torch.equal(value, again[name]):
                    raise ModelFnError(
                        (
                            f"{self.label}.{name} is random, and neither a parameter nor a persistent buffer, so that "
                            f"each process would have its own: register it with register_buffer({name!r}, ...)",
                        )
                    )
        return module

    def _new(self, seed: int) -> torch.nn.Module:
        given = ", ".join(self.arguments)
        when = f"with the arguments {given}" if given else "without arguments"
        with any_seed(seed), user_code(self.build, ModelFnError, when):
            module = self.build(**self.arguments)
        if not isinstance(module, torch.nn.Module):
            raise ModelFnError((f"{self.label} returned a {type(module).__name__}, expected a torch.nn.Module",))
        return module


def argument_faults(build: Callable[..., Any], arguments: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each of `arguments` that what builds a module does not take, and for each missing one."""
    try:
        parameters = inspect.signature(build).parameters
    except (TypeError, ValueError):  # some callables of extension modules have no signature
        return []
    by_name = {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    label, free = _label(build), [name for name in by_name if name not in arguments]
    taken = f"; it takes {', '.join(by_name)}" if by_name else "; it takes none"
    faults = [
        f"{label} takes no {name!r}{did_you_mean(name, free) or taken}"
        for name in arguments
        if not takes_any and name not in by_name
    ]
    missing = [name for name in free if by_name[name].default is inspect.Parameter.empty]
    return [*faults, *(f"{label} needs {name!r}, which is not given{taken}" for name in missing)]


def _label(build: Callable[..., Any]) -> str:
    return getattr(build, "__qualname__", repr(build))


def _unregistered(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a module that its state_dict lacks."""
    for prefix, part in module.named_modules():
        dots = f"{prefix}." if prefix else ""
        for name, value in vars(part).items():
            is_computed = any(f"{name}_{ending}" in part._parameters for ending in ("orig", "g"))  # in each forward
            if isinstance(value, torch.Tensor) and value.grad_fn is None and not is_computed:
                yield dots + name, value
        for name in part._non_persistent_buffers_set:
            if (value := part._buffers[name]) is not None:
                yield dots + name, value
