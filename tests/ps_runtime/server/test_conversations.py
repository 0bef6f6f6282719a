"""Who gets which answer when: held replies, broken connections, streams, news."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.protocol.job_state import Snapshot
from psflow.ps_runtime.protocol.message import (
    BEGINS_AGAIN,
    NO_BODY,
    NO_REPLICA,
    WITH_PARAMETERS,
    Kind,
    Message,
    Purpose,
)
from psflow.ps_runtime.protocol.payloads import GRANT, PushBuffer
from psflow.ps_runtime.server.instructions import Phase, Refusal
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec

MODEL = ModelSpec((VariableSpec("w", (2,), "float32", 0),), (GradientDescent(learning_rate=1.0).config(),))
ONES = {"w": np.ones(2, np.float32)}


class Talk:
    """One ps, its chief's saver, and whoever comes."""

    def __init__(self, servers: Any) -> None:
        self.servers = servers
        self.sequences: dict[int, int] = {}
        self.saver = self.come(0, Purpose.SAVE)
        self.say(self.saver, Message(Kind.INITIALIZE, body=servers.arena_of(0, ONES).data))
        self.say(self.saver, Message(Kind.OPEN))

    def come(self, replica: int = 0, purpose: Purpose = Purpose.TRAIN, incarnation: int = 1) -> int:
        peer = self.servers.connect()
        reply = self.servers.send(0, peer, self.servers.hello(purpose, replica, incarnation))
        assert reply.kind is Kind.DONE
        return peer

    def say(self, peer: int, message: Message, replica: int = 0, incarnation: int = 1) -> Message | None:
        return self.servers.send(0, peer, self.servers.signed(message, replica, incarnation))

    def hears(self, peer: int) -> Message | None:
        return self.servers.inbox.pop((0, peer), None)

    def push(self, peer: int, replica: int = 0, flags: int = 0) -> Message | None:
        self.sequences[replica] = self.sequences.get(replica, 0) + 1
        return self.repeat_push(peer, replica, flags)

    def repeat_push(self, peer: int, replica: int = 0, flags: int = 0) -> Message | None:
        message = Message(Kind.PUSH, sequence=self.sequences[replica], body=self.servers.push_body(0, ONES))
        message.flags = flags
        return self.say(peer, message, replica)

    def post(self, replies: Any) -> None:
        self.servers.deliver(0, replies)


@pytest.fixture
def talk(servers_of: Any) -> Talk:
    return Talk(servers_of(MODEL, save_steps=2, max_steps=5))


@pytest.fixture
def stream(servers_of: Any) -> Talk:
    return Talk(servers_of(MODEL, input_spec=InputSpec(None, split_batches=4)))


def granted(reply: Message | None) -> int:
    assert reply is not None
    assert reply.kind is Kind.GRANT
    return int(GRANT.unpack(reply.body)[2])


# values


def test_parameters_are_sent_unless_the_replica_reads_them_by_itself(talk: Talk) -> None:
    peer = talk.come()
    sent = talk.say(peer, Message(Kind.PULL))
    read = talk.say(peer, Message(Kind.PULL, flags=NO_BODY))
    assert sent is not None
    assert read is not None
    assert (sent.version, bytes(sent.body)) == (0, bytes(talk.servers.arena_of(0, ONES)))
    assert (read.version, bytes(read.body)) == (0, b"")


def test_each_push_counts_as_it_is_though_all_lie_in_two_places_in_turn(servers_of: Any) -> None:
    """As in shared memory: the transport gives the same view of a place whenever a body lies there."""
    talk = Talk(servers_of(MODEL))
    handler = talk.servers.handlers[0]
    for replica in (0, 1):
        peer = talk.come(replica)
        talk.say(peer, Message(Kind.NEXT), replica)
        places = [memoryview(bytearray(handler.shard.push_layout.nbytes())) for _ in range(2)]
        for sequence in range(1, 6):
            place = places[sequence % 2]
            place[:] = talk.servers.push_body(0, {"w": np.full(2, 10.0**sequence, np.float32)})
            push = talk.servers.signed(Message(Kind.PUSH, sequence=sequence, body=place), replica, 1)
            talk.post(handler.handle(peer, push))
            granted(talk.hears(peer))
    assert talk.servers.variables()["w"].tolist() == [1 - 2 * 111_110] * 2


