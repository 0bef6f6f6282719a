"""Tables, figures and files, from curves that nobody had to train for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.experiments.consistency import DOCS, main, read_curves, write_results
from benchmarks.experiments.curves import Curve
from benchmarks.experiments.tables import tables
from benchmarks.experiments.trials import EPOCHS, PROBLEMS, Trial, consistency_trials, epoch_trials
from benchmarks.markdown import with_tables


def curve(trial: Trial, error: float = 0.25, fault: str | None = None) -> Curve:
    gradients = list(range(0, trial.num_gradients + 1, trial.problem.gradients_between))
    return Curve(
        trial=trial.facts(),
        gradients=gradients,
        errors=[0.9 - (0.9 - error) * k / trial.num_gradients for k in gradients],
        losses=[None, *(1.0 for _ in gradients[1:])],
        mean_staleness=trial.num_replicas - 1.0,
        max_staleness=5,
        transport="unix",
        secs=1.0,
        fault=fault,
    )


@pytest.fixture
def digits() -> list[Curve]:
    return [curve(trial, error=trial.num_replicas / 100) for trial in consistency_trials(PROBLEMS["digits"])]


def test_the_error_of_each_seed_stands_in_the_table(digits: list[Curve]) -> None:
    rows = tables(digits)["digits"].splitlines()
    each = [f"{n}.0, {n}.0, {n}.0" for n in (1, 2, 3)]
    assert rows[2] == f"| async | {' | '.join(each * 2)} |"
    assert rows[-1] == f"| sync, rate x workers | {' | '.join(each)} | - | - | - |"
    assert [row.split("|")[1].strip() for row in rows[2:]] == [
        "async",
        "bounded_staleness",
        "sync",
        "hogwild",
        "sync, rate x workers",
    ]


def test_the_mean_staleness_and_the_largest_stand_in_a_table_of_their_own(digits: list[Curve]) -> None:
    digits[0] = replace(digits[0], mean_staleness=0.3, max_staleness=7)
    assert "| async | 0.10, 7 | 1.00, 5 | 2.00, 5 |" in tables(digits)["digits-staleness"].splitlines()


def test_a_trial_that_stopped_early_has_failed(digits: list[Curve]) -> None:
    first = replace(digits[0], gradients=[0], errors=[0.9], losses=[2.3], fault="boom")
    assert "| async | failed, 1.0, 1.0 |" in tables([first, *digits[1:]])["digits"]


def test_epochs_are_compared_after_equal_gradients_and_after_those_of_each_replica() -> None:
    curves = [curve(trial, error=0.9 - 0.1 * trial.num_replicas) for trial in epoch_trials()]
    assert tables(curves)["epochs"].splitlines()[2:] == [
        "| 1 | 0.200 | 0.200 |",
        "| 2 | 0.200 | 0.300 |",
        "| 3 | 0.200 | 0.400 |",
    ]


def test_results_are_written_and_those_of_other_problems_stay_to_the_byte(tmp_path: Path, digits: list[Curve]) -> None:
    epochs = [curve(trial) for trial in epoch_trials()]
    (tmp_path / "experiments.md").write_text("<!-- epochs -->\n<!-- /epochs -->\n")
    write_results(digits, tmp_path)
    figure = tmp_path / "experiments" / "digits.svg"
    drawn = figure.read_bytes()
    write_results(epochs, tmp_path)
    assert read_curves(tmp_path / "experiments") == [*digits, *epochs]
    names = sorted(path.name for path in (tmp_path / "experiments").iterdir())
    assert names == ["consistency.json", "digits.svg", "epochs.svg"]
    assert "| 1 | 0.750 | 0.750 |" in (tmp_path / "experiments.md").read_text()
    assert figure.read_bytes() == drawn


def test_the_page_shows_what_was_measured() -> None:
    page = (DOCS / "experiments.md").read_text()
    curves = read_curves(DOCS / "experiments")
    assert {c.trial["problem"] for c in curves} == {*PROBLEMS, EPOCHS.name}
    assert with_tables(page, tables(curves)) == page
    for name, table in tables(curves).items():
        assert table in page, name


def test_one_replica_learned_the_same_under_every_consistency() -> None:
    losses: dict[tuple[object, ...], set[tuple[float | None, ...]]] = {}
    for c in read_curves(DOCS / "experiments"):
        if c.trial["num_replicas"] == 1:
            key = (c.trial["problem"], c.trial["learning_rate"], c.trial["seed"])
            losses.setdefault(key, set()).add(tuple(c.losses))
    assert {key: len(found) for key, found in losses.items()} == dict.fromkeys(losses, 1)
    assert len(losses) == 9


def test_an_unknown_problem_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "digit"])
    assert "invalid choice: 'digit'" in capsys.readouterr().err
