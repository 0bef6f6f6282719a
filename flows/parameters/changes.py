"""The configuration keys in which a start of a job differs from its last start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_never

from psflow.flows.parameters.on_resume import OnResume, declared
from psflow.flows.parameters.train import TrainParameters
from psflow.ps_runtime.config.files import Origin, Settings
from psflow.ps_runtime.config.keys import flat
from psflow.ps_runtime.redaction import without_secrets

__all__ = ["Change", "changes"]

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
        """Whether the job with it is another one."""
        match declared(TrainParameters, self.key):
            case OnResume.LEARNED:
                return True
            case OnResume.MEASURED:  # unless a whole evaluation comes or goes
                return not (self.key.startswith("evals.") and NOT_SET in (self.old, self.new))
            case OnResume.FREE:
                return False
            case unknown:
                assert_never(unknown)

    def __str__(self) -> str:
        origin = f" ({self.origin})" if self.origin else ""
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)}{origin}"


def changes(old: TrainParameters, new: TrainParameters, settings: Settings) -> list[Change]:
    """Return the keys whose value differs, in the order of `new`; both are resolved."""
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
