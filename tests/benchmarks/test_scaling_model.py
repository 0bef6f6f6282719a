from dataclasses import replace

import pytest

from benchmarks.scaling_model import Bottleneck, Cluster, Costs, Linear, WayCosts, predict

US = 1e-6
NS = 1e-9

SHM = WayCosts(
    replica_pull=Linear(10 * US, 0.1 * NS),
    replica_push=Linear(20 * US, 0.1 * NS),
    ps_pull=Linear(15 * US, 0),
    ps_push=Linear(30 * US, 0.2 * NS),
    ps_0_push=Linear(40 * US, 0.2 * NS),
)
TCP = replace(SHM, replica_pull=Linear(10 * US, 0.3 * NS), ps_pull=Linear(15 * US, 0.3 * NS))
COSTS = Costs(compute_secs=300 * US, ways={"shm": SHM, "tcp": TCP}, log_secs=0, log_0_secs=0, wake_secs=0)
ROOMY = Cluster("shm")
SIZES = [1_000_000]


def halves(number):
    return [1_000_000 // number] * number


def test_one_replica_makes_one_cycle_after_the_other():
    found = predict(COSTS, ROOMY, SIZES, 1)
    pull, push, update = 100 * US, 120 * US, 240 * US
    assert found.steps_per_sec == pytest.approx(1 / (300 * US + pull + push + update))
    assert found.bottleneck is Bottleneck.WORKERS
    assert found.cpu_secs_per_step == pytest.approx(760 * US)


def test_round_trips_and_the_network_make_a_cycle_longer():
    far = Cluster("tcp", round_trip_secs=100 * US, network_bytes_per_sec=1e9)
    near, there = (1 / predict(COSTS, cluster, SIZES, 1).steps_per_sec for cluster in (Cluster("tcp"), far))
    two_trips, bytes_both_ways = 200 * US, 2000 * US
    assert there - near == pytest.approx(two_trips + bytes_both_ways)


def test_many_replicas_are_held_back_by_what_the_ps_can_take():
    found = predict(COSTS, ROOMY, SIZES, 1000)
    assert found.steps_per_sec == pytest.approx(1 / (240 * US))
    assert found.bottleneck is Bottleneck.APPLY


def test_over_shared_memory_ps_0_has_one_message_a_step_and_over_tcp_two():
    one, two = (predict(COSTS, Cluster(transport), [0], 1000) for transport in ("shm", "tcp"))
    assert one.steps_per_sec == pytest.approx(1 / (40 * US))
    assert two.steps_per_sec == pytest.approx(1 / (55 * US))
    assert one.bottleneck is two.bottleneck is Bottleneck.TICKETS


def test_another_ps_has_a_pull_and_a_push_a_step_whatever_their_number():
    for number in (10, 100):
        found = predict(COSTS, ROOMY, [0, *[1] * (number - 1)], 1000)
        assert found.steps_per_sec == pytest.approx(1 / (45 * US), rel=0.01)
        assert found.bottleneck is Bottleneck.MESSAGES


def test_a_ps_without_bytes_only_hears_of_decisions():
    nothing, something = (predict(COSTS, ROOMY, [1000, nbytes], 1) for nbytes in (0, 1))
    of_a_push = SHM.ps_push.fixed_secs + SHM.replica_push.fixed_secs
    assert something.cpu_secs_per_step - nothing.cpu_secs_per_step == pytest.approx(of_a_push, rel=1e-3)


def test_roles_that_share_cores_share_their_time():
    here = Cluster("shm", cores=2)
    assert predict(COSTS, here, SIZES, 1).bottleneck is Bottleneck.WORKERS
    found = predict(COSTS, here, SIZES, 3)
    assert found.bottleneck is Bottleneck.CORES
    assert found.steps_per_sec == pytest.approx(2 / found.cpu_secs_per_step)


def test_a_slow_network_of_a_ps_is_named():
    slow = Cluster("tcp", network_bytes_per_sec=1e8)
    found = predict(COSTS, slow, SIZES, 1000)
    assert found.bottleneck is Bottleneck.NETWORK
    assert found.steps_per_sec == pytest.approx(100)


def test_more_replicas_are_never_slower_as_long_as_decisions_cost_nothing():
    for number in (1, 4, 100):
        rates = [predict(COSTS, ROOMY, halves(number), n).steps_per_sec for n in range(1, 200)]
        assert rates == sorted(rates)


def test_more_ps_take_more_bytes_until_messages_are_all_that_is_left():
    found = [predict(COSTS, ROOMY, halves(number), 1000) for number in (1, 2, 4, 16, 100)]
    rates = [prediction.steps_per_sec for prediction in found]
    assert rates == sorted(rates)
    assert found[0].bottleneck is Bottleneck.APPLY
    assert found[-1].bottleneck is Bottleneck.MESSAGES


def test_decisions_that_travel_slow_down_many_replicas_with_several_ps_only():
    costs = replace(COSTS, log_secs=1 * US, log_0_secs=0.1 * US)
    assert predict(costs, ROOMY, halves(1), 1000) == predict(COSTS, ROOMY, halves(1), 1000)
    found = predict(costs, ROOMY, halves(4), 1000)
    assert found.bottleneck is Bottleneck.LOG
    assert found.steps_per_sec < predict(costs, ROOMY, halves(4), 100).steps_per_sec


def test_a_line_goes_through_two_measurements():
    line = Linear.through((1000, 5 * US), (3000, 9 * US))
    assert line(1000) == pytest.approx(5 * US)
    assert line(3000) == pytest.approx(9 * US)
    assert line.fixed_secs == pytest.approx(3 * US)


def test_noise_makes_no_cost_negative():
    assert Linear.through((1000, 5 * US), (3000, 4 * US)) == Linear(5 * US, 0)
    assert Linear.through((1000, 1 * US), (2000, 9 * US)).fixed_secs == 0
    assert Linear.through((1000, -2 * US), (2000, -2 * US)).fixed_secs == 0