@pytest.mark.parametrize("step", [0, 2])
def test_nothing_is_restored_over_values_of_another_step(talk: Talk, step: int) -> None:
    peer = talk.come()
    talk.say(peer, Message(Kind.NEXT))
    talk.push(peer)
    assert talk.servers.handlers[0].shard.version == 1
    refused = talk.say(talk.saver, Message(Kind.RESTORE, step=step))
    assert refused is not None
    assert refused.json()["code"] == "phase"
    repeated = talk.say(talk.saver, Message(Kind.RESTORE, step=1))
    assert repeated is not None
    assert repeated.kind is Kind.DONE


def test_rows_of_no_table_break_the_protocol(servers_of: Any) -> None:
    table = TableSpec("items", 6, 2, "float32", 0, {"name": "zeros"}, seed=1)
    talk = Talk(servers_of(ModelSpec(MODEL.variables, MODEL.optimizers, (table,))))
    peer, layout = talk.come(), talk.servers.handlers[0].shard.push_layout
    talk.say(peer, Message(Kind.NEXT))
    push = PushBuffer.empty(layout, [1])
    push.write_rows([(np.array([6]), np.ones((1, 2), np.float32), slice(None))])
    wanted = np.zeros(16, np.uint8)
    layout.rows.write_ids(wanted, [np.array([6])])
    for message in (Message(Kind.PULL_ROWS, body=wanted.data), Message(Kind.PUSH, sequence=1, body=push.body)):
        with pytest.raises(
            ProtocolError, match=r"train-0 broke the protocol: table 'items' has ids in \[0, 6\), got 6"
        ):
            talk.say(peer, message)
    assert talk.servers.handlers[0].shard.version == 0


@pytest.mark.parametrize("kind", [Kind.PULL, Kind.PULL_ROWS])
@pytest.mark.parametrize(
    ("ps", "purpose", "is_read"), [(0, Purpose.TRAIN, False), (1, Purpose.TRAIN, True), (1, Purpose.WATCH, False)]
)
def test_only_a_ps_without_the_job_reads_the_log_that_a_replica_forwards(
    servers_of: Any, kind: Kind, ps: int, purpose: Purpose, is_read: bool
) -> None:
    table = TableSpec("items", 6, 2, "float32", 0, {"name": "zeros"}, seed=1)
    servers = servers_of(ModelSpec(MODEL.variables, MODEL.optimizers, (table,)), num_ps=2)
    saver, peer = servers.connect(), servers.connect()
    servers.send(ps, saver, servers.hello(Purpose.SAVE, 0, 1))
    servers.send(ps, saver, servers.signed(Message(Kind.INITIALIZE, body=servers.arena_of(ps, ONES).data), 0, 1))
    servers.send(ps, peer, servers.hello(purpose, 0, 1))
    wanted = np.zeros(8 if kind is Kind.PULL_ROWS else 0, np.uint8)
    if kind is Kind.PULL_ROWS:
        servers.handlers[ps].shard.push_layout.rows.write_ids(wanted, [np.array([], np.int64)])
    message = servers.signed(Message(kind, body=memoryview(wanted.tobytes() + b"no log")), 0, 1)
    if is_read:
        with pytest.raises(ProtocolError):
            servers.send(ps, peer, message)
    else:
        assert servers.send(ps, peer, message).kind in (Kind.PARAMETERS, Kind.ROWS)


def test_the_end_of_a_replaced_connection_leaves_the_newer_one(talk: Talk) -> None:
    older, newer = talk.come(), talk.come()
    talk.servers.disconnect(0, older)
    assert talk.servers.job_requests.absent == {}
    assert granted(talk.say(newer, Message(Kind.NEXT))) == 0


def test_a_ps_is_finished_when_the_chief_says_so_and_not_before(talk: Talk) -> None:
    assert talk.servers.handlers[0].is_finished is False


# tickets


