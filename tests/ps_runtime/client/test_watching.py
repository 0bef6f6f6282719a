from __future__ import annotations

import pytest

from psflow.ps_runtime.client.checkpoints import WatchingClient
from psflow.ps_runtime.client.shard_client import Identity, ShardClient, never_stop
from psflow.ps_runtime.errors import BrokenPeerError, RefusedError, WaitTimeoutError
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.protocol.message import Purpose
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

MODEL = ModelSpec((VariableSpec("w", (), "float32", 0),), (GradientDescent(learning_rate=1.0).config(),))
SECS = 200.0


def link_to(ps, token="token"):
    identity = Identity("job", token, MODEL.digest, "evaluator-0", Purpose.WATCH)
    return ShardClient(ps.connect_functions[0], identity, never_stop, reconnect_secs=0.0)


def tell(ps, step):
    def committed():
        ps.job_requests.checkpoint_step = step
        return ps.job_requests.due()

    ps.servers[0].post(committed)


def test_hears_of_a_checkpoint_at_once_and_of_none_in_time(ps_of):
    ps = ps_of(MODEL)
    watching = WatchingClient(link_to(ps), SECS)
    assert watching.wait(-1, 0.0)
    tell(ps, 5)
    assert watching.wait(-1, SECS)
    assert watching.wait(5, 0.0)
    assert sum(kind.name == "WATCH" for kind in ps.kinds) == 2
    assert watching.transport == "in-process"
    watching.close()
    watching.close()


def test_that_ps_0_leaves_is_no_error_and_told_at_once_from_then_on(ps_of):
    ps = ps_of(MODEL)
    watching = WatchingClient(link_to(ps), SECS)
    ps.servers[0].close()
    assert watching.wait(-1, SECS)
    assert not watching.wait(-1, SECS)


@pytest.mark.parametrize(
    "away",
    [
        BrokenPeerError("ps-0", "connection refused"),
        WaitTimeoutError("ps-0", "accept a connection", 10.0),  # its host is gone
    ],
)
def test_that_ps_0_has_left_already_is_no_error(away):
    def dial(timeout_secs):
        raise away

    identity = Identity("job", "token", 0, "evaluator-0", Purpose.WATCH)
    watching = WatchingClient(ShardClient(dial, identity, never_stop, reconnect_secs=0.0), SECS)
    assert not watching.wait(-1, SECS)
    assert watching.transport == "none"
    watching.close()


def test_who_is_not_let_in_is_told_so(ps_of):
    with pytest.raises(RefusedError, match="its job id or token does not belong to this job"):
        WatchingClient(link_to(ps_of(MODEL), token="guessed"), SECS)
