import json
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES
from benchmarks.markdown import with_tables
from benchmarks.rows import Row, Samples
from benchmarks.summary import main, tables_of

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
MACHINE = {
    "cores": 2,
    "cpu": "a processor",
    "python": "3.11.7",
    "numpy": "2.4.6",
    "distributed": "2026.8.0",
    "peer": None,
    "load": 0.1,
}
ROW = Row.of("async/shm/1ps/2w", "steps/s", Samples([4000.0, 4200.0], [0.0004, 0.0005]), Samples([5000.0, 5200.0]))
POINT = {"network": "small", "workers": 1000, "ps": 100, "steps_per_sec": 2340.0, "bottleneck": "log of decisions"}


@pytest.fixture
def results(tmp_path):
    directory = tmp_path / "results"
    directory.mkdir()
    facts = {"bench": "mlp", "machine": MACHINE, "rows": [ROW.to_facts()]}
    (directory / "mlp.json").write_text(json.dumps(facts))
    (directory / "scaling_cluster.json").write_text(json.dumps({"points": [POINT]}))
    (directory / "scaling_cluster.png").write_bytes(b"a picture")
    (directory / "notes.json").write_text("not a result")
    return directory


def test_results_stand_on_the_page_and_beside_it(results, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- mlp -->\nold\n<!-- /mlp -->\n<!-- scaling_cluster -->\n<!-- /scaling_cluster -->\nb\n")
    assert main([str(results), str(page)]) == 0
    assert capsys.readouterr().out == f"{page}: mlp, scaling_cluster\n"
    text = page.read_text()
    assert "2 cores, a processor, Python 3.11.7, numpy 2.4.6, distributed 2026.8.0, no peer; load" in text
    assert (
        "| **4,100** 4,050 to 4,150 | **5,100** 5,050 to 5,150 | - | **0.804** 0.802 to 0.806 | - | 0.45, -, - |"
        in text
    )
    assert "](page/scaling_cluster.png)" in text
    assert "| small | 1,000 | 100 | 2,340 | log of decisions |" in text
    assert "old" not in text
    kept = sorted(path.name for path in (tmp_path / "page").iterdir())
    assert kept == ["mlp.json", "scaling_cluster.json", "scaling_cluster.png"]


def test_what_was_not_run_again_stays(results, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- mlp -->\n<!-- /mlp -->\n")
    main([str(results), str(page)])
    before = page.read_text()
    (results / "mlp.json").unlink()
    assert main([str(results), str(page)]) == 0
    assert page.read_text() == before


def test_without_results_nothing_is_written(tmp_path, capsys):
    assert main([str(tmp_path), str(tmp_path / "page.md")]) == 2
    assert "has no result of a benchmark; psflow bench NAME writes them there" in capsys.readouterr().err


def test_a_table_takes_the_place_of_the_one_before() -> None:
    page = "a\n<!-- x -->\nold\n<!-- /x -->\nb <!-- y -->\n"
    once = with_tables(page, {"x": "| new |", "y": "| no end |", "z": "| not here |"})
    assert once == "a\n<!-- x -->\n\n| new |\n\n<!-- /x -->\nb <!-- y -->\n"
    assert with_tables(once, {"x": "| new |"}) == once


def test_the_page_shows_what_was_measured():
    page = PAGE.read_text()
    assert with_tables(page, tables_of(PAGE.with_suffix(""))) == page


@pytest.mark.parametrize("name", [*NAMES, "scaling_cluster"])
def test_the_page_has_a_place_for_every_result(name):
    assert f"<!-- {name} -->\n" in PAGE.read_text()
    assert f"<!-- /{name} -->\n" in PAGE.read_text()
