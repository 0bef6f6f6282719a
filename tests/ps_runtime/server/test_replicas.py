"""Who trains, told by plain calls: lives, and the table that tells a repeated push from a new one."""

from __future__ import annotations

import pytest

from psflow.ps_runtime.server.instructions import Refusal
from psflow.ps_runtime.server.replicas import Replicas


def joined(replicas: Replicas, replica: int, incarnation: int, sequence: int = 0) -> None:
    replicas.join(replica, incarnation).sequence = sequence


def test_a_new_life_begins_at_sequence_0() -> None:
    replicas = Replicas()
    key = replicas.join(3, 7)
    assert (key.incarnation, key.sequence, key.num_known, key.log_told, list(key.tickets)) == (7, 0, 0, 0, [])
    assert replicas.get(3, 7) is key
    assert replicas.sequences() == {(3, 7): 0}


@pytest.mark.parametrize(("replica", "name", "incarnation"), [(0, "chief-0", 4), (0, "chief-0", 6), (1, "worker-0", 5)])
def test_a_life_that_has_not_joined_is_not_part_of_the_job(replica: int, name: str, incarnation: int) -> None:
    replicas = Replicas()
    joined(replicas, 0, 5)
    words = f"incarnation {incarnation} of {name} is not part of this job"
    with pytest.raises(Refusal, match=words) as caught:
        replicas.get(replica, incarnation)
    assert caught.value.code == "incarnation"


def test_a_living_replica_ends_all_its_earlier_lives() -> None:
    replicas = Replicas()
    joined(replicas, 0, 5)
    for incarnation in (5, 6):
        replicas.must_not_be_over(0, incarnation)
    replicas.must_not_be_over(1, 0)
    with pytest.raises(Refusal, match="incarnation 4 of chief-0 has ended; expected 5 or later"):
        replicas.must_not_be_over(0, 4)


def test_a_buried_life_is_over_and_its_pushes_are_remembered() -> None:
    replicas = Replicas()
    joined(replicas, 0, 5, sequence=9)
    joined(replicas, 1, 2, sequence=4)
    replicas.bury(0)
    assert (sorted(replicas.living), replicas.gone) == ([1], {0})
    assert replicas.sequences() == {(0, 5): 9, (1, 2): 4}
    replicas.must_not_be_over(0, 6)
    with pytest.raises(Refusal, match="incarnation 5 of chief-0 has ended; expected 6 or later"):
        replicas.must_not_be_over(0, 5)


def test_the_next_life_of_a_replica_is_here_again_and_counts_from_0() -> None:
    replicas = Replicas()
    joined(replicas, 0, 5, sequence=9)
    replicas.bury(0)
    assert replicas.join(0, 6).sequence == 0
    assert replicas.gone == set()
    assert replicas.sequences() == {(0, 5): 9, (0, 6): 0}


def test_a_life_that_a_cut_knows_goes_on_where_it_was() -> None:
    replicas = Replicas()
    replicas.restore({(0, 5): 9})
    assert replicas.living == {}
    assert replicas.join(0, 5).sequence == 9


def test_a_life_older_than_those_of_a_cut_is_over() -> None:
    replicas = Replicas()
    replicas.restore({(0, 4): 2, (0, 5): 9, (1, 3): 1})
    replicas.must_not_be_over(0, 5)
    with pytest.raises(Refusal, match="incarnation 4 of chief-0 has ended; expected 5 or later"):
        replicas.must_not_be_over(0, 4)
    with pytest.raises(Refusal, match="incarnation 2 of worker-0 has ended; expected 3 or later"):
        replicas.must_not_be_over(1, 2)


def test_a_cut_does_not_bring_a_buried_life_back() -> None:
    replicas = Replicas()
    joined(replicas, 0, 5)
    replicas.bury(0)
    replicas.restore({(0, 2): 9})
    with pytest.raises(Refusal, match="expected 6 or later"):
        replicas.must_not_be_over(0, 5)


def test_who_has_come_before_a_restore_stays_and_takes_its_sequence_from_the_cut() -> None:
    replicas = Replicas()
    joined(replicas, 0, 5, sequence=1)
    joined(replicas, 1, 2, sequence=7)
    joined(replicas, 2, 3, sequence=7)
    replicas.restore({(0, 5): 9, (1, 3): 4})
    assert {replica: key.sequence for replica, key in replicas.living.items()} == {0: 9, 2: 0}
    assert replicas.sequences() == {(0, 5): 9, (1, 3): 4, (2, 3): 0}


def test_only_the_last_life_of_each_replica_is_remembered_after_a_cut() -> None:
    replicas = Replicas()
    for incarnation in (5, 6, 7):
        joined(replicas, 0, incarnation, sequence=incarnation)
        replicas.bury(0)
    joined(replicas, 1, 1, sequence=3)
    replicas.bury(1)
    joined(replicas, 1, 2, sequence=4)
    replicas.forget_past()
    assert replicas.sequences() == {(0, 7): 7, (1, 2): 4}
    replicas.bury(1)
    assert replicas.sequences() == {(0, 7): 7, (1, 2): 4}


@pytest.mark.parametrize(("incarnation", "is_news"), [(3, False), (4, False), (5, True), (6, True)])
def test_an_unseen_incarnation_is_over_unless_a_later_one_is_expected(incarnation: int, is_news: bool) -> None:
    replicas = Replicas()
    replicas.restore({(0, 5): 9})
    assert replicas.is_over_unseen(0, incarnation) is is_news
    assert replicas.gone == ({0} if is_news else set())