def test_a_grant_is_held_until_there_is_a_ticket(talk):
    chief, worker = talk.come(), talk.come(1)
    assert granted(talk.say(chief, Message(Kind.NEXT))) == 0
    assert granted(talk.push(chief)) == 1
    assert talk.say(worker, Message(Kind.NEXT), 1) is None  # a snapshot is due at step 2
    talk.servers.disconnect(0, chief)
    assert talk.hears(worker) is None
    talk.post(talk.servers.job_requests.lost(0, 1))
    assert granted(talk.hears(worker)) == 1


def test_who_comes_back_is_told_its_ticket_again(talk):
    chief = talk.come()
    assert granted(talk.say(chief, Message(Kind.NEXT))) == 0
    talk.servers.disconnect(0, chief)
    assert granted(talk.say(talk.come(), Message(Kind.NEXT))) == 0
    assert talk.servers.job.num_given == 1


@pytest.mark.parametrize("comes_back", [0, 1, 2])
@pytest.mark.parametrize("leaves_for_good", [True, False])
def test_who_comes_back_or_is_lost_is_not_awaited_any_more_and_the_others_are(talk, comes_back, leaves_for_good):
    peers = [talk.come(replica) for replica in range(3)]
    for peer in peers:
        talk.servers.disconnect(0, peer)
    assert talk.servers.job_requests.absent == {peer: (replica, 1) for replica, peer in enumerate(peers)}
    if leaves_for_good:
        talk.post(talk.servers.job_requests.lost(comes_back, 1))
    else:
        talk.come(comes_back)
    awaited = [key for key, _ in talk.servers.job_requests.absent.values()]
    assert awaited == [replica for replica in range(3) if replica != comes_back]


def carried(reply: Message | None) -> tuple[int, int, list[float]]:
    """Return the record of a ticket, the version that came with it, and the values."""
    assert reply is not None
    assert (reply.kind, reply.flags) == (Kind.GRANT, WITH_PARAMETERS)
    arena = np.frombuffer(reply.body, np.uint8)[GRANT.size :]
    return int(GRANT.unpack_from(reply.body)[2]), reply.version, arena[:8].view(np.float32).tolist()


def test_a_ticket_brings_the_parameters_to_who_asked_for_them_with_its_push(servers_of):
    talk = Talk(servers_of(MODEL, num_replicas=2))
    chief, worker = talk.come(), talk.come(1)
    granted(talk.say(chief, Message(Kind.NEXT)))
    granted(talk.say(worker, Message(Kind.NEXT), 1))
    assert carried(talk.push(chief, flags=WITH_PARAMETERS)) == (1, 1, [0.0, 0.0])
    granted(talk.push(worker, 1))
    assert carried(talk.push(chief, flags=WITH_PARAMETERS)) == (2, 3, [-2.0, -2.0])


def test_a_push_that_is_repeated_gets_the_same_ticket_with_the_parameters_of_now(servers_of):
    talk = Talk(servers_of(MODEL, num_replicas=2))
    chief, worker = talk.come(), talk.come(1)
    granted(talk.say(chief, Message(Kind.NEXT)))
    granted(talk.say(worker, Message(Kind.NEXT), 1))
    assert carried(talk.push(chief, flags=WITH_PARAMETERS)) == (1, 1, [0.0, 0.0])
    granted(talk.push(worker, 1))
    talk.servers.disconnect(0, chief)
    assert carried(talk.repeat_push(talk.come(), flags=WITH_PARAMETERS)) == (1, 2, [-1.0, -1.0])
    assert talk.servers.job.global_step == 2


def test_a_held_ticket_brings_the_parameters_of_when_it_is_given(talk):
    chief = talk.come()
    granted(talk.say(chief, Message(Kind.NEXT)))
    carried(talk.push(chief, flags=WITH_PARAMETERS))
    assert talk.push(chief, flags=WITH_PARAMETERS) is None, "a snapshot is due at step 2"
    talk.say(talk.saver, Message(Kind.AWAIT_SNAPSHOT))
    talk.say(talk.saver, Message(Kind.RESUME, step=2))
    assert carried(talk.hears(chief)) == (2, 2, [-1.0, -1.0])


