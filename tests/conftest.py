"""For all tests: nothing reports usage, nothing outside is read or changed, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import platform
import shutil
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from psflow.ps_runtime.cluster.fork_server import shared_scratch
from psflow.ps_runtime.config.environment import environment, prepare_environment
from psflow.tasks.prefect_server.local_server import LocalPrefectServer
from tests.leak_guard import no_leaks
from tests.new_databases import copy_prefect_database, share_among_workers
from tests.started_processes import all_ended, count_starts, mark_processes, num_started

# where a run decides over a change it takes the same examples each time; elsewhere new ones are tried
settings.register_profile("psflow", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("psflow")
settings.register_profile("fast", settings(), max_examples=settings().max_examples // 5)

SECONDS = Path(__file__).with_name("seconds.json")
"""How long the modules took that take long, written by ``make seconds``."""
STARTED = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Set the scene before any test module imports a library that looks at its environment."""
    gc.disable()  # until all is imported: it would look at all of that many times over
    prepare_environment()
    for name in ("TF_CONFIG", "PREFECT_API_URL", "PREFECT_API_KEY", "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        os.environ.pop(name, None)
    platform.processor()  # asks a program, once: the first test that imports MLflow would
    shared_scratch()  # it is kept until the process ends: not in the directory of this run
    # where pytest's own directories stay, and those of the workers of pytest-xdist, which inherit it
    root = os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    home = Path(tempfile.mkdtemp(prefix="pytest-home-", dir=root))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    (home / "tmp").mkdir()
    os.environ["PREFECT_HOME"] = str(home / "prefect")
    # of this process alone, so that all of it can be judged
    os.environ["TMPDIR"] = tempfile.tempdir = str(home / "tmp")
    if not hasattr(config, "workerinput"):
        share_among_workers(home / "new")
    count_starts()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that start processes; workers of pytest-xdist begin with the modules that take longest."""
    mark_processes(items)
    if hasattr(config, "workerinput"):
        secs = json.loads(SECONDS.read_text())
        items.sort(key=lambda item: -secs.get(item.nodeid.partition(".py::")[0].replace("/", "."), 0.0))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Note how many processes there were before a test and its fixtures."""
    item.stash[STARTED] = num_started()
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Fail a test that has started a process, and does not say so."""
    yield
    if num_started() > item.stash[STARTED] and item.get_closest_marker("process") is None:
        pytest.fail("this test starts a process: mark it with pytest.mark.process, which keeps it out of make fast")


def pytest_collection_finish() -> None:
    """Prepare loggers and the garbage collector once all modules are imported."""
    _have_dask_propagate()
    _spare_collector()


def _have_dask_propagate() -> None:
    """Have the logs of Dask reach the root logger, whichever module has imported Dask first.

    Dask stops that where the root logger has no handler yet. Then pytest adds its own handlers to Dask's loggers, and a
    cluster silences these handlers for all logs of a test.
    """
    for name in ("distributed", "distributed.client", "distributed.gc", "bokeh", "tornado", "tornado.application"):
        logging.getLogger(name).propagate = True


def _spare_collector() -> None:
    """Have the garbage collector leave the tests and their libraries alone, and look seldom: it took 7 % of a run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _loaded_under_one_name() -> Iterator[None]:
    """Fail at the end if a file of the checkout was imported under two names."""
    yield
    root = Path(__file__).resolve().parents[1]
    names: dict[Path, list[str]] = {}
    for name, module in list(sys.modules.items()):
        file = None if name.startswith("code_model_") else getattr(module, "__file__", None)  # MLflow runs those
        if isinstance(file, str) and (path := Path(file).resolve()).is_relative_to(root):
            names.setdefault(path, []).append(name)
    rooms = [root / room for room in ("flows", "tasks", "ps_runtime", "psflow", "benchmarks")]
    own = {path: known for path, known in names.items() if any(path.is_relative_to(room) for room in rooms)}
    twice = {str(path): sorted(known) for path, known in own.items() if len(known) > 1}
    assert twice == {}


@pytest.fixture(autouse=True)
def _leak_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    cluster = request.node.get_closest_marker("cluster")
    with ExitStack() as stack:
        processes = list(request.node.iter_markers("process"))
        if processes and not any(mark.kwargs.get("shared", False) for mark in processes):
            stack.enter_context(all_ended())
        if cluster is not None:
            stack.enter_context(no_leaks(shares_cluster=cluster.kwargs.get("shared", False)))
        yield


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Give a loop that runs in a thread of its own, as that of a Dask client."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    asyncio.run_coroutine_threadsafe(_end_others(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _end_others() -> None:
    """Leave no task pending, of which asyncio would tell in the log of another test."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 60)


@pytest.fixture(scope="session")
def prefect_database() -> None:
    """Have a database where the Prefect servers of this process look for it."""
    copy_prefect_database(Path(os.environ["PREFECT_HOME"]))


@pytest.fixture(scope="session")
def prefect_url(prefect_database: None) -> Iterator[str]:
    """Give the address of a Prefect server that all tests of this process share; nothing else names it to them.

    What it asks for is in the environment, as somebody has it there who has a server of his own.
    """
    from prefect.settings import PREFECT_API_AUTH_STRING, temporary_settings

    server = LocalPrefectServer()
    with (
        environment({PREFECT_API_AUTH_STRING.name: server.auth_string}),
        temporary_settings({PREFECT_API_AUTH_STRING: server.auth_string}),
    ):
        yield server.wait()
    server.close()


@pytest.fixture(scope="module")
def prefect_named(prefect_url: str) -> Iterator[None]:
    """Have flows of this process use the Prefect server that its tests share."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with environment({PREFECT_API_URL.name: prefect_url}), temporary_settings({PREFECT_API_URL: prefect_url}):
        yield
