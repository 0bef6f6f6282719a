"""The base of optimizers: frozen descriptions with a pure, in-place update of a whole arena."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from numbers import Integral
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ModelFnTypeError, UsageError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.numeric import is_number, is_of_torch
from psflow.ps_runtime.optimizers.hyper_parameters import hyper_parameters, is_known, remember

FloatArray = NDArray[np.floating[Any]]
Slots = Mapping[str, FloatArray]


class Schedule(ABC):
    """A learning rate as a function of global_step, which a configuration can name."""

    @abstractmethod
    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step`."""


Evaluations = Callable[[str], Mapping[int, Mapping[str, float]]]
"""Returns the metrics of the evaluations of a name so far, by global_step."""


def no_evaluations(name: str) -> Mapping[int, Mapping[str, float]]:
    """Return no evaluation."""
    return {}


class EvaluatedSchedule(Schedule):
    """A schedule that depends on evaluations, too."""

    eval_name: str | None
    metric: str

    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step` without any evaluation."""
        return self.rate(global_step, no_evaluations)

    @abstractmethod
    def rate(self, global_step: int, evaluations: Evaluations) -> float:
        """Return the learning rate at `global_step`."""


LearningRate = Annotated[
    float | Schedule | Callable[[int], float], Key("Step size of an update, 0 or more; or a schedule.")
]

SMALLEST = float(np.finfo(np.float32).tiny)
"""Lower bound of numbers that keep a divisor above zero: smaller ones could be zero in float32."""


CLIPS = ("clip_norm", "clip_variable_norm", "clip_value")


class UpdateOperands(NamedTuple):
    """The operands of one update of an optimizer.

    Parameters
    ----------
    parameters, gradients : (size,) arrays of one float dtype
        `parameters` changes; `gradients` may serve as scratch and is undefined afterwards.
    slots : mapping of slot name to (size,) array
        Changed in place.
    scratch : (size,) array of the same dtype
        Free to overwrite, so that an update allocates nothing.
    learning_rate : float
        Step size of this update.
    num_updates : int
        Number of updates of this arena, including this one (1, 2, ...).
    """

    parameters: FloatArray
    gradients: FloatArray
    slots: Slots
    scratch: FloatArray
    learning_rate: float
    num_updates: int


@dataclass(frozen=True)
class Optimizer(ABC):
    """An update rule over one flat array of parameters.

    Every rule is elementwise, so it works for a whole arena, a shard of it or a run of variables.

    Parameters
    ----------
    learning_rate : float or callable
        Step size, finite and >= 0; or a schedule ``f(global_step) -> float``, which the worker evaluates for each push.
        NaN where the rule is only applied, as on a ps: there each update has its own step size.
    clip_norm : float, optional
        Largest norm of all gradients of a step together; larger ones are scaled down to it, as by
        ``tf.clip_by_global_norm`` and ``torch.nn.utils.clip_grad_norm_``. > 0.
    clip_variable_norm : float, optional
        Largest norm of the gradient of each variable, as by ``tf.clip_by_norm``. > 0.
    clip_value : float, optional
        Largest absolute value of a gradient, as by ``tf.clip_by_value`` and ``torch.nn.utils.clip_grad_value_``. > 0.

    Raises
    ------
    UsageError
        If a hyper-parameter has the wrong type or is outside its range, with all faults in one error; or if the class
        is not a dataclass, or lacks the initial value of a slot.

    Notes
    -----
    A replica clips its gradients, which it holds whole, before it pushes them: the number of ps changes nothing. The
    gradients of an id that occurs several times are added first. Of several clips `clip_value` comes first, then
    `clip_variable_norm`, then `clip_norm`.
    """

    learning_rate: LearningRate
    _: KW_ONLY
    clip_norm: Annotated[float | None, Key("Largest norm of all gradients of a step together; null: any.")] = None
    clip_variable_norm: Annotated[float | None, Key("Largest norm of the gradient of each variable; null: any.")] = None
    clip_value: Annotated[float | None, Key("Largest absolute value of a gradient; null: any.")] = None

    slot_names: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays that the rule keeps for the parameters, each of their shape and dtype."""
    is_scaled_by_staleness: ClassVar[bool] = True
    """Whether a consistency that divides learning rates by the staleness of a push does so here."""
    takes_gradients: ClassVar[bool] = True
    """Whether pushes carry gradients; otherwise measured state, which a `WireFormat` does not round."""

    def __post_init__(self) -> None:
        if is_known(self):
            return  # as in nearly each call of a model_fn
        faults = list(self._type_faults()) or [*self._range_faults(), *self._slot_faults()]
        if faults:
            raise UsageError(tuple(f"{type(self).__name__}: {fault}" for fault in faults))
        for name, default in hyper_parameters(type(self)):
            if type(default) is float and type(getattr(self, name)) is not float:
                # 0, 0.0 and np.float32(0) are one configuration, with one JSON form
                object.__setattr__(self, name, float(getattr(self, name)))
        remember(self)

    def learning_rate_at(self, global_step: int, evaluations: Evaluations = no_evaluations) -> float:
        """Return the step size at `global_step`, given the evaluations of the training.

        Raises
        ------
        UsageError
            If it is negative, infinite or NaN.
        """
        rate = self.learning_rate
        if type(rate) is float:
            value = rate
        elif isinstance(rate, EvaluatedSchedule):
            value = rate.rate(global_step, evaluations)
        else:
            value = float(rate(global_step)) if callable(rate) else float(rate)
        if not 0.0 <= value < math.inf:
            raise UsageError(
                (
                    f"{type(self).__name__}: learning_rate is {value} at global_step {global_step}, "
                    "expected a finite number >= 0; correct the schedule",
                )
            )
        return value

    @property
    def clips(self) -> bool:
        """Whether gradients are clipped."""
        return self.clip_norm is not None or self.clip_variable_norm is not None or self.clip_value is not None

    def config(self) -> dict[str, Any]:
        """Return name and hyper-parameters as plain data that a checkpoint must match.

        Without learning rate and clips, which replicas apply.
        """
        of_update = (name for name, _ in hyper_parameters(type(self)) if name not in CLIPS)
        return {"name": _name(type(self))} | {name: getattr(self, name) for name in of_update}

    def apply_gradients(self, gradients: Mapping[str, Any], global_step: int | None = None) -> TrainOp:
        """Train with gradients that model_fn computes manually: the fast way.

        Parameters
        ----------
        gradients : mapping of name to array of the variable's shape, or for a table to SparseGradient
            A variable that is missing, or whose gradient is None, does not change, nor do its slots.
        global_step : int, optional
            The result of `get_or_create_global_step`, or None: each update is one step, with or without it.

        Returns
        -------
        TrainOp
            For `EstimatorSpec.train_op`.

        Raises
        ------
        ModelFnTypeError
            If `gradients` is not a mapping.
        """
        if type(gradients) is not dict and not isinstance(gradients, Mapping):
            raise ModelFnTypeError(
                (
                    "apply_gradients: gradients should be a mapping of variable names to arrays, "
                    f"got {type(gradients).__name__}",
                )
            )
        return TrainOp(
            self,
            gradients={n: g for n, g in gradients.items() if g is not None},
            global_step=_step_of("apply_gradients", global_step),
        )

    def minimize(self, loss: Any, global_step: int | None = None, var_list: Sequence[str] | None = None) -> TrainOp:
        """Train with the gradients of `loss`, which autograd derives from model_fn.

        Parameters
        ----------
        loss : scalar
            Computed with ``autograd.numpy``; also the `loss` of the EstimatorSpec.
        global_step : int, optional
            The result of `get_or_create_global_step`, or None: each update is one step, with or without it.
        var_list : sequence of str, optional
            Names of the variables and tables to train; default: all trainable variables, and all tables that were
            looked up.

        Returns
        -------
        TrainOp
            For `EstimatorSpec.train_op`.

        Raises
        ------
        ModelFnTypeError
            If `loss` is a tuple, `global_step` not an integer, or `var_list` not a sequence of names.
        """
        if isinstance(loss, tuple):
            raise ModelFnTypeError(
                (
                    "minimize: loss should be a number, got a tuple; a function of psflow.losses returns the loss and "
                    "its gradient, for apply_gradients: for minimize compute the loss with `import autograd.numpy`",
                )
            )
        if is_of_torch(type(loss)):
            raise ModelFnTypeError(
                (
                    "minimize: loss is a tensor of torch: return psflow.torch.spec(mode, net, loss=loss, "
                    "optimizer=...) from model_fn, or use psflow.torch.TorchEstimator",
                )
            )
        return TrainOp(self, loss=loss, var_list=_names_of(var_list), global_step=_step_of("minimize", global_step))

    @abstractmethod
    def initial_slot(self, name: str) -> float:
        """Return the initial value of slot `name`."""

    @abstractmethod
    def update(self, operands: UpdateOperands) -> None:
        """Apply one gradient in place.

        Parameters
        ----------
        operands : UpdateOperands
            The arrays that the update changes in place, and its learning rate.

        Notes
        -----
        Deterministic; allocates no array; not thread-safe.
        """

    def _range_faults(self) -> Iterator[str]:
        """Yield the hyper-parameters outside their range; their types are checked before."""
        rate = self.learning_rate
        if not callable(rate) and (rate < 0.0 or math.isinf(rate)):
            yield f"learning_rate is {rate}, expected a finite number >= 0"
        for name in CLIPS:
            value = getattr(self, name)
            if value is not None and not 0.0 < value < math.inf:
                yield f"{name} is {value}, expected a finite number > 0"

    def _slot_faults(self) -> Iterator[str]:
        for name in self.slot_names:
            try:
                value = self.initial_slot(name)
            except LookupError:
                yield f"initial_slot has no value for the slot {name!r}, which is in slot_names"
            else:
                if not math.isfinite(value):
                    yield f"initial_slot({name!r}) is {value}, expected a finite number"

    def _type_faults(self) -> Iterator[str]:
        if not is_number(self.learning_rate) and not callable(self.learning_rate):
            yield f"learning_rate is {self.learning_rate!r}, expected a number or a schedule f(global_step) -> float"
        for name, default in hyper_parameters(type(self)):
            value = getattr(self, name)
            if value is None and default is None:
                continue
            if not (isinstance(value, bool) if isinstance(default, bool) else is_number(value)):
                yield f"{name} is {value!r}, expected {'True or False' if isinstance(default, bool) else 'a number'}"


@dataclass(frozen=True)
class DecayingOptimizer(Optimizer):
    """An optimizer that can draw parameters towards 0.

    Parameters
    ----------
    weight_decay : float
        The gradient grows by ``weight_decay * p``, as in ``torch.optim``: an L2 penalty of half of it. >= 0.

    Notes
    -----
    Of a sparse table only the rows of a push are drawn.
    """

    _: KW_ONLY
    weight_decay: Annotated[float, Key("Share of each parameter that is added to its gradient, 0 or more.")] = 0.0

    def decay_weights(self, operands: UpdateOperands) -> None:
        """Draw the parameters towards 0, by their gradients; the first thing of an update."""
        if self.weight_decay:
            np.multiply(operands.parameters, self.weight_decay, out=operands.scratch)
            np.add(operands.gradients, operands.scratch, out=operands.gradients)

    def _range_faults(self) -> Iterator[str]:
        yield from super()._range_faults()
        if not 0.0 <= self.weight_decay < math.inf:
            yield f"weight_decay is {self.weight_decay}, expected a finite number >= 0"


@lru_cache
def _name(kind: type[Optimizer]) -> str:
    """Return the name of an optimizer in checkpoints and configurations; a user's class includes its module."""
    is_ours = kind.__module__.startswith("psflow.")
    return kind.__qualname__ if is_ours else f"{kind.__module__}:{kind.__qualname__}"


def move_mean(mean: FloatArray, values: FloatArray, decay: float, scratch: FloatArray) -> None:
    """Set `mean` to ``decay * mean + (1 - decay) * values``."""
    np.multiply(mean, decay, out=mean)
    np.multiply(values, 1.0 - decay, out=scratch)
    np.add(mean, scratch, out=mean)


def above_zero(epsilon: float, dtype: np.dtype[np.floating[Any]]) -> float:
    """Return `epsilon`, or the smallest normal number of `dtype` where `epsilon` would be rounded to less.

    Examples
    --------
    >>> above_zero(1e-8, np.dtype(np.float32)), above_zero(1e-8, np.dtype(np.float16))
    (1e-08, 6.103515625e-05)
    """
    return max(epsilon, _tiny(dtype))


@lru_cache
def _tiny(dtype: np.dtype[np.floating[Any]]) -> float:
    return float(np.finfo(dtype).tiny)


def _step_of(caller: str, global_step: Any) -> int | None:
    if global_step is None:
        return None
    if isinstance(global_step, Integral) and not isinstance(global_step, bool):
        return int(global_step)
    raise ModelFnTypeError(
        (f"{caller}: global_step should be the number of get_or_create_global_step(), got {global_step!r}",)
    )


def _names_of(var_list: Any) -> tuple[str, ...] | None:
    if var_list is None:
        return None
    names = () if isinstance(var_list, str) else tuple(var_list)
    if isinstance(var_list, str) or not all(isinstance(name, str) for name in names):
        raise ModelFnTypeError((f"minimize: var_list should be a sequence of variable names, got {var_list!r}",))
    return names


@dataclass(frozen=True, slots=True)
class TrainOp:
    """The update that one call of model_fn requests: given `gradients`, or those of `loss`."""

    optimizer: Optimizer
    gradients: Mapping[str, Any] | None = None
    loss: Any = None
    var_list: tuple[str, ...] | None = None
    global_step: int | None = None
    """The step of the update, if model_fn passed it."""
