from __future__ import annotations

import pytest
from pydantic import ValidationError

from psflow.flows.parameters.cluster import ClusterParameters

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