def test_the_end_and_an_answer_without_a_ticket_bring_no_parameters(talk):
    chief = talk.come()
    granted(talk.say(chief, Message(Kind.NEXT)))
    granted(talk.say(chief, Message(Kind.NEXT, flags=1)))
    reply = talk.push(chief, flags=WITH_PARAMETERS | 1)
    assert (reply.kind, bytes(reply.body)) == (Kind.DONE, b"")
    assert talk.push(chief, flags=WITH_PARAMETERS) is None
    talk.servers.job.stop("enough")
    assert talk.say(talk.saver, Message(Kind.AWAIT_SNAPSHOT)).kind is Kind.FINAL_SNAPSHOT_DUE
    talk.say(talk.saver, Message(Kind.RESUME, step=2))
    talk.say(talk.saver, Message(Kind.FINISH))
    reply = talk.hears(chief)
    assert (reply.kind, reply.flags, bytes(reply.body)) == (Kind.FINISHED, 0, b"")


def test_who_cannot_be_answered_gets_no_ticket(servers_of):
    talk = Talk(servers_of(MODEL, input_spec=InputSpec(1)))
    first, second = talk.come(0), talk.come(1)
    granted(talk.say(first, Message(Kind.NEXT)))
    assert talk.say(second, Message(Kind.NEXT), 1) is None
    talk.servers.disconnect(0, second)
    talk.post(talk.servers.job_requests.lost(0, 1))
    assert talk.servers.job.num_given == 0


def test_a_new_life_frees_the_one_before_from_its_wait(servers_of):
    talk = Talk(servers_of(MODEL, input_spec=InputSpec(1)))
    first, second = talk.come(0), talk.come(1)
    granted(talk.say(first, Message(Kind.NEXT)))
    assert talk.say(second, Message(Kind.NEXT), 1) is None
    talk.come(1, incarnation=2)
    assert talk.hears(second).json()["code"] == "connection"


def test_after_the_end_everyone_who_asks_is_told(talk):
    chief, worker = talk.come(), talk.come(1)
    talk.say(chief, Message(Kind.NEXT))
    assert talk.say(chief, Message.of(Kind.STOP, {"reason": "enough"})) is None
    snapshot = talk.say(talk.saver, Message(Kind.AWAIT_SNAPSHOT))
    assert snapshot.kind is Kind.FINAL_SNAPSHOT_DUE
    talk.say(talk.saver, Message(Kind.RESUME, step=0))
    assert talk.say(talk.saver, Message(Kind.FINISH)).kind is Kind.DONE
    assert talk.hears(chief).kind is Kind.FINISHED
    assert talk.say(worker, Message(Kind.NEXT), 1).kind is Kind.FINISHED
    assert talk.servers.job.stop_reason == "enough"
    for replica, peer in enumerate((chief, worker)):
        assert talk.say(peer, Message(Kind.LEAVE), replica).kind is Kind.DONE
    assert talk.servers.handlers[0].left == {0, 1}


def test_a_life_that_is_lost_while_it_waits_is_told_so_and_a_later_one_is_not(talk):
    chief, worker = talk.come(), talk.come(1)
    talk.say(chief, Message(Kind.NEXT))
    talk.servers.job.request_snapshot()
    assert talk.say(worker, Message(Kind.NEXT), 1) is None
    talk.post(talk.servers.job_requests.lost(1, 1))
    reply = talk.hears(worker).json()
    assert reply == {"code": "incarnation", "reason": "incarnation 1 of worker-0 is over"}
    later = talk.come(1, incarnation=2)
    assert talk.say(later, Message(Kind.NEXT), 1, incarnation=2) is None
    talk.post(talk.servers.job_requests.lost(1, 1))
    assert talk.hears(later) is None


