"""One place and one browser for all pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Browser, chromium, missing
from tests.browser.place import Place, set_up
from tests.flows.conftest import ROOT

PICTURES = ROOT / "runs" / "browser"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if programs := missing():
        pytest.skip(f"{' and '.join(programs)} not found; on Debian: apt install chromium chromium-driver")
    with chromium(tmp_path_factory.mktemp("chromium"), PICTURES) as window:
        yield window


@pytest.fixture(scope="session")
def place(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with set_up(tmp_path_factory.mktemp("digits", numbered=False)) as made:
        for login in made.logins:
            browser.open(login)
            browser.wait_for("pages", lambda login=login: "psflow-login" not in browser.url)  # type: ignore[misc]
        yield made
