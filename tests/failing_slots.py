"""Dask workers that are lost or hang, as they are reported to the supervisor of their roles."""

from __future__ import annotations

from collections.abc import Collection

from psflow.ps_runtime.cluster.incarnations import FailureKind, MemberFailure
from psflow.ps_runtime.cluster.role_records import RoleRecords
from psflow.ps_runtime.specs.roles import RoleId

__all__ = ["hang", "lose_slots"]


def lose_slots(records: RoleRecords, slots: Collection[str], *, in_order: bool = False) -> None:
    """Lose all Dask workers at these addresses, as `Membership` does."""
    kind = FailureKind.CLOSED if in_order else FailureKind.LOST
    for role, incarnation, slot in records.members():
        if slot in slots:
            reason = f"its Dask worker {slot} was {kind.value}"
            records.lose(MemberFailure(role, incarnation, kind, reason, records._clock()))


def hang(records: RoleRecords, role: RoleId, incarnation: int, reason: str) -> None:
    """Have an incarnation hang."""
    records.lose(MemberFailure(role, incarnation, FailureKind.HANG, reason, records._clock()))
