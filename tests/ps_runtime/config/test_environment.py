import os
import pwd
import stat
import tempfile

import pytest
from requests.utils import should_bypass_proxies

from psflow.ps_runtime.config import environment
from psflow.ps_runtime.errors import ConfigError


def test_telemetry_is_off_in_the_words_that_each_library_understands(monkeypatch):
    for name in environment.TELEMETRY_OFF:
        monkeypatch.setenv(name, "1")

    environment.prepare_environment()

    assert {name: os.environ[name] for name in environment.TELEMETRY_OFF} == {
        "DO_NOT_TRACK": "true",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"no_proxy": ""}, "localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "a.example, localhost"}, "a.example,localhost,127.0.0.1,::1"),
        ({"no_proxy": "a.example", "NO_PROXY": "b.example"}, "a.example,localhost,127.0.0.1,::1"),
    ],
)
def test_no_proxy_is_asked_for_loopback(monkeypatch, name, before, after):
    without_proxies(monkeypatch)
    for variable, value in {name: "http://proxy.example:3128", **before}.items():
        monkeypatch.setenv(variable, value)
    child = environment.child_environment({})
    environment.prepare_environment()
    environment.prepare_environment()
    for variables in (child, os.environ):
        assert (variables["no_proxy"], variables["NO_PROXY"]) == (after, after)
    for host in ("localhost", "127.0.0.1", "::1"):
        assert should_bypass_proxies(f"http://{f'[{host}]' if ':' in host else host}:4200/api", None)
    assert not should_bypass_proxies("http://mlflow.example", None)


@pytest.mark.parametrize("before", [{}, {"no_proxy": "*", "http_proxy": "http://proxy.example:3128"}])
def test_without_a_proxy_nothing_is_exempt(monkeypatch, before):
    without_proxies(monkeypatch)
    for variable, value in before.items():
        monkeypatch.setenv(variable, value)
    environment.prepare_environment()
    assert {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")} == before


@pytest.fixture
def homeless(monkeypatch, tmp_path):
    """Be a user whom no password database has, without variables that say more; return the temporary home."""

    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = dict(os.environ)
    for name in ("HOME", "PREFECT_HOME", "PREFECT_PROFILES_PATH", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path / f"psflow-home-{os.geteuid()}"
    os.environ.clear()
    os.environ.update(before)


def test_without_a_home_prefect_gets_a_temporary_one_of_this_user_alone(homeless):
    for _ in range(2):
        environment.prepare_environment()
        assert environment.temporary_home() == environment.prefect_home() == homeless / ".prefect"
        assert os.environ["HOME"] == str(homeless)
        assert os.environ["LOGNAME"] == f"uid-{os.geteuid()}"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (homeless, homeless / ".prefect")} == {0o700}


def test_a_home_that_cannot_be_written_is_left_to_all_but_prefect_which_keeps_its_profile(homeless, monkeypatch):
    home = homeless.with_name("home")
    (home / ".prefect").mkdir(parents=True)
    (home / ".prefect" / "profiles.toml").write_text("")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(os, "access", lambda path, mode: not path.is_relative_to(home))  # root may write everywhere
    environment.prepare_environment()
    assert os.environ["HOME"] == str(home)
    assert environment.temporary_home() == homeless / ".prefect"
    assert os.environ["PREFECT_PROFILES_PATH"] == str(home / ".prefect" / "profiles.toml")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_home_that_may_not_be_entered_cannot_be_written(tmp_path):
    (tmp_path / "home").mkdir(mode=0o700)
    os.setresuid(54321, 54321, 0)
    try:
        can_be_written = environment._can_be_written(tmp_path / "home" / ".prefect")
    finally:
        os.setresuid(0, 0, 0)
    assert can_be_written is False


def test_a_chosen_home_of_prefect_stays_and_is_refused_if_it_cannot_be_written(homeless, monkeypatch, tmp_path):
    chosen = tmp_path / "chosen" / "prefect"
    monkeypatch.setenv("PREFECT_HOME", str(chosen))
    environment.prepare_environment()
    assert (os.environ["HOME"], environment.prefect_home()) == (str(homeless), chosen)
    assert environment.temporary_home() is None
    environment.check_prefect_home()
    chosen.parent.write_text("a file")
    with pytest.raises(ConfigError, match="is not writable; set PREFECT_HOME to a writable directory"):
        environment.check_prefect_home()


@pytest.mark.parametrize("kind", ["open", "link"])
def test_a_temporary_home_of_another_user_is_refused(homeless, kind):
    if kind == "open":
        homeless.mkdir()
        homeless.chmod(0o755)
    else:
        homeless.symlink_to(homeless.parent, target_is_directory=True)
    with pytest.raises(ConfigError, match=r"is not a private directory \(0700\) of user .*; remove it, or set PREFECT"):
        environment.prepare_environment()


def without_proxies(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name in ("no_proxy", "NO_PROXY"):  # so that monkeypatch removes them at the end
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("name", "accessor"),
    [("MLFLOW_TRACKING_URI", environment.mlflow_tracking_uri), ("PREFECT_API_URL", environment.prefect_api_url)],
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


def test_variables_are_set_for_a_block_alone(monkeypatch):
    monkeypatch.setenv("PSFLOW_TEST", "before")
    monkeypatch.delenv("PSFLOW_NEW", raising=False)

    with environment.environment({"PSFLOW_TEST": "in it", "PSFLOW_NEW": "1"}):
        assert (os.environ["PSFLOW_TEST"], os.environ["PSFLOW_NEW"]) == ("in it", "1")

    assert os.environ["PSFLOW_TEST"] == "before"
    assert "PSFLOW_NEW" not in os.environ


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, "glibc.malloc.check=1"), ("", "glibc.malloc.check=1"), ("a=2", "a=2:glibc.malloc.check=1")],
)
def test_a_tunable_comes_beside_those_that_are_set(monkeypatch, before, after):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if before is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", before)
    assert environment.glibc_tunable("glibc.malloc.check=1") == {"GLIBC_TUNABLES": after}


@pytest.mark.parametrize(
    ("variable", "file", "text", "may"),
    [
        (None, None, "", False),
        ("PREFECT_API_URL", None, "", True),
        ("prefect_profile", None, "", True),
        (None, "home/profiles.toml", 'active = "local"', True),
        (None, "prefect.toml", "[api]", True),
        (None, "pyproject.toml", "[tool.prefect.api]", True),
        (None, "pyproject.toml", "[tool.ruff]", False),
        (None, ".env", "prefect_api_url=http://host/api", True),
    ],
)
def test_prefect_is_asked_for_an_api_only_where_it_may_know_one(tmp_path, monkeypatch, variable, file, text, may):
    for name in [name for name in os.environ if name.upper().startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    if variable is not None:
        monkeypatch.setenv(variable, "x")
    if file is not None:
        (tmp_path / file).write_text(text)
    assert environment.may_name_prefect_api() == may
