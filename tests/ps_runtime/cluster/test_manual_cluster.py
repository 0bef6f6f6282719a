"""A cluster whose processes are started manually: who may join, who is waited for, and how all of them end."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import errno
import logging
import math
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Semaphore
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Client, Event, wait

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.records import write_finished
from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster import chief_process, role_worker, scheduler_rpc, worker_process
from psflow.ps_runtime.cluster.certificate_file import kept_certificate
from psflow.ps_runtime.cluster.chief_process import ManualCluster, _nodes, describe, open_manual_cluster
from psflow.ps_runtime.cluster.closed_nodes import shown_warnings
from psflow.ps_runtime.cluster.host_addresses import check_can_listen, dask_address, is_of_this_machine
from psflow.ps_runtime.cluster.own_security import new_pem
from psflow.ps_runtime.cluster.worker_process import OwnProgram, _JoinAttempt, join_manual_cluster
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import (
    ConfigError,
    InputError,
    LostDirectoryError,
    StoppedError,
    UsageError,
    WaitTimeoutError,
)
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses
from psflow.ps_runtime.specs.roles import RoleId
from tests.free_ports import free_address
from tests.limits import HANG_SECS
from tests.tasks.waiting import wait_until

PS, CHIEF, EVALUATOR = map(RoleId.parse, ("ps-0", "chief-0", "evaluator-0"))
PROGRAM = {"TrainSpec.max_steps": "40"}


@pytest.fixture
def cluster() -> ClusterAddresses:
    return ClusterAddresses(free_address(), ps=(free_address(),))


@pytest.fixture(autouse=True)
def _dask_config() -> Iterator[None]:
    """Put the configuration of Dask back: threads of this process change it here, each for its own time."""
    before = copy.deepcopy(dask.config.config)
    yield
    dask.config.config.clear()
    dask.config.config.update(before)


@contextmanager
def led(cluster: ClusterAddresses, model_dir: Path, *, evaluator: bool = False) -> Iterator[ManualCluster]:
    with open_manual_cluster(
        cluster, str(model_dir), PROGRAM, evaluator=evaluator, on_event=lambda event: None
    ) as found:
        yield found


def joined(
    cluster: ClusterAddresses,
    role: RoleId,
    model_dir: Path,
    timeout_secs: float = HANG_SECS,
    program: dict[str, str] = PROGRAM,
) -> None:
    join_manual_cluster(cluster, role, str(model_dir), OwnProgram(program), lambda event: None, timeout_secs)


@pytest.fixture
def beside() -> Iterator[Any]:
    """Give what has a function run beside the test."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit


@pytest.mark.cluster
@pytest.mark.skipif(not is_of_this_machine("::1"), reason="this host has no IPv6")
def test_addresses_of_ipv6(tmp_path: Path, beside: Any) -> None:
    addresses = [free_address().replace("localhost", "[::1]") for _ in range(2)]
    cluster = ClusterAddresses(addresses[0], ps=(addresses[1],))
    cluster = replace(cluster, evaluator=free_address().replace("localhost", "[::1]"))
    with led(cluster, tmp_path, evaluator=True) as one:
        ends = [beside(joined, cluster, role, tmp_path) for role in (PS, EVALUATOR)]
        slots = one.await_processes(HANG_SECS, never_stop)
    assert (slots[PS], slots[EVALUATOR].rpartition(":")[0]) == (dask_address(addresses[1]), "tls://[::1]")
    assert [end.result(HANG_SECS) for end in ends] == [None, None]


