"""Memory for gradients: where they go anyway."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from psflow.ps_runtime.model.scope import current_scope

__all__ = ["gradient_buffer"]


def gradient_buffer(name: str) -> NDArray[Any]:
    """Return an array to make the gradient of a variable in, so that it need not be copied before it is pushed.

    Parameters
    ----------
    name : str
        Of a trainable variable, after `get_variable` was called for it.

    Returns
    -------
    array of the variable's shape and dtype
        Its content is undefined. Fill all of it and give it to `apply_gradients`. Valid during this call of model_fn.

    Raises
    ------
    ModelFnError
        Outside a model_fn; for a name that is no trainable variable of the model; for the same name a second time.

    Notes
    -----
    With one ps, and without sparse tables, it is the memory that is sent, or that the ps itself reads. Elsewhere it is
    ordinary memory, and the gradient is copied as any other.

    Examples
    --------
    >>> def model_fn(features, labels, mode):
    ...     w = get_variable("w", (10_000_000,))
    ...     gradient = np.multiply(w, 0.01, out=gradient_buffer("w"))
    ...     train_op = GradientDescent(learning_rate=0.1).apply_gradients({"w": gradient})
    ...     return EstimatorSpec(mode, loss=w[0], train_op=train_op)
    """
    return current_scope("gradient_buffer").gradient_buffer(name)
