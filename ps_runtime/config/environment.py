"""Reads and sets environment variables; no other module of psflow does."""

from __future__ import annotations

import getpass
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from psflow.ps_runtime.errors import ConfigError

TELEMETRY_OFF = {
    "DO_NOT_TRACK": "true",  # Prefect accepts 1 as well, MLflow does not
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


PROXIES = ("http_proxy", "https_proxy", "all_proxy")
LOOPBACK = ("localhost", "127.0.0.1", "::1")

TF_CONFIG = "TF_CONFIG"
AUTH_STRING = "PSFLOW_AUTH_STRING"
PREFECT_HOME = "PREFECT_HOME"
PREFECT_PROFILES = "PREFECT_PROFILES_PATH"
HOW_TO_SET_HOME = "set PREFECT_HOME to a writable directory"
PREFECT_AUTH_STRING = "PREFECT_SERVER_API_AUTH_STRING"
"""A setting of Prefect's server."""


def prepare_environment() -> None:
    """Keep Prefect and MLflow from reporting usage, and clients from reaching this machine through a proxy.

    Without a writable home directory, as in many containers, Prefect gets a temporary one.

    Raises ConfigError if a temporary one is needed, and its path is taken.

    Notes
    -----
    Applies to this process and its children. Call this before the libraries are imported, which read it. Idempotent.
    """
    os.environ.update(_prepared())
    os.environ.update(_home_settings() | _name_settings())


def _prepared() -> dict[str, str]:
    """Return the settings: a proxy would see the passwords of servers of this machine, and could not reach them."""
    given = {name.lower(): value for name, value in sorted(os.environ.items()) if value}  # lower case wins
    direct = [name.strip() for name in given.get("no_proxy", "").split(",") if name.strip()]
    if "*" in direct or not any(name in given for name in PROXIES):
        return TELEMETRY_OFF
    exempt = ",".join(dict.fromkeys([*direct, *LOOPBACK]))
    return TELEMETRY_OFF | {"no_proxy": exempt, "NO_PROXY": exempt}


def mlflow_tracking_uri() -> str | None:
    """Return the configured MLflow store, or None."""
    return os.environ.get("MLFLOW_TRACKING_URI") or None


def bench_peer_python() -> str | None:
    """Return the configured interpreter that has the benchmark peer, or None."""
    return os.environ.get("PSFLOW_BENCH_PEER_PYTHON") or None


def tf_config() -> str | None:
    """Return the variable TF_CONFIG, the cluster and role of this process, or None."""
    return os.environ.get(TF_CONFIG) or None


def tf_config_settings(text: str) -> dict[str, str]:
    """Return the settings that give a process its TF_CONFIG."""
    return {TF_CONFIG: text}


def prefect_api_url() -> str | None:
    """Return the Prefect API of the environment, or None; a Prefect profile may name one, too."""
    return os.environ.get("PREFECT_API_URL") or None


def may_name_prefect_api() -> bool:
    """Return whether a variable, a profile or a file of the working directory may name an API for Prefect.

    Only Prefect knows, and its import takes a second; False is certain.
    """
    others = {name.upper() for name in os.environ if name.upper().startswith("PREFECT_")}
    files = {prefect_home() / "profiles.toml": b"", Path("prefect.toml"): b""}
    files |= {Path(".env"): b"prefect", Path("pyproject.toml"): b"prefect"}
    return bool(others - {PREFECT_HOME, *TELEMETRY_OFF}) or any(_may_hold(*file) for file in files.items())


def _may_hold(file: Path, word: bytes) -> bool:
    return file.exists() and (not os.access(file, os.R_OK) or word in file.read_bytes().lower())


def prefect_home() -> Path:
    """Return the home directory of Prefect, with its database and psflow's facts about local servers."""
    return Path(os.environ.get(PREFECT_HOME) or "~/.prefect").expanduser().absolute()


def temporary_home() -> Path | None:
    """Return the temporary home directory of Prefect chosen by `prepare_environment`, or None."""
    home = prefect_home()
    return home if home.parent == _temporary_path() else None


def check_prefect_home() -> None:
    """Refuse a home directory of Prefect that is not writable.

    Raises ConfigError if it is not writable.
    """
    home = prefect_home()
    if not _can_be_written(home):
        raise ConfigError((f"Prefect's home {home} is not writable; {HOW_TO_SET_HOME}",))


def _home_settings() -> dict[str, str]:
    """Return the settings that give Prefect a home; without HOME it cannot even be imported."""
    try:
        home = Path("~/.prefect").expanduser()
    except RuntimeError:  # HOME is not set, and no password database has the user
        home = None
    is_chosen = bool(os.environ.get(PREFECT_HOME))
    if home is not None and (is_chosen or _can_be_written(home)):
        return {}
    temporary = _make_temporary()
    settings = {} if home is not None else {"HOME": str(temporary)}
    if is_chosen:
        return settings
    if home is not None and os.path.isfile(profiles := home / "profiles.toml"):
        settings[PREFECT_PROFILES] = os.environ.get(PREFECT_PROFILES) or str(profiles)
    return settings | {PREFECT_HOME: str(temporary / ".prefect")}


def _name_settings() -> dict[str, str]:
    """Return the settings for a user without an entry in a password database: MLflow warns about a missing name."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        return {"LOGNAME": f"uid-{os.geteuid()}"}
    return {}


def _can_be_written(path: Path) -> bool:
    """Return whether a directory is writable, or can be created."""
    # os.path, because Path.exists raises below an inaccessible directory
    place = next(place for place in (path, *path.parents) if os.path.exists(place))
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def _temporary_path() -> Path:
    return Path(tempfile.gettempdir()).absolute() / f"psflow-home-{os.geteuid()}"


def _make_temporary() -> Path:
    """Create a private home directory; its name is predictable, so an existing one is checked."""
    path = _temporary_path()
    for directory in (path, path / ".prefect"):
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            what = (
                f"{directory} is not a private directory (0700) of user {os.geteuid()}, which Prefect needs as its home"
            )
            raise ConfigError((f"{what}; remove it, or {HOW_TO_SET_HOME}",))
    return path


def scratch_settings(directory: str) -> dict[str, str]:
    """Return the settings of a process that keeps temporary files in `directory`, and removes it at its end."""
    return {"TMPDIR": directory, "PSFLOW_SCRATCH": directory}


def inherited_scratch() -> str | None:
    """Return the directory that `scratch_settings` gave to this process."""
    return os.environ.get("PSFLOW_SCRATCH") or None


def glibc_tunable(setting: str) -> dict[str, str]:
    """Return the variable that adds a tunable of the C library to those of this process."""
    return {"GLIBC_TUNABLES": ":".join(filter(None, (os.environ.get("GLIBC_TUNABLES"), setting)))}


def server_auth(auth_string: str) -> dict[str, str]:
    """Return the settings of a server process of ours that requires a user and a password."""
    return {AUTH_STRING: auth_string, PREFECT_AUTH_STRING: auth_string}


def inherited_auth_string() -> str | None:
    """Return the value that `server_auth` gave to this process; its children do not inherit it."""
    return os.environ.pop(AUTH_STRING, None)


@contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a block, for the processes that it starts and the libraries that it loads.

    Notes
    -----
    They apply to the whole process: other threads see them, too.
    """
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def child_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process: this one, prepared as by `prepare_environment`, and `settings`."""
    return os.environ | _prepared() | dict(settings)
