from __future__ import annotations

from psflow.flows.reporting.role_figures import RoleFigures, role_figures, stragglers


def replicas(*rates: float, age_secs: float = 5.0) -> list[RoleFigures]:
    names = ["chief-0", *(f"worker-{i}" for i in range(len(rates) - 1))]
    return [RoleFigures(name, {"steps_per_sec": rate}, age_secs) for name, rate in zip(names, rates, strict=True)]


def test_figures_are_sorted_by_role_and_as_old_as_the_newest() -> None:
    roles = role_figures(
        {
            "loss": (0.5, 100.0),
            "role/worker-10/rss_mb": (70.0, 90.0),
            "role/worker-2/rss_mb": (71.0, 95.0),
            "role/worker-2/steps_per_sec": (10.0, 98.0),
            "role/evaluator-0/rss_mb": (72.0, 98.0),
            "role/chief-0/rss_mb": (73.0, 98.0),
            "role/ps-0/rss_mb": (74.0, 98.0),
        },
        {"psflow.host.worker-2": "ada"},
        now=100.0,
    )
    assert [role.role for role in roles] == ["ps-0", "chief-0", "worker-2", "worker-10", "evaluator-0"]
    assert roles[2] == RoleFigures("worker-2", {"rss_mb": 71.0, "steps_per_sec": 10.0}, 2.0, "ada")
    assert roles[0].host is None


def test_the_replica_that_is_slower_than_its_like_is_named() -> None:
    assert stragglers(replicas(100, 104, 30)) == ["worker-1 makes 30 steps/s, the median of the replicas is 100"]
    assert stragglers(replicas(100, 40)) == ["worker-0 makes 40 steps/s, the median of the replicas is 70"]
    assert stragglers(replicas(100, 104, 80)) == []
    assert stragglers(replicas(3)) == []
    assert stragglers(replicas(0, 0)) == []


def test_a_role_that_is_silent_is_named_and_its_old_speed_does_not_count() -> None:
    silent = RoleFigures("worker-7", {"steps_per_sec": 1.0}, 46.0)
    evaluating = RoleFigures("evaluator-0", {"rss_mb": 1.0}, 46.0)
    assert stragglers([*replicas(100, 99), silent, evaluating]) == ["worker-7 last reported 46 s ago"]


def test_a_ps_is_no_straggler() -> None:
    ps = RoleFigures("ps-0", {"steps_per_sec": 1.0}, 1.0)
    assert stragglers([ps, *replicas(100, 99)]) == []