def test_a_worker_that_leaves_to_begin_again_gives_back_what_it_has_and_is_waited_for(talk):
    chief, worker = talk.come(), talk.come(1)
    talk.say(chief, Message(Kind.NEXT))
    talk.say(worker, Message(Kind.NEXT), 1)
    assert talk.servers.job.num_given == 2
    assert talk.say(worker, Message(Kind.LEAVE, flags=BEGINS_AGAIN), 1).kind is Kind.DONE
    assert (talk.servers.job.replicas, talk.servers.job.num_given) == ({0: 1}, 1)
    assert talk.servers.handlers[0].left == set(), "a finished ps waits for its good-bye"
    assert not talk.servers.job.input._left
    assert talk.say(worker, Message(Kind.NEXT), 1).json()["code"] == "incarnation"


# the saver


def until_a_cut(talk: Talk) -> Message:
    """Train to step 2, where a snapshot is due; return what the saver receives."""
    chief = talk.come()
    talk.say(chief, Message(Kind.NEXT))
    talk.push(chief)
    assert talk.push(chief) is None
    told = talk.say(talk.saver, Message(Kind.AWAIT_SNAPSHOT))
    assert (told.kind, told.step) == (Kind.SNAPSHOT_DUE, 2)
    return told


@pytest.mark.parametrize("is_noticed_first", [True, False])
def test_a_saver_that_comes_back_is_told_of_the_cut_again(talk, is_noticed_first):
    told = until_a_cut(talk)
    former, talk.saver = talk.saver, None
    if is_noticed_first:
        talk.servers.disconnect(0, former)
    talk.saver = talk.come(0, Purpose.SAVE)
    assert talk.say(talk.saver, Message(Kind.AWAIT_SNAPSHOT)) == told
    talk.servers.disconnect(0, former)
    assert talk.say(talk.saver, Message(Kind.RESUME, step=2)).kind is Kind.DONE
    assert talk.servers.job.num_given == 1


def test_a_resume_is_answered_again_and_one_of_another_step_is_refused(talk):
    until_a_cut(talk)
    assert talk.say(talk.saver, Message(Kind.RESUME, step=1)).json()["code"] == "phase"
    assert talk.servers.job.phase is Phase.SNAPSHOT_ANNOUNCED
    for _ in range(2):
        assert talk.say(talk.saver, Message(Kind.RESUME, step=2)).kind is Kind.DONE
        assert talk.servers.job.phase is Phase.TRAINING


def test_a_saver_that_comes_after_the_end_is_refused(talk):
    talk.servers.job.stop("enough")
    for kind in (Kind.AWAIT_SNAPSHOT, Kind.RESUME, Kind.FINISH):
        talk.say(talk.saver, Message(kind, step=0))
    refused = talk.say(talk.saver, Message(Kind.AWAIT_SNAPSHOT))
    assert refused.json() == {"code": "phase", "reason": "no further snapshot comes; the job is finished"}
    assert talk.servers.job_requests._saver is None


def test_a_saver_that_waits_gives_way_to_its_next_connection(talk):
    assert talk.say(talk.saver, Message(Kind.AWAIT_SNAPSHOT)) is None
    former, talk.saver = talk.saver, talk.come(0, Purpose.SAVE)
    assert talk.say(talk.saver, Message(Kind.AWAIT_SNAPSHOT)) is None
    assert talk.hears(former).json()["code"] == "connection"
    talk.servers.disconnect(0, former)
    talk.servers.job.request_snapshot()
    talk.post(talk.servers.job_requests.due())
    assert talk.hears(talk.saver).kind is Kind.SNAPSHOT_DUE


def copied(talk: Talk) -> int:
    snapshot = until_a_cut(talk)
    assert talk.say(talk.saver, Message(Kind.SNAPSHOT, step=2, body=snapshot.body)).kind is Kind.DONE
    return 2


def test_a_write_is_answered_once_the_files_are_there(talk):
    step = copied(talk)
    handler = talk.servers.handlers[0]
    assert talk.say(talk.saver, Message(Kind.WRITE, step=step)) is None
    talk.post(handler.written(step, {"file": "x"}))
    assert talk.hears(talk.saver).json() == {"file": "x"}
    assert talk.say(talk.saver, Message(Kind.WRITE, step=step)).json() == {"file": "x"}
    assert handler._storage.writing == [step]


