from __future__ import annotations

import pytest
from prefect.states import Completed, Failed

from psflow.flows.running.invocation import _result_of
from psflow.ps_runtime.errors import FlowFailedError, InputError, RoleFailedError


def test_what_a_flow_that_has_begun_finds_out_is_no_usage_error() -> None:
    assert _result_of(Completed(data={"step": 3})) == {"step": 3}
    with pytest.raises(FlowFailedError, match=r"^no such column\nno such file$"):
        _result_of(Failed(data=InputError(("no such column", "no such file"))))
    with pytest.raises(RoleFailedError, match="ps-0 failed: boom"):
        _result_of(Failed(data=RoleFailedError("ps-0", "boom")))