@pytest.mark.cluster
def test_all_join_and_end_as_the_chief_says(cluster: ClusterAddresses, tmp_path: Path, beside: Any) -> None:
    with led(cluster, tmp_path, evaluator=True) as one:
        ends = [beside(joined, cluster, EVALUATOR, tmp_path)]
        wait_until(lambda: one.has_joined(EVALUATOR))  # it need not come, so nothing waits for it
        ends.append(beside(joined, cluster, PS, tmp_path))
        slots = one.await_processes(HANG_SECS, never_stop)
        assert {str(role) for role in slots} == {"ps-0", "chief-0", "evaluator-0"}
        assert slots[PS] == dask_address(cluster.ps[0])
        assert len(set(slots.values())) == 3
        with pytest.raises(UsageError, match=r"^evaluator-0 has joined the chief at localhost:\d+ already; start each"):
            joined(cluster, EVALUATOR, tmp_path)
        with pytest.raises(UsageError, match=r"^ps-0 cannot listen at localhost:\d+: its own process listens"):
            joined(cluster, PS, tmp_path)
        assert (tmp_path / "tls").is_dir()
        assert {role: one.slot_of(role) for role in slots} == slots
    assert [end.result(HANG_SECS) for end in ends] == [None, None]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no such input"), r"ValueError\('no such input'\)"),
        (KeyboardInterrupt(), r"it was interrupted \(SIGINT\)"),
        (SystemExit(143), r"it was terminated \(SIGTERM\)"),
        (SystemExit("enough"), "it exited with 'enough'"),
    ],
)
def test_what_the_job_fails_of_is_told_to_all(
    error: BaseException, words: str, cluster: ClusterAddresses, tmp_path: Path, beside: Any
) -> None:
    def fail() -> None:
        with led(cluster, tmp_path) as one:
            one.await_processes(HANG_SECS, never_stop)
            raise error

    end = beside(joined, cluster, PS, tmp_path)
    with pytest.raises(type(error)):
        fail()
    with pytest.raises(StoppedError, match=rf"^ps-0 was stopped: the chief at {cluster.chief} ended the job: {words}$"):
        end.result(HANG_SECS)
    assert list(tmp_path.iterdir()) == []


def plan_in_vain(cluster: ClusterAddresses, model_dir: Path) -> None:
    with led(cluster, model_dir, evaluator=True) as one, one.planning():
        raise InputError(("no such input",))


