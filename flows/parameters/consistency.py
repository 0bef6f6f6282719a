"""How the pushes of several replicas become updates: a name, or a mapping of a name and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psflow.flows.parameters.choices import Choice
from psflow.flows.parameters.kinds import CheckedParameters, parameters_of
from psflow.ps_runtime.specs.consistency import CONSISTENCIES

__all__ = ["KINDS", "ConsistencyParameters"]

KINDS: dict[str, type[CheckedParameters]] = {
    name: parameters_of(kind, f"{kind.__name__}Parameters", CheckedParameters, {"name": name}, {})
    for name, kind in CONSISTENCIES.items()
}

if TYPE_CHECKING:
    ConsistencyParameters = CheckedParameters
else:
    ConsistencyParameters = Choice("consistency", KINDS, is_named_alone=True).annotation
