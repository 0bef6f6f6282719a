from __future__ import annotations

import json
import pickle

import pytest

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.scratch import boot_id
from psflow.ps_runtime.transport.listeners import Address, new_unix_name

HERE = Address("10.0.0.5", 4321, "psflow-00ff", "boot")


@pytest.mark.parametrize("address", [HERE, Address("", None, None, "")])
def test_it_travels_as_json_and_through_dask(address):
    assert Address.from_dict(json.loads(json.dumps(address.to_dict()))) == address
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"tcp_prt": 1}, "unknown key 'tcp_prt'; did you mean 'tcp_port'"),
        ({"tcp_port": "80"}, "'tcp_port' should be int or null, got '80'"),
        ({"tcp_port": True}, "'tcp_port' should be int or null, got True"),
        ({"tcp_port": 65536}, "'tcp_port' should be from 1 to 65535, got 65536"),
        ({"host": None}, "'host' should be str, got None"),
    ],
)
def test_a_bad_address_is_named(change, fault):
    with pytest.raises(UsageError, match=fault):
        Address.from_dict({**HERE.to_dict(), **change})


def test_all_faults_come_at_once():
    with pytest.raises(UsageError) as caught:
        Address.from_dict({"host": 1})
    assert len(caught.value.faults) == 4


def test_only_this_boot_of_this_host_is_here():
    assert Address("", None, None, boot_id()).is_on_this_host == bool(boot_id())
    assert not HERE.is_on_this_host
    assert not Address("", None, None, "").is_on_this_host


def test_unix_names_are_never_the_same():
    assert new_unix_name() != new_unix_name()
