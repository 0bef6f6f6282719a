"""Headless Chromium, as a person would use it: open a page, wait until it shows something, keep a picture of it."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

WAIT_SECS = 60.0
SETTLE_SECS = 0.5
"""For a form to take what was typed, or to put its former text back."""
PROGRAMS = ("chromium", "chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # pages that need anything else do not work
    # with a mouse: without one, charts keep their tools in view
    "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",
    "--window-size=1280,943",  # 143 of it are the frame
)

SHOWN = """
const isShown = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true})
return [...document.querySelectorAll(arguments[0])].filter((e) => isShown(e) && e.getBoundingClientRect().width > 0)
"""
"""In one question to the browser: forms have hundreds of elements."""

Found = TypeVar("Found")


def missing() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


class Browser:
    """A window of Chromium.

    Parameters
    ----------
    driver : WebDriver
    pictures : Path
        Where `picture` keeps them.
    """

    def __init__(self, driver: webdriver.Chrome, pictures: Path) -> None:
        self._driver = driver
        self._pictures = pictures

    def open(self, url: str) -> None:
        self._driver.get("about:blank")  # a change of what follows # alone would not load anything
        self._driver.get(url)

    @property
    def url(self) -> str:
        return self._driver.current_url

    @property
    def text(self) -> str:
        """What the page shows: hidden text is not in it."""
        return self._driver.find_element(By.TAG_NAME, "body").text

    def wait_for(self, what: str, condition: Callable[[], Found]) -> Found:
        """Wait until a condition gives something, and return that; fail with what the page shows instead."""
        waiting = WebDriverWait(self._driver, WAIT_SECS, ignored_exceptions=[StaleElementReferenceException])
        try:
            return waiting.until(lambda _: condition())
        except Exception:
            self.picture("failed")
            raise AssertionError(f"no {what} within {WAIT_SECS:g} s at {self.url}, which shows:\n{self.text}") from None

    def wait_for_texts(self, *texts: str) -> str:
        """Wait until all of them can be read on the page; return all that can be."""
        return self.wait_for(
            f"text {texts}", lambda: page if all(text in (page := self.text) for text in texts) else ""
        )

    def shown(self, selector: str) -> list[WebElement]:
        """Return the elements of a CSS selector that have a size and are in view or can be scrolled to."""
        found: list[WebElement] = self._driver.execute_script(SHOWN, selector)
        return found

    def click(self, selector: str, text: str = "") -> None:
        """Wait for the element of a CSS selector that shows `text`, and click on it."""

        def clickable() -> WebElement | None:
            return next((element for element in self.shown(selector) if text in element.text), None)

        element = self.wait_for(f"{selector} with {text!r}", clickable)
        assert element is not None
        element.click()

    def fill(self, selector: str, shown: str, text: str) -> None:
        """Wait for the only field of a CSS selector that shows `shown`, and type `text` in its place.

        A page that still renders its form may put the former text back: it is typed again until it stays.
        """

        def found(value: str) -> list[WebElement]:
            return [element for element in self.shown(selector) if element.get_attribute("value") == value]

        def stays() -> bool:
            for element in found(shown):
                element.send_keys(Keys.CONTROL + "a")
                element.send_keys(text, Keys.TAB)  # once it loses the focus the form is rendered again
            time.sleep(SETTLE_SECS)
            return bool(found(text)) and not found(shown)

        self.wait_for(f"{selector} with {shown!r}", lambda: len(found(shown)) == 1)
        self.wait_for(f"{selector} with {text!r}", stays)

    @contextmanager
    def without(self, kept: str) -> Iterator[None]:
        """Have the browser not know, for a while, what it has kept for the site that is open."""
        value = self._driver.execute_script("return localStorage.getItem(arguments[0])", kept)
        self._driver.execute_script("localStorage.removeItem(arguments[0])", kept)
        try:
            yield
        finally:
            self._driver.execute_script("localStorage.setItem(arguments[0], arguments[1])", kept, value)

    def num_colours(self, element: WebElement) -> int:
        """Return how many colours there are in what is drawn of an element."""
        with Image.open(io.BytesIO(element.screenshot_as_png)) as picture:
            return len(picture.convert("RGB").getcolors(picture.width * picture.height) or ())

    def picture(self, name: str) -> None:
        """Keep what the window shows now."""
        self._pictures.mkdir(parents=True, exist_ok=True)
        self._driver.save_screenshot(str(self._pictures / f"{name}.png"))


@contextmanager
def chromium(home: Path, pictures: Path) -> Iterator[Browser]:
    """Give a browser with a profile of its own below `home`; nothing is downloaded, none of it is left."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which(PROGRAMS[0]) or ""
    for flag in (*FLAGS, f"--user-data-dir={home / 'profile'}"):
        options.add_argument(flag)
    service = Service(shutil.which(PROGRAMS[1]), env=os.environ | {"HOME": str(home), "SE_OFFLINE": "true"})
    driver = webdriver.Chrome(options, service)
    try:
        yield Browser(driver, pictures)
    finally:
        driver.quit()
