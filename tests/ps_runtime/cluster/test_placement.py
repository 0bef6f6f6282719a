"""Which host, and which Dask worker there, a role gets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psflow.ps_runtime.cluster.placement import FreeSlots, Placement, check_placement, host_of
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.specs.roles import RoleId, job_roles


def cluster(**threads: int) -> list[str]:
    """Return the slots of hosts with one Dask worker for each thread."""
    return [f"tls://{host}:{number + 1}" for host, most in threads.items() for number in range(most)]


def hosts(assigned: Mapping[RoleId, str]) -> dict[str, set[str]]:
    found = defaultdict(set)
    for role, slot in assigned.items():
        found[host_of(slot)].add(str(role))
    return dict(found)


def test_ps_and_replicas_spread_over_hosts_and_a_replica_joins_a_ps() -> None:
    roles = job_roles(2, 2, evaluator=True)
    assert hosts(FreeSlots(cluster(ada=2, bob=2, eve=2)).assigned(roles, "spread")) == {
        "ada": {"ps-0", "chief-0"},
        "bob": {"ps-1", "worker-0"},
        "eve": {"worker-1", "evaluator-0"},
    }


def test_pack_fills_the_host_with_the_most_room_before_the_next_one() -> None:
    roles = job_roles(2, 2, evaluator=True)
    assert hosts(FreeSlots(cluster(ada=2, bob=4, eve=3)).assigned(roles, "pack")) == {
        "bob": {"ps-0", "ps-1", "chief-0", "worker-0"},
        "eve": {"worker-1", "evaluator-0"},
    }


def test_on_one_host_roles_spread_over_its_dask_workers() -> None:
    slots = FreeSlots(["tls://ada:1", "tls://ada:2", "tls://ada:1", "tls://ada:2"])
    assigned = slots.assigned(job_roles(1, 2, evaluator=False), "spread")
    assert list(assigned.values()) == ["tls://ada:1", "tls://ada:2", "tls://ada:1", "tls://ada:2"]


@pytest.mark.parametrize("placement", ["spread", "pack"])
def test_dask_workers_declare_which_roles_they_are_for(placement: Placement) -> None:
    slots = cluster(ada=2, bob=2, eve=2)
    resources = {
        "tls://ada:1": ["psflow-worker"],
        "tls://ada:2": ["psflow-worker", "GPU"],
        "tls://bob:1": ["psflow"],
        "tls://eve:2": ["psflow-ps"],
    }
    ps, chief, *workers, evaluator = job_roles(1, 3, evaluator=True)
    assigned = FreeSlots(slots, resources).assigned([ps, chief, *workers, evaluator], placement)
    assert assigned[ps] == "tls://eve:2"
    assert {assigned[chief], assigned[workers[0]]} == {"tls://ada:1", "tls://ada:2"}
    assert assigned[workers[1]] == "tls://bob:1"
    assert {assigned[workers[2]], assigned[evaluator]} == {"tls://bob:2", "tls://eve:1"}


def test_a_role_that_restarts_counts_the_others() -> None:
    ps_0, ps_1, chief, worker = job_roles(2, 1, evaluator=False)
    others = {ps_0: "tls://ada:1", chief: "tls://ada:2"}
    free = FreeSlots(cluster(ada=9, bob=2))
    assert hosts(free.assigned([ps_1, worker], "spread", others)) == {"bob": {"ps-1", "worker-0"}}
    assert hosts(free.assigned([ps_1, worker], "pack", others)) == {"ada": {"ps-1", "worker-0"}}


def test_slots_that_are_taken_or_on_other_hosts_are_left_out() -> None:
    slots = FreeSlots(["tls://a:1", "tls://b:1", "tls://a:1", "tls://b:2"])
    assert slots.without(["tls://a:1", "tls://b:2", "tls://c:1"]).addresses == ["tls://b:1", "tls://a:1"]
    assert slots.on_host("b").addresses == ["tls://b:1", "tls://b:2"]


@given(
    threads=st.lists(st.integers(0, 4), max_size=5),
    num_ps=st.integers(1, 4),
    num_workers=st.integers(0, 6),
    placement=st.sampled_from(["spread", "pack"]),
)
def test_each_role_has_a_slot_of_its_own_as_far_as_there_are_any(
    threads: list[int], num_ps: int, num_workers: int, placement: Placement
) -> None:
    slots = cluster(**{f"h{number}": most for number, most in enumerate(threads)})
    roles = job_roles(num_ps, num_workers, evaluator=True)
    assigned = FreeSlots(slots).assigned(roles, placement)
    assert list(assigned) == list(roles[: len(slots)])
    assert len(set(assigned.values())) == len(assigned)
    assert set(assigned.values()) <= set(slots)
    if placement == "pack":  # a host is full before the next one begins
        used = list(hosts(assigned))
        assert all(len(hosts(assigned)[host]) == sum(host_of(slot) == host for slot in slots) for host in used[:-1])


def test_an_unknown_placement_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"^run_on: placement should be 'spread' or 'pack', got 'packed'; did you mean"
    ):
        check_placement("run_on", "packed")
