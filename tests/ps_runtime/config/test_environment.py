import os

import pytest

from ps_runtime.config import environment
from ps_runtime.config.tf_config import TaskConfig
from ps_runtime.errors import ConfigError
from ps_runtime.specs.roles import Role


def test_tf_config_is_read_from_the_environment(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert environment.tf_config().task == TaskConfig(Role.CHIEF, 0)

    monkeypatch.setenv(
        "TF_CONFIG", '{"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}'
    )
    assert environment.tf_config().task == TaskConfig(Role.PS, 0)

    monkeypatch.setenv("TF_CONFIG", "nonsense")
    with pytest.raises(ConfigError, match=r"^TF_CONFIG: expected JSON"):
        environment.tf_config()


def test_telemetry_is_off_in_the_words_that_each_library_understands(monkeypatch):
    for name in environment.TELEMETRY_OFF:
        monkeypatch.setenv(name, "1")

    environment.telemetry_off()

    assert {name: os.environ[name] for name in environment.TELEMETRY_OFF} == {
        "DO_NOT_TRACK": "true",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


@pytest.mark.parametrize(
    ("name", "accessor"),
    [("PREFECT_API_URL", environment.prefect_api_url), ("MLFLOW_TRACKING_URI", environment.mlflow_tracking_uri)],
)
def test_an_address_is_what_was_set_or_none(monkeypatch, name, accessor):
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert accessor() == "http://127.0.0.1:1"
    monkeypatch.setenv(name, "")
    assert accessor() is None
    monkeypatch.delenv(name)
    assert accessor() is None


def test_a_child_gets_this_environment_without_telemetry_and_with_its_settings(monkeypatch):
    monkeypatch.setenv("PSFLOW_TEST", "here")
    monkeypatch.delenv("DO_NOT_TRACK", raising=False)

    child = environment.child_environment({"EXTRA": "1"})

    assert (child["PSFLOW_TEST"], child["EXTRA"], child["DO_NOT_TRACK"]) == ("here", "1", "true")
    assert "DO_NOT_TRACK" not in os.environ
