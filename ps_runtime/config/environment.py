"""Environment variables: nothing else in psflow reads or sets them."""

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
    "DO_NOT_TRACK": "true",  # Prefect takes 1 as well, MLflow does not
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


PROXIES = ("http_proxy", "https_proxy", "all_proxy")
LOOPBACK = ("localhost", "127.0.0.1", "::1")

TF_CONFIG = "TF_CONFIG"
AUTH_STRING = "PSFLOW_AUTH_STRING"
PREFECT_HOME = "PREFECT_HOME"
PREFECT_PROFILES = "PREFECT_PROFILES_PATH"
HOW_TO_SET_HOME = "set PREFECT_HOME to a directory that can be written"
PREFECT_AUTH_STRING = "PREFECT_SERVER_API_AUTH_STRING"
"""A setting of Prefect's server."""


def prepare_environment() -> None:
    """Keep Prefect and MLflow from reporting usage, and clients from asking this machine through a proxy.

    Where there is no home directory that can be written to, as in many containers, Prefect gets a temporary one.

    Raises
    ------
    ConfigError
        If it needs one, and the path of that is taken.

    Notes
    -----
    For this process and those it starts. Libraries look when they are imported: call this before. Idempotent.
    """
    os.environ.update(_prepared())
    os.environ.update(_home_settings() | _name_settings())


def _prepared() -> dict[str, str]:
    """Return what to set: a proxy would see the passwords of servers of this machine, and could not reach them."""
    given = {name.lower(): value for name, value in sorted(os.environ.items()) if value}  # lower case wins
    direct = [name.strip() for name in given.get("no_proxy", "").split(",") if name.strip()]
    if "*" in direct or not any(name in given for name in PROXIES):
        return TELEMETRY_OFF
    exempt = ",".join(dict.fromkeys([*direct, *LOOPBACK]))
    return TELEMETRY_OFF | {"no_proxy": exempt, "NO_PROXY": exempt}


def mlflow_tracking_uri() -> str | None:
    """Return the MLflow store to use, or None if nobody chose one."""
    return os.environ.get("MLFLOW_TRACKING_URI") or None


def bench_peer_python() -> str | None:
    """Return the interpreter that has the peer of the benchmarks, or None if nobody named one."""
    return os.environ.get("PSFLOW_BENCH_PEER_PYTHON") or None


def tf_config() -> str | None:
    """Return what says which process of which cluster this one is, or None if nobody has said."""
    return os.environ.get(TF_CONFIG) or None


def tf_config_settings(text: str) -> dict[str, str]:
    """Return what to set for a process that `tf_config` is to tell of its place."""
    return {TF_CONFIG: text}


def prefect_api_url() -> str | None:
    """Return the Prefect API that a variable names, or None; a profile of Prefect's may name one, too."""
    return os.environ.get("PREFECT_API_URL") or None


def prefect_home() -> Path:
    """Return the directory in which Prefect keeps its database, and psflow what it must know of local servers."""
    return Path(os.environ.get(PREFECT_HOME) or "~/.prefect").expanduser().absolute()


def temporary_home() -> Path | None:
    """Return the temporary home directory of Prefect that `prepare_environment` has chosen, or None."""
    home = prefect_home()
    return home if home.parent == _temporary_path() else None


def check_prefect_home() -> None:
    """Refuse a home directory of Prefect that cannot be written to.

    Raises
    ------
    ConfigError
        If it is so.
    """
    home = prefect_home()
    if not _can_be_written(home):
        raise ConfigError((f"Prefect's home {home} cannot be written to; {HOW_TO_SET_HOME}",))


def _home_settings() -> dict[str, str]:
    """Return what to set for Prefect to have a home; without a variable HOME it cannot even be imported."""
    try:
        home = Path("~/.prefect").expanduser()
    except RuntimeError:  # HOME is not set, and the user is in no password database
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
    """Return what to set for a user whom no password database has: MLflow warns where it finds no name."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        return {"LOGNAME": f"uid-{os.geteuid()}"}
    return {}


def _can_be_written(path: Path) -> bool:
    """Return whether files may be made in a directory, or whether it may be made itself."""
    # os.path, as Path.exists raises for what lies in a directory that may not be entered
    place = next(place for place in (path, *path.parents) if os.path.exists(place))
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def _temporary_path() -> Path:
    return Path(tempfile.gettempdir()).absolute() / f"psflow-home-{os.geteuid()}"


def _make_temporary() -> Path:
    """Make a home directory that nobody else can look into; its name is known, so that what is found is examined."""
    path = _temporary_path()
    for directory in (path, path / ".prefect"):
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            what = f"{directory} is not a directory of user {os.geteuid()} alone (0700), as Prefect needs for a home"
            raise ConfigError((f"{what}; remove it, or {HOW_TO_SET_HOME}",))
    return path


def scratch_settings(directory: str) -> dict[str, str]:
    """Return what to set for a process that is to keep temporary files in `directory`, and remove that as it ends."""
    return {"TMPDIR": directory, "PSFLOW_SCRATCH": directory}


def inherited_scratch() -> str | None:
    """Return the directory that `scratch_settings` told this process of."""
    return os.environ.get("PSFLOW_SCRATCH") or None


def glibc_tunable(setting: str) -> dict[str, str]:
    """Return the variable that gives a process one more tunable of the C library, beside those that this one has."""
    return {"GLIBC_TUNABLES": ":".join(filter(None, (os.environ.get("GLIBC_TUNABLES"), setting)))}


def server_auth(auth_string: str) -> dict[str, str]:
    """Return what to set for a server process of ours that is to ask for a user and a password."""
    return {AUTH_STRING: auth_string, PREFECT_AUTH_STRING: auth_string}


def inherited_auth_string() -> str | None:
    """Return what `server_auth` told this process; processes that it starts are not told."""
    return os.environ.pop(AUTH_STRING, None)


@contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a block, for what reads them in it: processes that it starts, libraries that it loads.

    Notes
    -----
    They are those of the whole process: other threads see them, too.
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
    """Return the environment for a process to start: that of this one as `prepare_environment` does, and `settings`."""
    return os.environ | _prepared() | dict(settings)
