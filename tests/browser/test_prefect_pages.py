"""What the Prefect UI shows of a finished training, and how it asks for the next."""

from __future__ import annotations

import pytest

from psflow.flows.parameters.train import TrainParameters
from tests.browser.chromium import Browser
from tests.browser.place import STEPS, Place

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

ROLES = ("ps-0", "chief-0", "worker-0", "evaluator-0")


def test_the_form_of_a_training_asks_for_its_parameters_and_describes_them(place: Place, browser: Browser) -> None:
    browser.open(f"{place.prefect}/deployments/deployment/{place.deployment_id}/run")
    descriptions = [str(field.description) for field in TrainParameters.model_fields.values()]
    browser.wait_for_texts("Experiment", "DNNClassifier", "FunctionModel", "CsvInput", "FunctionInput", "Max Steps")
    browser.wait_for_texts(*descriptions)
    assert len(browser.shown("form textarea, form input, form button")) > len(descriptions)
    browser.picture("prefect-form")


@pytest.mark.parametrize(("version", "changed_to"), [("v1", None), ("v2", 40)])
def test_the_form_of_a_configuration_shows_what_that_says_and_asks_for_what_it_shows(
    version: str, changed_to: int | None, place: Place, browser: Browser
) -> None:
    pages = place.prefect if version == "v1" else f"{place.prefect}/v2"
    browser.open(f"{pages}/deployments/deployment/{place.configured_id}/run")
    browser.wait_for_texts("Hidden Units", "Chooses Adam.", "Beta1")  # keys of the alternatives that are chosen
    browser.picture(f"prefect-form-digits-{version}")
    expected = place.configured_parameters()
    if changed_to is not None:
        train = expected["parameters"]["train"]
        browser.fill("input[type=number]", str(train["max_steps"]), str(changed_to))
        train["max_steps"] = changed_to
    browser.click("button[type=submit]", "Submit")
    run = browser.wait_for("flow run of the form", place.scheduled_run)
    place.cancel(run)
    assert run["parameters"] == expected


def test_a_run_shows_a_task_run_for_each_role(place: Place, browser: Browser) -> None:
    browser.open(f"{place.prefect}/runs/flow-run/{place.flow_run_id}?tab=Task+Runs")
    browser.wait_for_texts(f"train digits to {STEPS[-1]}", "Completed", "4 Task runs")
    browser.click("[role=tab], .p-tab", "Task Runs")
    browser.wait_for_texts(*ROLES)
    assert browser.text.count("Completed") > len(ROLES)
    (graph,) = browser.wait_for("graph", lambda: browser.shown("canvas"))
    browser.wait_for("roles in the graph", lambda: browser.num_colours(graph) > 20)
    browser.picture("prefect-run")
