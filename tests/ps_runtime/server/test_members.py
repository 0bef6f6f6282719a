"""Who trains, told by plain calls: lives, and the table that tells a repeated push from a new one."""

from __future__ import annotations

import pytest

from psflow.ps_runtime.server.instructions import Refusal
from psflow.ps_runtime.server.members import Members


def joined(members: Members, member: int, incarnation: int, sequence: int = 0) -> None:
    members.join(member, incarnation).sequence = sequence


def test_a_new_life_begins_at_sequence_0() -> None:
    members = Members()
    life = members.join(3, 7)
    assert (life.incarnation, life.sequence, life.num_known, life.log_told, list(life.tickets)) == (7, 0, 0, 0, [])
    assert members.get(3, 7) is life
    assert members.lives() == {(3, 7): 0}


@pytest.mark.parametrize(("member", "incarnation"), [(0, 4), (0, 6), (1, 5)])
def test_who_has_not_joined_is_no_member(member: int, incarnation: int) -> None:
    members = Members()
    joined(members, 0, 5)
    words = f"incarnation {incarnation} of replica {member} is not a member of this job"
    with pytest.raises(Refusal, match=words) as caught:
        members.get(member, incarnation)
    assert caught.value.code == "incarnation"


def test_a_living_member_ends_all_its_earlier_lives() -> None:
    members = Members()
    joined(members, 0, 5)
    for incarnation in (5, 6):
        members.must_not_be_over(0, incarnation)
    members.must_not_be_over(1, 0)
    with pytest.raises(Refusal, match="incarnation 4 of replica 0 is over; 5 or later may join"):
        members.must_not_be_over(0, 4)


def test_a_buried_life_is_over_and_its_pushes_are_remembered() -> None:
    members = Members()
    joined(members, 0, 5, sequence=9)
    joined(members, 1, 2, sequence=4)
    members.bury(0)
    assert (sorted(members.living), members.gone) == ([1], {0})
    assert members.lives() == {(0, 5): 9, (1, 2): 4}
    members.must_not_be_over(0, 6)
    with pytest.raises(Refusal, match="incarnation 5 of replica 0 is over; 6 or later may join"):
        members.must_not_be_over(0, 5)


def test_the_next_life_of_a_member_is_here_again_and_counts_from_0() -> None:
    members = Members()
    joined(members, 0, 5, sequence=9)
    members.bury(0)
    assert members.join(0, 6).sequence == 0
    assert members.gone == set()
    assert members.lives() == {(0, 5): 9, (0, 6): 0}


def test_a_life_that_a_cut_knows_goes_on_where_it_was() -> None:
    members = Members()
    members.restore({(0, 5): 9})
    assert members.living == {}
    assert members.join(0, 5).sequence == 9


def test_a_life_older_than_those_of_a_cut_is_over() -> None:
    members = Members()
    members.restore({(0, 4): 2, (0, 5): 9, (1, 3): 1})
    members.must_not_be_over(0, 5)
    with pytest.raises(Refusal, match="incarnation 4 of replica 0 is over; 5 or later may join"):
        members.must_not_be_over(0, 4)
    with pytest.raises(Refusal, match="incarnation 2 of replica 1 is over; 3 or later may join"):
        members.must_not_be_over(1, 2)


def test_a_cut_does_not_bring_a_buried_life_back() -> None:
    members = Members()
    joined(members, 0, 5)
    members.bury(0)
    members.restore({(0, 2): 9})
    with pytest.raises(Refusal, match="6 or later may join"):
        members.must_not_be_over(0, 5)


def test_who_has_come_before_a_restore_stays_and_takes_its_sequence_from_the_cut() -> None:
    members = Members()
    joined(members, 0, 5, sequence=1)
    joined(members, 1, 2, sequence=7)
    joined(members, 2, 3, sequence=7)
    members.restore({(0, 5): 9, (1, 3): 4})
    assert {member: life.sequence for member, life in members.living.items()} == {0: 9, 2: 0}
    assert members.lives() == {(0, 5): 9, (1, 3): 4, (2, 3): 0}


def test_only_the_last_life_of_each_member_is_remembered_after_a_cut() -> None:
    members = Members()
    for incarnation in (5, 6, 7):
        joined(members, 0, incarnation, sequence=incarnation)
        members.bury(0)
    joined(members, 1, 1, sequence=3)
    members.bury(1)
    joined(members, 1, 2, sequence=4)
    members.forget_past()
    assert members.lives() == {(0, 7): 7, (1, 2): 4}
    members.bury(1)
    assert members.lives() == {(0, 7): 7, (1, 2): 4}
