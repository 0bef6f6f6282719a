"""What a start of a job asks for that differs from what the job was told before."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from psflow.flows.parameters.train import TrainParameters
from psflow.ps_runtime.config.files import Origin, Settings
from psflow.ps_runtime.config.keys import flat
from psflow.ps_runtime.data.files import without_secrets

__all__ = ["Change", "changes"]

LEARNED = ("model", "input.train", "seed", "pipeline_depth", "train.consistency")
"""Keys that alter what is learned; the optimizer is a part of the model."""
MEASURED = re.compile(r"input\.eval\.|eval\.steps|evals\..+\.(input\.|steps)")
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
        if any(f"{self.key}.".startswith(f"{key}.") for key in LEARNED):
            return True
        is_another = self.key.startswith("evals.") and NOT_SET in (self.old, self.new)  # it comes or goes as a whole
        return MEASURED.match(self.key) is not None and not is_another

    def __str__(self) -> str:
        origin = f" ({self.origin})" if self.origin else ""
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)}{origin}"


def changes(old: TrainParameters, new: TrainParameters, settings: Settings) -> list[Change]:
    """Return the keys whose value differs, in the order of `new`; both are resolved.

    Parameters
    ----------
    old, new : TrainParameters
        Of the last start of a job, and of this one.
    settings : Settings
        From which `new` was made, for the origins; may be empty.
    """
    before, now = (dict(flat(parameters.model_dump(mode="json"))) for parameters in (old, new))
    return [
        Change(key, before.get(key, NOT_SET), now.get(key, NOT_SET), settings.origin(key))
        for key in dict.fromkeys([*now, *before])
        if before.get(key) != now.get(key)
    ]


def _shown(value: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    if value is NOT_SET:
        return "not set"
    return words[value] if value is None or isinstance(value, bool) else without_secrets(str(value))
