"""Why a job has failed, as its owner tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from psflow.ps_runtime.cluster.failures import root_cause, trace_in_role, user_fault
from psflow.ps_runtime.cluster.incarnations import UserFault
from psflow.ps_runtime.errors import (
    BrokenPeerError,
    CheckpointError,
    ClosedError,
    ModelFnError,
    NanLossError,
    RoleFailedError,
    StoppedError,
    StorageError,
)
from psflow.ps_runtime.specs.roles import Role, RoleId

PS, CHIEF, WORKER = RoleId(Role.PS, 0), RoleId(Role.CHIEF, 0), RoleId(Role.WORKER, 0)
HERE = Path(__file__).name


def raised() -> ValueError:
    try:
        raise ValueError("no luck")
    except ValueError as error:
        return error


@pytest.mark.parametrize("consequence", [StoppedError("ps-0", "x"), ClosedError("ps-0"), BrokenPeerError("ps-0", "x")])
def test_a_consequence_is_not_the_cause(consequence: Exception) -> None:
    cause = root_cause([(PS, consequence), (WORKER, raised())])
    assert cause.role == "worker-0"
    assert isinstance(cause.__cause__, ValueError)


def test_of_equals_the_first_counts() -> None:
    assert root_cause([(CHIEF, raised()), (WORKER, raised())]).role == "chief-0"
    assert root_cause([(CHIEF, StoppedError("chief-0", "x")), (WORKER, ClosedError("w"))]).role == "chief-0"


def test_an_error_of_the_user_is_told_with_its_place() -> None:
    told = str(root_cause([(WORKER, raised())]))
    assert told.startswith("worker-0 failed: ValueError('no luck') at ")
    assert HERE in told


def test_an_error_of_psflow_speaks_for_itself() -> None:
    assert (
        str(root_cause([(CHIEF, NanLossError(float("nan"), 7))])) == f"chief-0 failed: {NanLossError(float('nan'), 7)}"
    )


def test_a_killed_role_has_no_trace() -> None:
    killed = RoleFailedError("ps-0", "its Dask worker was lost")
    assert root_cause([(PS, killed)]) is killed
    assert trace_in_role(killed) == ""


def test_an_error_of_psflow_is_told_without_a_trace_unless_another_lies_behind_it() -> None:
    def trace(error: Exception, behind: Exception | None) -> str:
        error.__cause__ = behind
        return trace_in_role(root_cause([(CHIEF, error)]))

    full = StorageError("shard", "No space left on device", 0)
    assert trace(CheckpointError("of step 300", str(full)), ClosedError("ps-0")) == ""
    assert trace(full, OSError(28, "No space left on device")) == ""
    assert "ValueError: no luck" in trace(ModelFnError(("it failed",)), raised())
    assert "FileNotFoundError" in trace(ModelFnError(("it failed",)), FileNotFoundError("mine"))
    assert "FileNotFoundError" in trace(FileNotFoundError("mine"), None)


def test_trace_begins_where_the_role_does() -> None:
    scope: dict[str, object] = {}
    source = "def run_role(f):\n    f()\n"
    exec(compile(source, "/somewhere/role_task.py", "exec"), scope)
    failures = []
    for call in (lambda: scope["run_role"](raise_it), raise_it):  # type: ignore[operator]
        try:
            call()
        except ValueError as error:
            failures.append(trace_in_role(root_cause([(WORKER, error)])))
    in_role, elsewhere = failures
    assert "role_task.py" not in in_role
    assert in_role.startswith("Traceback (most recent call last):")
    assert in_role.endswith("ValueError: no luck")
    assert in_role.count("File ") == 1
    assert elsewhere.count("File ") == 2


def raise_it() -> None:
    raise ValueError("no luck")


def test_a_fault_of_the_user_is_the_same_at_the_same_line_whatever_it_says() -> None:
    def fault(text: str, wraps: bool) -> UserFault | None:
        try:
            raise OSError(text)
        except OSError as error:
            wrapped = ModelFnError((f"model_fn raised OSError: {text}",))
            wrapped.__cause__ = error
            return user_fault(wrapped if wraps else error)

    plain, other, wrapped = fault("a", False), fault("b", False), fault("c", True)
    assert plain is not None
    assert other is not None
    assert wrapped is not None
    assert plain.kind == other.kind == wrapped.kind
    assert plain.kind.startswith("OSError at ")
    assert HERE in plain.kind
    assert (plain.sentence, wrapped.sentence) == (
        f"OSError('a'){raised_at_of(plain)}",
        "model_fn raised OSError: c",
    )


def raised_at_of(fault: UserFault) -> str:
    return fault.kind.removeprefix("OSError")


@pytest.mark.parametrize("error", [NanLossError(float("nan"), 7), StoppedError("x", "y"), ModelFnError(("no loss",))])
def test_what_psflow_refuses_is_no_fault_of_the_user(error: Exception) -> None:
    assert user_fault(error) is None
