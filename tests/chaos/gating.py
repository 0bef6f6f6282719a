"""Where the code of psflow waits at the gates of a trial, in the process of a role, which is of one trial alone."""

from __future__ import annotations

from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.client.checkpoints import SavingClient
from psflow.ps_runtime.client.pulls import PulledVariables
from psflow.ps_runtime.client.shard_client import ShardClient
from psflow.ps_runtime.protocol.job_state import Snapshot
from psflow.ps_runtime.protocol.message import Kind, Message, encode_header
from tests.chaos.gates import Gates
from tests.chaos.trials import Phase

TORN_BYTES = 8
"""Of a message of which no more was sent when its connection broke."""


def gate_messages(gates: Gates, *, is_torn: bool) -> None:
    """Have a replica wait before it reads what it pulls, and before and after its push is on its way to ps-0.

    Parameters
    ----------
    gates : Gates
        Of the trial.
    is_torn : bool
        Whether the beginning of the push is on its way while it waits; then the connection must break there.
    """
    finish, send = PulledVariables.finish, ShardClient.send

    def finish_late(pulled: PulledVariables) -> None:
        gates.pass_through(Phase.PULL)
        finish(pulled)

    def send_late(client: ShardClient, message: Message) -> None:
        is_last_part = message.kind is Kind.PUSH and client.connection.peer.startswith("ps-0 ")
        if is_last_part:
            if is_torn and gates.phase is Phase.PUSH and not gates.is_open:
                beginning = encode_header(message, len(message.body))[:TORN_BYTES]
                client.connection._socket.send(beginning)  # type: ignore[attr-defined]
            gates.pass_through(Phase.PUSH)
        send(client, message)
        if is_last_part:
            gates.pass_through(Phase.ANSWER)

    PulledVariables.finish = finish_late  # type: ignore[method-assign]
    ShardClient.send = send_late  # type: ignore[method-assign]


def gate_checkpoints(gates: Gates, first_step: int, final_step: int) -> None:
    """Have the chief wait before the copy of a checkpoint from `first_step` on, and before its manifest."""
    take, commit = SavingClient.snapshot, CheckpointStore.commit

    def snapshot_late(client: SavingClient, snapshot: Snapshot) -> None:
        if snapshot.step >= first_step:
            gates.pass_through(Phase.CUT)
        take(client, snapshot)

    def commit_late(store: CheckpointStore, manifest: Manifest) -> Manifest:
        if manifest.step >= first_step:
            gates.pass_through(Phase.COMMIT)
        if manifest.step == final_step:
            gates.pass_through(Phase.FINISH)
        return commit(store, manifest)

    SavingClient.snapshot = snapshot_late  # type: ignore[method-assign]
    CheckpointStore.commit = commit_late  # type: ignore[method-assign]
