"""What the MLflow UI shows of a finished training."""

from __future__ import annotations

import pytest

from tests.browser.chromium import Browser
from tests.browser.place import STEPS, Place

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

CLOSE_ASSISTANT = "[data-component-id='mlflow.assistant.chat_panel.close']"
CHOSEN_VIEW = "mlflow.workflowType_v1"
CURVE = "svg.main-svg .scatterlayer path.js-line"
POINT = "svg.main-svg .scatterlayer path.point"


@pytest.fixture(scope="module")
def mlflow(place: Place, browser: Browser) -> str:
    """The address of the pages, once they leave room for what we look at."""
    browser.open(f"{place.mlflow}/#/experiments/{place.experiment_id}/runs/{place.run['run_id']}")
    browser.wait_for_texts("Overview", "Artifacts")
    if browser.shown(CLOSE_ASSISTANT):
        browser.click(CLOSE_ASSISTANT)
    return place.mlflow


@pytest.fixture
def run_page(mlflow: str, place: Place) -> str:
    return f"{mlflow}/#/experiments/{place.experiment_id}/runs/{place.run['run_id']}"


def test_an_experiment_opens_with_its_runs(mlflow: str, browser: Browser, place: Place) -> None:
    browser.open(f"{mlflow}/#/experiments/{place.experiment_id}")
    shown = browser.wait_for_texts("Runs", "Models", "digits-")
    browser.picture("mlflow-experiment")
    assert "Token Usage" not in shown


def test_a_run_shows_its_metrics_against_steps(run_page: str, browser: Browser) -> None:
    browser.open(f"{run_page}/model-metrics")
    browser.wait_for_texts("eval", "accuracy", "average_loss", "role/chief-0", "role/ps-0", "Step")
    browser.wait_for("points", lambda: len(browser.shown(POINT)) >= 3 * len(STEPS))  # three charts of evaluations
    assert len(browser.shown(CURVE)) >= 3
    browser.picture("mlflow-metrics")


@pytest.mark.usefixtures("mlflow")
def test_the_link_of_psflow_shows_how_a_run_ended_and_its_models_in_the_view_of_runs(
    browser: Browser, place: Place
) -> None:
    checkpoints = [f"checkpoint-{step}" for step in STEPS]
    with browser.without(CHOSEN_VIEW):
        browser.open(place.run["pages"]["mlflow"])
        models = ("psflow-digits", f"best-{place.run['best']['step']}", *checkpoints)
        shown = browser.wait_for_texts("Finished", *models)
        browser.picture("mlflow-run")
    assert "Judges" not in shown  # which the view of GenAI has beside it


@pytest.mark.usefixtures("mlflow")
def test_the_run_of_a_program_shows_its_settings_metrics_and_checkpoints(browser: Browser, place: Place) -> None:
    page = f"{place.mlflow}/#/experiments/{place.program['experiment_id']}/runs/{place.program['run_id']}"
    with browser.without(CHOSEN_VIEW):
        browser.open(page)
        browser.wait_for_texts("Finished", "train.max_steps", "800", "checkpoint-800")
        browser.open(f"{page}/model-metrics")
        browser.wait_for_texts("eval", "average_loss", "Model metrics", "role/chief-0", "Step")
        browser.wait_for("curves", lambda: len(browser.shown(CURVE)) >= 2)
        browser.picture("mlflow-program")


def test_a_run_shows_what_was_drawn_of_it(run_page: str, browser: Browser) -> None:
    browser.open(f"{run_page}/artifacts/plots/learning_curves.png")
    browser.wait_for_texts("confusion_matrix.png", "precision_recall.png", "roc.png")
    (image,) = browser.wait_for("picture", lambda: browser.shown("main img"))
    browser.wait_for("curves", lambda: browser.num_colours(image) > 20)
    browser.picture("mlflow-plots")


def test_a_registered_model_shows_which_version_is_the_best(mlflow: str, browser: Browser, place: Place) -> None:
    browser.open(f"{mlflow}/#/models/psflow-digits")
    browser.wait_for_texts("Aliases", "@ best")
    rows = [row.text for row in browser.shown("[role=row]") if "@ best" in row.text]
    browser.picture("mlflow-model")
    version = place.run["best"]["model_uri"].rpartition("/")[2]
    assert [f"Version {version}" in row for row in rows] == [True]
