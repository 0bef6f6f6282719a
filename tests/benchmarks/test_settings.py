from pathlib import Path

import pytest

from benchmarks.settings import Settings
from psflow.ps_runtime.errors import UsageError


def settings(**changes):
    return Settings(Path("out"), **changes)


@pytest.mark.parametrize(
    ("pairs", "starts", "rounds"), [(9, 2, [5, 4]), (9, 3, [3, 3, 3]), (2, 5, [1, 1]), (1, 1, [1])]
)
def test_the_starts_share_the_pairs(pairs, starts, rounds):
    assert settings(pairs=pairs, starts=starts).rounds == rounds


def test_at_least_nine_pairs_are_the_default():
    assert sum(settings().rounds) == 9


def test_quick_means_two_short_pairs():
    quick = settings(pairs=9, quick=True)
    assert quick.rounds == [2]
    assert quick.slice_secs(4.0) == 0.4
    assert settings().slice_secs(4.0) == 4.0


def test_patterns_choose_cases():
    assert settings().wants("async/shm/1ps/2w")
    some = settings(patterns=("*/tcp/*", "sync/*"))
    assert [case for case in ("async/shm/1ps/2w", "async/tcp/1ps/2w", "sync/shm/1ps/2w") if some.wants(case)] == [
        "async/tcp/1ps/2w",
        "sync/shm/1ps/2w",
    ]


def test_all_faults_are_told_at_once():
    with pytest.raises(
        UsageError, match=r"--pairs should be at least 1, got 0[\s\S]*--starts should be at least 1, got 0"
    ):
        settings(pairs=0, starts=0)