@pytest.mark.parametrize("is_noticed_first", [True, False])
def test_a_write_that_is_asked_for_again_happens_once(talk, is_noticed_first):
    step = copied(talk)
    handler = talk.servers.handlers[0]
    assert talk.say(talk.saver, Message(Kind.WRITE, step=step)) is None
    former = talk.saver
    if is_noticed_first:
        talk.servers.disconnect(0, former)
    talk.saver = talk.come(0, Purpose.SAVE)
    assert talk.say(talk.saver, Message(Kind.WRITE, step=step)) is None
    talk.servers.disconnect(0, former)
    talk.post(handler.written(step, {"file": "x"}))
    assert talk.hears(talk.saver).json() == {"file": "x"}
    assert handler._storage.writing == [step]


def test_a_write_that_fails_says_why_and_may_be_tried_again(talk):
    step = copied(talk)
    handler = talk.servers.handlers[0]
    assert talk.say(talk.saver, Message(Kind.WRITE, step=step)) is None
    talk.post(handler.written(step, Refusal("storage", "no space left")))
    assert talk.hears(talk.saver).json() == {"code": "storage", "reason": "no space left"}
    assert talk.say(talk.saver, Message(Kind.WRITE, step=step)) is None
    assert handler._storage.writing == [step, step]


def test_a_copy_is_not_overwritten_while_it_is_written(talk):
    step = copied(talk)
    snapshot = Snapshot.from_facts(talk.servers.job.snapshot().to_facts())
    assert talk.say(talk.saver, Message(Kind.WRITE, step=step)) is None
    talk.servers.disconnect(0, talk.saver)
    talk.saver = talk.come(0, Purpose.SAVE)
    refused = talk.say(talk.saver, Message.of(Kind.SNAPSHOT, snapshot.to_facts(), step=step))
    assert refused.json() == {"code": "writing", "reason": "the files of step 2 are still being written"}
    talk.post(talk.servers.handlers[0].written(step, {}))
    assert talk.say(talk.saver, Message.of(Kind.SNAPSHOT, snapshot.to_facts(), step=step)).kind is Kind.DONE


def test_a_copy_that_is_refused_is_not_taken_for_made(talk):
    step = copied(talk)
    assert talk.say(talk.saver, Message(Kind.WRITE, step=step)) is None
    talk.saver = talk.come(0, Purpose.SAVE)
    snapshot = talk.say(talk.saver, Message(Kind.AWAIT_SNAPSHOT))
    assert talk.say(talk.saver, Message(Kind.SNAPSHOT, step=step, body=snapshot.body)).json()["code"] == "writing"
    assert talk.servers.job.phase is Phase.SNAPSHOT_ANNOUNCED


# news


def watch(talk: Talk, peer: int, seen: int) -> Message | None:
    return talk.say(peer, Message(Kind.WATCH, step=seen), NO_REPLICA, 0)


def test_watchers_hear_of_later_checkpoints_and_of_the_end(talk):
    watcher = talk.come(NO_REPLICA, Purpose.WATCH, 0)
    assert watch(talk, watcher, -1) is None
    talk.say(talk.saver, Message(Kind.COMMITTED, step=2))
    assert talk.hears(watcher).json() == {"checkpoint": 2, "is_finished": False}
    assert watch(talk, watcher, 0).json()["checkpoint"] == 2
    assert watch(talk, watcher, 2) is None
    talk.say(talk.saver, Message(Kind.COMMITTED, step=1))
    assert talk.hears(watcher) is None
    talk.servers.job.stop("enough")
    talk.say(talk.saver, Message(Kind.AWAIT_SNAPSHOT))
    talk.say(talk.saver, Message(Kind.RESUME, step=0))
    talk.say(talk.saver, Message(Kind.FINISH))
    assert talk.hears(watcher).json()["is_finished"]


def test_a_watcher_that_is_gone_is_forgotten(talk):
    watcher = talk.come(NO_REPLICA, Purpose.WATCH, 0)
    watch(talk, watcher, -1)
    talk.servers.disconnect(0, watcher)
    talk.say(talk.saver, Message(Kind.COMMITTED, step=2))
    assert talk.hears(watcher) is None


# streams