@pytest.mark.cluster
def test_processes_that_join_after_the_plan_has_failed_end_with_its_failure(
    cluster: ClusterAddresses,
    tmp_path: Path,
    beside: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LATE_SECS", "LATE_EVALUATOR_SECS"):
        monkeypatch.setattr(chief_process, name, HANG_SECS)
    chief = beside(plan_in_vain, cluster, tmp_path)
    missing = rf"ps-0 \({cluster.ps[0]}\), evaluator-0"
    words = rf"^the chief ends: it failed while it planned: no such input; it waits up to \d+ s for {missing}, so that"
    wait_until(lambda: any(re.match(words, message) for message in caplog.messages))
    for role in (PS, EVALUATOR):
        words = f"{role} was stopped: the chief at {cluster.chief} ended the job: it failed while it planned: no such "
        with pytest.raises(StoppedError, match=f"^{words}input; see its output$"):
            joined(cluster, role, tmp_path)
    with pytest.raises(InputError, match=r"^no such input$"):
        chief.result(HANG_SECS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cluster
def test_a_chief_whose_plan_has_failed_waits_a_moment_for_the_others(
    cluster: ClusterAddresses, tmp_path: Path, beside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chief_process, "LATE_SECS", 0.0)
    with pytest.raises(InputError, match=r"^no such input$"):
        plan_in_vain(cluster, tmp_path)
    monkeypatch.setattr(chief_process, "LATE_SECS", math.inf)
    monkeypatch.setattr(chief_process, "LATE_EVALUATOR_SECS", 0.0)
    end = beside(joined, cluster, PS, tmp_path)
    with pytest.raises(InputError, match=r"^no such input$"):
        plan_in_vain(cluster, tmp_path)  # no evaluator comes
    with pytest.raises(StoppedError, match=r" ended the job: it failed while it planned: no such input; see its"):
        end.result(HANG_SECS)


@pytest.mark.cluster
def test_a_chief_that_is_stopped_while_it_plans_waits_for_nobody(
    cluster: ClusterAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ManualCluster, "_end_late_ones", pytest.fail)
    with pytest.raises(StoppedError, match=r"enough"), led(cluster, tmp_path) as one, one.planning():
        raise StoppedError("chief-0", "enough")


@pytest.mark.cluster
def test_a_chief_that_is_gone_without_a_word_is_no_end(cluster: ClusterAddresses, tmp_path: Path, beside: Any) -> None:
    pem, (host, port) = new_pem(), check_can_listen("the chief", cluster.chief)
    description = describe(cluster, str(tmp_path), PROGRAM)
    with (
        _nodes(pem, host, port, description, {"on_event": lambda event: None}, str(tmp_path)) as nodes,
        kept_certificate(str(tmp_path), pem),
    ):
        end = beside(joined, cluster, PS, tmp_path)
        with Client(nodes) as client:
            scheduler: Any = nodes.scheduler
            ManualCluster(client, cluster, cluster.processes(evaluator=False), scheduler).await_processes(
                HANG_SECS, never_stop
            )
    with pytest.raises(
        StoppedError, match=r"^ps-0 was stopped: the chief at .* is gone; look at its output, then start"
    ):
        end.result(HANG_SECS)


@pytest.mark.cluster
def test_a_chief_that_does_not_answer_is_given_up(
    cluster: ClusterAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: Any
) -> None:
    answers = Semaphore(0)

    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(worker_process, "ECHO_SECS", 0.1)
    with led(cluster, tmp_path) as one:
        scheduler: Any = one.client.cluster.scheduler
        scheduler.handlers["echo"] = answers.release
        end = beside(joined, cluster, PS, tmp_path)
        assert PS in one.await_processes(HANG_SECS, never_stop)
        assert all(answers.acquire(timeout=HANG_SECS) for _ in range(5))
        assert not end.done()
        scheduler.handlers["echo"] = wait_for_ever
        monkeypatch.setattr(scheduler_rpc, "SILENCE_SECS", 2.0)
        words = rf"^ps-0 was stopped: the chief at {cluster.chief} did not answer for 2 s; check whether it is stopped"
        with pytest.raises(StoppedError, match=words):
            end.result(HANG_SECS)


@pytest.mark.cluster
def test_a_chief_that_is_there_and_does_not_answer_is_not_waited_for(
    cluster: ClusterAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(worker_process, "ANSWER_TIMEOUT_SECS", 0.1)
    with led(cluster, tmp_path) as one:
        scheduler: Any = one.client.cluster.scheduler
        scheduler.handlers["describe_cluster"] = wait_for_ever
        words = (
            rf"^the chief at {cluster.chief} did not answer within 0 s: its process is there, but did not answer within"
        )
        with pytest.raises(WaitTimeoutError, match=words):
            joined(cluster, PS, tmp_path, 0.0)


def test_a_scheduler_that_does_not_start_says_why(
    cluster: ClusterAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**options: Any) -> None:
        try:
            raise OSError("Cannot assign requested address")
        except OSError as error:
            raise RuntimeError("Cluster failed to start: Timed out") from error

    monkeypatch.setattr(chief_process, "SpecCluster", fail)
    where = "127.0.0.1:" + cluster.chief.rpartition(":")[2]
    words = f"^chief-0 was stopped: its scheduler, at {where}, did not start: Cannot assign requested address$"
    with pytest.raises(StoppedError, match=words), led(cluster, tmp_path):
        pytest.fail("there is no cluster")


@pytest.mark.cluster
def test_other_clusters_and_directories_are_refused(cluster: ClusterAddresses, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    other = ClusterAddresses(cluster.chief, ("localhost:1",), cluster.ps)
    with led(cluster, tmp_path / "a"), pytest.raises(ConfigError) as caught:
        joined(other, PS, tmp_path / "b", program={"TrainSpec.max_steps": "41", "params['x']": "1" * 999})
    who = f"for the chief at {cluster.chief}; give all processes the same"
    assert caught.value.faults == (
        f"cluster.worker is ['localhost:1'], but not there {who}",
        f"model_dir is '{tmp_path}/b', but '{tmp_path}/a' {who}",
        f"TrainSpec.max_steps is 41, but 40 {who}",
        f"params['x'] is {'1' * 300}... (999 characters), but not there {who}",
    )


def test_warnings_reach_the_terminal_of_a_process_that_configures_no_logging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    with shown_warnings():
        root.addHandler(of_role := logging.NullHandler())
        logging.getLogger("psflow").warning("ps-0 is lost")
        root.removeHandler(of_role)
    assert (capsys.readouterr().err, root.handlers) == ("ps-0 is lost\n", [])
    monkeypatch.setattr(root, "handlers", [of_role])
    with shown_warnings():
        assert root.handlers == [of_role]


@pytest.mark.cluster
def test_a_process_without_a_program_agrees_on_the_cluster_alone(
    cluster: ClusterAddresses, tmp_path: Path, beside: Any
) -> None:
    own = OwnProgram()
    with led(cluster, tmp_path) as one:
        end = beside(join_manual_cluster, cluster, PS, str(tmp_path), own, lambda event: None)
        assert PS in one.await_processes(HANG_SECS, never_stop)
        for other in (ClusterAddresses(cluster.chief, ("localhost:1",), cluster.ps), ClusterAddresses(cluster.chief)):
            with pytest.raises(ConfigError, match=r"^cluster\.(worker|ps) is .*, but .* for the chief at localhost"):
                join_manual_cluster(other, EVALUATOR, str(tmp_path), own, lambda event: None)
    assert end.result(HANG_SECS) is None


def test_a_process_that_waits_for_the_chief_ends_as_check_says(cluster: ClusterAddresses, tmp_path: Path) -> None:
    def check() -> None:
        raise StoppedError("ps-0", "its Dask task was cancelled")

    with pytest.raises(StoppedError, match=r"cancelled$"):
        join_manual_cluster(cluster, PS, str(tmp_path), OwnProgram(), lambda event: None, math.inf, check)


@pytest.mark.cluster
def test_a_process_that_does_not_come_is_named(
    cluster: ClusterAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0

    def sleep(secs: float) -> None:
        nonlocal now
        now += secs

    monkeypatch.setattr(chief_process, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(chief_process, "Deadline", lambda secs: Deadline(secs, lambda: now))
    cluster = replace(cluster, evaluator=free_address())  # else nobody waits for an evaluator
    who = rf"ps-0 \({cluster.ps[0]}\), evaluator-0 \({cluster.evaluator}\)"
    remedy = (
        "start each of them, with the cluster of this process; to allow more time, set session_creation_timeout_secs "
        "of RunConfig"
    )
    words = rf"^{who} did not join the chief within 7 s: {remedy}$"
    with led(cluster, tmp_path, evaluator=True) as one, pytest.raises(WaitTimeoutError, match=words):
        one.await_processes(7.0, never_stop)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert re.fullmatch(rf"waiting up to 2 s more for {who}; a process that does not find this model_dir.*", said[0])
    assert len(said) == 1


@pytest.mark.cluster
def test_the_chief_hears_of_a_process_that_is_refused(
    cluster: ClusterAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_worker, "REFUSAL_SECS", 0.0)
    with led(cluster, tmp_path) as one:
        with pytest.raises(ConfigError) as refused:
            joined(cluster, PS, tmp_path, program={"TrainSpec.max_steps": "41"})
        with pytest.raises(UsageError) as heard:
            one.await_processes(HANG_SECS, never_stop)
    assert heard.value.faults == tuple(f"ps-0 does not join: {fault}" for fault in refused.value.faults)


@pytest.mark.cluster
def test_a_process_that_cannot_listen_tells_the_chief_that_begins_later(
    cluster: ClusterAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: Any
) -> None:
    monkeypatch.setattr(role_worker, "REFUSAL_SECS", 0.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(cluster.ps[0].partition(":")[2])))
        taken.listen()
        end = beside(joined, cluster, PS, tmp_path)
        words = (
            r"^ps-0 does not join: ps-0 cannot listen at localhost:\d+: its own process listens there already; close"
        )
        with led(cluster, tmp_path) as one, pytest.raises(UsageError, match=words):
            one.await_processes(HANG_SECS, never_stop)
    with pytest.raises(UsageError, match=r"^ps-0 cannot listen at"):
        end.result(HANG_SECS)


@pytest.mark.cluster
def test_who_was_refused_ends_nothing_where_another_process_of_its_role_joins(
    cluster: ClusterAddresses,
    tmp_path: Path,
    beside: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(role_worker, "REFUSAL_SECS", HANG_SECS)
    with led(cluster, tmp_path) as one:
        with pytest.raises(ConfigError):
            joined(cluster, PS, tmp_path, program={"TrainSpec.max_steps": "41"})
        end = beside(joined, cluster, PS, tmp_path)
        assert PS in one.await_processes(HANG_SECS, never_stop)
    assert end.result(HANG_SECS) is None
    assert "ps-0 does not join: TrainSpec.max_steps is 41, but 40 for the chief" in caplog.text


@pytest.mark.cluster
def test_a_master_has_both_its_roles_at_one_address(tmp_path: Path) -> None:
    cluster = ClusterAddresses(free_address(), chief_evaluates=True)
    with led(cluster, tmp_path, evaluator=True) as one:
        slots = one.await_processes(0.0, never_stop)
    assert {str(role) for role in slots} == {"chief-0", "evaluator-0"}
    assert len(set(slots.values())) == 1


@pytest.mark.cluster
def test_the_wait_ends_as_check_says(cluster: ClusterAddresses, tmp_path: Path) -> None:
    def check() -> None:
        raise KeyboardInterrupt

    with led(cluster, tmp_path) as one, pytest.raises(KeyboardInterrupt):
        one.await_processes(HANG_SECS, check)


@pytest.mark.cluster
def test_a_process_that_is_not_there_or_busy_has_no_slot(cluster: ClusterAddresses, tmp_path: Path) -> None:
    with led(cluster, tmp_path) as one:
        assert (one.slot_of(PS), one.has_joined(PS)) == (None, False)
        with one.client.as_current():
            abandoned = Event("let-go")
        busy = one.client.submit(Event.wait, abandoned, timeout=HANG_SECS, pure=False)
        while not any(one.client.processing().values()):
            pass
        assert (one.slot_of(CHIEF), one.has_joined(CHIEF)) == (None, True)
        abandoned.set()
        wait([busy])
        assert one.slot_of(CHIEF) is not None


@pytest.mark.cluster
def test_a_file_that_an_earlier_cluster_has_left_is_refused_only_once_no_chief_replaces_it(
    cluster: ClusterAddresses, tmp_path: Path, beside: Any
) -> None:
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "cluster.pem").write_text("old")
    (tmp_path / "tls" / "cluster.pem").chmod(0o644)
    with pytest.raises(
        UsageError, match=r"cluster\.pem holds a key, but other users may read it \(mode 0644\); set its mode"
    ):
        joined(cluster, PS, tmp_path, 0.0)
    end = beside(joined, cluster, PS, tmp_path)
    with led(cluster, tmp_path) as one:
        assert PS in one.await_processes(HANG_SECS, never_stop)
    assert end.result(HANG_SECS) is None


@pytest.mark.cluster
def test_a_process_that_does_not_see_the_model_dir_of_its_chief_is_refused(
    cluster: ClusterAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "APART_SECS", 0.0)
    own = tmp_path / "own"
    who = rf"^{own}: the chief at {cluster.chief} is there, but ps-0 on {socket.gethostname()}"
    advice = "use a directory that all hosts see under this name, on a shared mount, or a URL"
    with led(cluster, tmp_path):
        with pytest.raises(LostDirectoryError, match=rf"{who} finds no certificate of it in tls/; {advice}"):
            joined(cluster, PS, own)
        own.mkdir()
        with (
            kept_certificate(str(own), new_pem()),
            pytest.raises(LostDirectoryError, match=rf"{who} finds another certificate of it in tls/; {advice}"),
        ):
            joined(cluster, PS, own)


def test_without_a_chief_nothing_joins(cluster: ClusterAddresses, tmp_path: Path) -> None:
    words = (
        rf"^the chief at {cluster.chief} did not answer within 0 s: there is no certificate of it in {tmp_path}/tls;"
    )
    with pytest.raises(WaitTimeoutError, match=words):
        joined(cluster, PS, tmp_path, 0.0)


@pytest.mark.cluster
def test_what_a_killed_chief_has_left_leads_nowhere(cluster: ClusterAddresses, tmp_path: Path) -> None:
    words = rf"^the chief at {cluster.chief} did not answer within 0 s: .*; start it, and give all processes the same"
    with kept_certificate(str(tmp_path), new_pem()), pytest.raises(WaitTimeoutError, match=words) as caught:
        joined(cluster, PS, tmp_path, 0.0)
    assert "there is no certificate" not in str(caught.value)


def test_of_two_processes_of_one_role_the_later_one_hears_why(cluster: ClusterAddresses, tmp_path: Path) -> None:
    own = _JoinAttempt(cluster, PS, str(tmp_path), OwnProgram(), Deadline(0))
    refusal = own._refusal(OSError(errno.EADDRINUSE, "Address already in use"))
    words = f"ps-0 cannot listen at {cluster.ps[0]}: another process listens there; end it, or choose another port"
    assert (type(refusal), str(refusal)) == (UsageError, words)


def test_who_comes_after_the_end_hears_of_it(cluster: ClusterAddresses, tmp_path: Path) -> None:
    write_finished(str(tmp_path), 40, "the input ended")
    words = r"did not answer within 0 s: .*/tls; the job there has finished at step 40;"
    with pytest.raises(WaitTimeoutError, match=words):
        joined(cluster, PS, tmp_path, 0.0)


def test_the_end_is_looked_for_only_once_the_time_is_over(
    cluster: ClusterAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FileStore, name: str) -> int:
        assert deadline.has_passed
        raise PermissionError(errno.EACCES, "Permission denied", self.path(name))

    monkeypatch.setattr(FileStore, "size", refuse)
    monkeypatch.setattr(worker_process, "POLL_SECS", 0.01)
    deadline = Deadline(0.03)
    words = (
        rf"^model_dir {tmp_path}: {tmp_path}/finished.json cannot be read: Permission denied; start all processes as"
    )
    with pytest.raises(UsageError, match=words):
        asyncio.run(_JoinAttempt(cluster, PS, str(tmp_path), OwnProgram(), deadline)._meet())


@contextmanager
def listening(cluster: ClusterAddresses, program: str) -> Iterator[None]:
    """Listen at the address of the chief, as another program."""
    host, _, port = cluster.chief.rpartition(":")
    with socket.create_server((host, int(port))) as server, ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            with contextlib.suppress(OSError):  # the end of the block
                while True:
                    connection, _ = server.accept()
                    with connection:
                        if program == "a web server":
                            connection.recv(100)
                        connection.sendall(b"no TLS here\r\n")

        if program != "a silent one":
            pool.submit(serve)
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("program", ["a silent one", "a web server", "a mail server"])
@pytest.mark.parametrize("left", ["nothing", "an earlier certificate"])
def test_another_program_at_the_address_of_the_chief_is_not_the_chief(
    cluster: ClusterAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, left: str
) -> None:
    monkeypatch.setattr(worker_process, "APART_SECS", 0.0)
    monkeypatch.setattr(worker_process, "ANSWER_TIMEOUT_SECS", 0.1)
    monkeypatch.setattr(worker_process, "CONNECT_TIMEOUT_SECS", 0.1)
    keep = kept_certificate(str(tmp_path), new_pem()) if left != "nothing" else contextlib.nullcontext()
    words = f"^the chief at {cluster.chief} did not answer"
    with listening(cluster, program), keep, pytest.raises(WaitTimeoutError, match=words):
        joined(cluster, PS, tmp_path, 0.0)
