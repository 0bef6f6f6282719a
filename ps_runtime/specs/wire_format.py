"""Wire formats: in which number format gradients and parameters travel over TCP."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from psflow.ps_runtime.specs.arguments import ArgumentFaults

NumberFormat = Literal["float32", "bfloat16"]
NUMBER_FORMATS: tuple[str, ...] = get_args(NumberFormat)


@dataclass(frozen=True)
class WireFormat:
    """The number formats in which float32 gradients and parameters travel between a replica and a ps over TCP.

    Parameters
    ----------
    gradients : str
        ``float32``, or ``bfloat16``: half the bytes, with 8 significant bits. A ps widens what it receives, and sums
        and updates in float32.
    parameters : str
        The same for what replicas pull, and their hooks see. The ps keeps float32: checkpoints, evaluations and exports
        have all bits.

    Raises
    ------
    UsageError
        If a format is unknown.

    Notes
    -----
    A number is rounded to the nearest bfloat16, of two equally near ones to the even one. NaN and infinity remain; a
    finite number beyond the largest bfloat16, 3.39e38, becomes that one.

    Numbers of other types stay exact, as do variables and tables that no gradient trains: those without an optimizer,
    and state such as a `Counter` or a `MovingAverage`. So does everything in one process and over shared memory or a
    Unix socket, where fewer bytes would gain nothing.

    References
    ----------
    ``torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook``.

    Examples
    --------
    >>> WireFormat(gradients="bfloat16")
    WireFormat(gradients='bfloat16', parameters='float32')
    """

    gradients: NumberFormat = "float32"
    parameters: NumberFormat = "float32"

    def __post_init__(self) -> None:
        faults = ArgumentFaults()
        for field in fields(self):
            given = getattr(self, field.name)
            if given not in NUMBER_FORMATS:
                expected = " or ".join(NUMBER_FORMATS)
                faults.add(f"WireFormat.{field.name} should be {expected}, got {given!r}")
        faults.raise_any()


EXACT = WireFormat()
"""The format of all connections but those of replicas over TCP."""
