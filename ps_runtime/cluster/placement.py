"""Assigns roles to free slots: on which host, and on which Dask worker there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, assert_never, get_args
from urllib.parse import urlsplit

from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.specs.roles import Role, RoleId

Placement = Literal["spread", "pack"]

SLOT_TIMEOUT_SECS = 300.0
"""For a slot, once the job cannot train without it, or has no other role left, unless the configuration says else."""

RESOURCE, RESOURCE_OF_PS, RESOURCE_OF_OTHERS = "psflow", "psflow-ps", "psflow-worker"
"""Dask resources that a worker may declare: for all roles, for ps, and for the other roles."""


def check_placement(who: str, name: str) -> None:
    """Raise UsageError if there is no placement of that name."""
    names = get_args(Placement)
    if name not in names:
        hint = did_you_mean(str(name), names)
        raise UsageError((f"{who}: placement should be {' or '.join(map(repr, names))}, got {name!r}{hint}",))


def host_of(slot: str) -> str:
    """Return the host in the address of a Dask worker."""
    return urlsplit(slot).hostname or slot


@dataclass(frozen=True)
class FreeSlots:
    """The free slots of a cluster.

    Parameters
    ----------
    addresses : sequence of str
        The address of a Dask worker for each of its free threads, best first.
    resources : mapping of str to collection of str
        The resources that a Dask worker declares, by its address.
    """

    addresses: Sequence[str]
    resources: Mapping[str, Collection[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.addresses)

    def on_host(self, host: str) -> FreeSlots:
        """Return those on one host."""
        return FreeSlots([slot for slot in self.addresses if host_of(slot) == host], self.resources)

    def without(self, slots: Iterable[str]) -> FreeSlots:
        """Return those that are left once `slots` are taken, one for each time that an address is among them."""
        taken = Counter(slots)
        left = []
        for slot in self.addresses:
            if taken[slot]:
                taken[slot] -= 1
            else:
                left.append(slot)
        return FreeSlots(left, self.resources)

    def assigned(
        self, roles: Sequence[RoleId], placement: Placement, others: Mapping[RoleId, str] | None = None
    ) -> dict[RoleId, str]:
        """Return a slot for each of `roles`, in order, as far as there are any.

        ``spread`` takes the host with the fewest roles of the same kind, for the evaluator with the fewest roles; among
        these a replica takes one with a ps, whose memory it shares, and any role the one with the most free slots.
        ``pack`` fills the host that has roles of the job, before it begins another one, which is the one with the most
        free slots. Either way Dask workers that declare ``psflow-ps`` come first for a ps and last for other roles,
        those with ``psflow-worker`` the other way round, and those with ``psflow`` before those without.

        Parameters
        ----------
        others : mapping of RoleId to str, optional
            The slots of the roles of the job that have one.
        """
        left = list(self.addresses)
        hosts = {slot: host_of(slot) for slot in left}
        free = Counter(hosts[slot] for slot in left)
        kinds: defaultdict[str, Counter[Role]] = defaultdict(Counter)
        taken: Counter[str] = Counter()
        for role, slot in (others or {}).items():
            kinds[host_of(slot)][_kind(role)] += 1
            taken[slot] += 1
        found: dict[RoleId, str] = {}
        for role in roles[: len(left)]:
            ranks = {host: _rank(role, placement, kinds[host], free[host]) for host in set(hosts.values())}
            preferences = {slot: self._preference(role, slot) for slot in hosts}
            slot = min(left, key=lambda slot: (preferences[slot], *ranks[hosts[slot]], taken[slot]))
            left.remove(slot)
            found[role] = slot
            kinds[hosts[slot]][_kind(role)] += 1
            free[hosts[slot]] -= 1
            taken[slot] += 1
        return found

    def _preference(self, role: RoleId, slot: str) -> int:
        declared = self.resources.get(slot, ())
        mine, not_mine = RESOURCE_OF_PS, RESOURCE_OF_OTHERS
        if role.role is not Role.PS:
            mine, not_mine = not_mine, mine
        if mine in declared:
            return 0
        if not_mine in declared:
            return 3
        return 1 if RESOURCE in declared else 2


def _rank(role: RoleId, placement: Placement, here: Counter[Role], num_free: int) -> tuple[int, ...]:
    """Return how far a host is from the best one for a role, by the kinds of the roles there."""
    match placement:
        case "spread":
            num_alike = here.total() if role.role is Role.EVALUATOR else here[_kind(role)]
            lacks_ps = _kind(role) is Role.WORKER and not here[Role.PS]
            return num_alike, int(lacks_ps), -num_free
        case "pack":
            return int(not here.total()), -num_free
        case unknown:
            assert_never(unknown)


def _kind(role: RoleId) -> Role:
    """Return the kind of a role: a chief is a replica, as a worker is."""
    return Role.WORKER if role.role is Role.CHIEF else role.role
