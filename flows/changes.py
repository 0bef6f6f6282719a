"""What a start of a job asks for that differs from what the job was told before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flows.parameters import TrainParameters
from ps_runtime.config.files import Origin
from ps_runtime.data.files import without_secrets

__all__ = ["Change", "changes"]

LEARNED = ("model", "input.train", "seed", "pipeline_depth", "train.consistency")
"""Keys that alter what is learned; the optimizer is a part of the model."""
MEASURED = ("input.eval", "eval.steps")
"""Keys that alter what the figures of an evaluation mean: those before and after would stand in one curve."""

NOT_SET = object()


@dataclass(frozen=True, slots=True)
class Change:
    """One key, by its dotted name, that had another value; `origin` says where the new one was set, if anywhere."""

    key: str
    old: Any
    new: Any
    origin: Origin | None = None

    @property
    def alters_the_job(self) -> bool:
        """Whether the job with it is another one; else it says only how long, where or how closely watched."""
        return any(f"{self.key}.".startswith(f"{key}.") for key in (*LEARNED, *MEASURED))

    def __str__(self) -> str:
        origin = f" ({self.origin})" if self.origin else ""
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)}{origin}"


def changes(old: TrainParameters, new: TrainParameters, origins: Mapping[str, Origin]) -> list[Change]:
    """Return the keys whose value differs, in the order of `new`; both are resolved.

    Parameters
    ----------
    old, new : TrainParameters
    origins : mapping of dotted key to Origin
        Of the values of `new`; may be empty.
    """
    before, now = (dict(_flat(parameters.model_dump(mode="json"))) for parameters in (old, new))
    return [
        Change(key, before.get(key, NOT_SET), now.get(key, NOT_SET), _origin(key, origins))
        for key in dict.fromkeys([*now, *before])
        if before.get(key) != now.get(key)
    ]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _origin(key: str, origins: Mapping[str, Origin]) -> Origin | None:
    """Return where `key`, or else a key above it, was set."""
    while key:
        if key in origins:
            return origins[key]
        key = key.rpartition(".")[0]
    return None


def _shown(value: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    if value is NOT_SET:
        return "not set"
    return words[value] if value is None or isinstance(value, bool) else without_secrets(str(value))
