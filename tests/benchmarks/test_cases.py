import pytest

from benchmarks.cases import Case
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.specs.consistency import Hogwild, Sync

KEYS = [
    "async/shm/1ps/2w",
    "async/tcp/1ps/2w",
    "sync/shm/1ps/3w",
    "hogwild/shm/1ps/2w",
    "async+pipeline/shm/1ps/2w",
    "async/shm/1ps/2w/10M",
    "bounded_staleness/unix/2ps/1w/zipf",
]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_says_all_of_its_case(key):
    assert Case.parse(key).key == key


@pytest.mark.parametrize("key", ["async", "async/shm/1ps", "async/shm/ps/2w", "async/shm/1ps/2w/"])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(UsageError, match="expected a case such as async/shm/1ps/2w"):
        Case.parse(key)


def test_an_unknown_consistency_is_refused_with_the_near_name():
    with pytest.raises(UsageError, match="got 'asnyc'; did you mean 'async'"):
        Case.parse("asnyc/shm/1ps/2w")


def test_a_case_says_how_to_run_it():
    assert Case.parse("sync/shm/1ps/2w").settings() == {"consistency": Sync(), "pipeline_depth": 0}
    assert Case.parse("hogwild+pipeline/shm/1ps/2w").settings() == {"consistency": Hogwild(), "pipeline_depth": 1}


def test_where_an_update_takes_several_gradients_the_gradients_are_counted():
    sync, other = Case.parse("sync/shm/1ps/3w"), Case.parse("async/shm/1ps/3w")
    assert (sync.gradients_per_update, sync.unit) == (3, "gradients/s")
    assert (other.gradients_per_update, other.unit) == (1, "steps/s")
