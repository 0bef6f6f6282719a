from __future__ import annotations

import pytest
from pydantic import ValidationError

from psflow.flows.parameters.base import FlowParameters
from psflow.flows.parameters.cluster import ClusterParameters, EvaluateClusterParameters, PredictClusterParameters

ADDRESSES = [
    "tcp://10.0.0.1:8786",
    "tls://head.cluster.local:8786",
    "localhost:8786",
    "tcp://[::1]:8786",
    "inproc://h/1/2",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_of_dask_are_taken(address: str) -> None:
    assert ClusterParameters(address=address).address == address


@pytest.mark.parametrize(
    "address", ["", "host", "tcp://host", "host:port", "http://host:8787", "tcp://host:8786/status"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="expected tcp://HOST:PORT, or tls:// with certificates, got"):
        ClusterParameters(address=address)


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:8786", "ws://10.0.0.1:8786", "10.0.0.1:8786"])
@pytest.mark.parametrize("kind", [ClusterParameters, EvaluateClusterParameters, PredictClusterParameters])
def test_a_scheduler_without_tls_is_refused_where_that_is_required(kind: type[FlowParameters], address: str) -> None:
    assert kind(address=address)
    with pytest.raises(ValidationError, match=rf"require_tls is true, .* tls://HOST:PORT, got '{address}'; give"):
        kind(address=address, require_tls=True)


@pytest.mark.parametrize("address", [None, "tls://10.0.0.1:8786", "wss://10.0.0.1:8786", "inproc://h/1/2"])
def test_a_scheduler_with_tls_is_taken_where_that_is_required(address: str | None) -> None:
    assert ClusterParameters(address=address, require_tls=True).address == address