def test_a_batch_is_fetched_once_it_is_read_and_kept_until_it_is_used(stream):
    chief = stream.come()
    assert granted(stream.say(chief, Message(Kind.NEXT))) == 0
    assert stream.say(chief, Message(Kind.FETCH, step=0)) is None
    assert stream.servers.stream.wanted == 0
    stream.post(stream.servers.job_requests.batch_read(0, b"first"))
    assert bytes(stream.hears(chief).body) == b"first"
    assert bytes(stream.say(chief, Message(Kind.FETCH, step=0)).body) == b"first"
    assert granted(stream.push(chief)) == 1
    assert stream.servers.job_requests._batches == {}
    assert stream.say(chief, Message(Kind.FETCH, step=0)).json()["code"] == "batch"


def test_the_first_batch_may_be_looked_at_before_any_ticket(stream):
    chief = stream.come()
    stream.post(stream.servers.job_requests.batch_read(0, b"first"))
    assert bytes(stream.say(chief, Message(Kind.FETCH, step=0)).body) == b"first"


def test_beyond_the_end_there_is_no_batch_and_no_ticket(stream):
    chief = stream.come()
    granted(stream.say(chief, Message(Kind.NEXT)))
    stream.post(stream.servers.job_requests.batch_read(0, b"first"))
    assert granted(stream.push(chief)) == 1
    assert stream.say(chief, Message(Kind.FETCH, step=1)) is None
    stream.post(stream.servers.job_requests.stream_ended(1))
    assert stream.hears(chief).kind is Kind.DONE
    assert stream.say(chief, Message(Kind.NEXT)) is None
    told = stream.say(stream.saver, Message(Kind.AWAIT_SNAPSHOT))
    assert (told.kind, told.step) == (Kind.FINAL_SNAPSHOT_DUE, 1)


def test_a_stream_of_its_own_ends_the_job_when_its_replica_says_so(servers_of):
    talk = Talk(servers_of(MODEL, input_spec=InputSpec(None, each_worker_reads_all=True)))
    chief = talk.come()
    granted(talk.say(chief, Message(Kind.NEXT)))
    assert granted(talk.push(chief)) == 1
    for _ in range(2):  # a connection may break before the answer
        assert talk.say(chief, Message(Kind.INPUT_ENDED, step=1)).kind is Kind.DONE
    assert talk.say(chief, Message(Kind.NEXT)) is None
    told = talk.say(talk.saver, Message(Kind.AWAIT_SNAPSHOT))
    assert (told.kind, told.step) == (Kind.FINAL_SNAPSHOT_DUE, 1)


def test_a_stream_that_ends_while_a_cut_is_copied_still_ends_the_job(stream):
    chief = stream.come()
    granted(stream.say(chief, Message(Kind.NEXT)))
    stream.say(stream.saver, Message(Kind.REQUEST_SNAPSHOT))
    assert stream.push(chief) is None
    assert stream.say(stream.saver, Message(Kind.AWAIT_SNAPSHOT)).kind is Kind.SNAPSHOT_DUE
    stream.post(stream.servers.job_requests.stream_ended(1))
    stream.say(stream.saver, Message(Kind.RESUME, step=1))
    assert stream.say(stream.saver, Message(Kind.AWAIT_SNAPSHOT)).kind is Kind.FINAL_SNAPSHOT_DUE
    stream.say(stream.saver, Message(Kind.RESUME, step=1))
    stream.say(stream.saver, Message(Kind.FINISH))
    assert stream.hears(chief).kind is Kind.FINISHED


def test_a_failed_stream_is_told_to_whoever_needs_more_of_it(stream):
    chief = stream.come()
    granted(stream.say(chief, Message(Kind.NEXT)))
    stream.post(stream.servers.job_requests.batch_read(0, b"first"))
    stream.post(stream.servers.job_requests.stream_failed("the input_fn failed: ValueError: boom"))
    assert bytes(stream.say(chief, Message(Kind.FETCH, step=0)).body) == b"first"
    granted(stream.push(chief))
    reply = stream.say(chief, Message(Kind.FETCH, step=1))
    assert reply.json() == {"code": "input", "reason": "the input_fn failed: ValueError: boom"}
