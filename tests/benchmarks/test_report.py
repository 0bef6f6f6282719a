import io
import json
import sys
import types

import pytest
from rich.console import Console

import benchmarks.__main__ as command
from benchmarks.rows import Row, Samples
from benchmarks.table import print_table
from psflow.ps_runtime.errors import RoleFailedError, UsageError

MACHINE = {"cores": 2, "cpu": "a processor", "python": "3.11.7", "numpy": "2.4.6", "peer": None}
ROWS = [
    Row.of("async/shm/1ps/2w", "steps/s", Samples([4000.0, 4200.0], [0.0004, 0.0005]), Samples([5000.0, 5200.0])),
    Row.of("sync/shm/1ps/2w", "gradients/s", Samples([300.0]), peer=Samples([60.0])),
]


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Put a function in place of the measurements of a benchmark; return what runs the command."""
    monkeypatch.setattr(command, "machine_facts", lambda: MACHINE)

    def bench(measure, *options):
        module = types.SimpleNamespace(CLAIM="It is fast.", measure=measure)
        monkeypatch.setitem(sys.modules, "benchmarks.mlp", module)
        return command.main(["mlp", "--output", str(tmp_path / "out"), *options])

    return bench


def test_the_last_line_is_the_result_and_text_goes_to_stderr(bench, capsys, tmp_path):
    assert bench(lambda settings: ROWS, "--json") == 0
    out, err = capsys.readouterr()
    facts = json.loads(out)
    assert set(facts) == {"bench", "machine", "rows"}
    assert facts["bench"] == "mlp"
    assert facts["machine"] == MACHINE
    assert facts["rows"] == [row.to_facts() for row in ROWS]
    assert "It is fast." in err
    assert json.loads((tmp_path / "out" / "mlp.json").read_text()) == facts


def test_a_picture_is_drawn(bench, tmp_path):
    assert bench(lambda settings: ROWS) == 0
    assert (tmp_path / "out" / "mlp.png").read_bytes().startswith(b"\x89PNG")


def test_options_reach_the_benchmark(bench):
    seen = []
    bench(
        lambda settings: seen.append(settings) or ROWS, "--pairs", "11", "--starts", "3", "--case", "a*", "--case", "b"
    )
    assert (seen[0].pairs, seen[0].starts, seen[0].patterns, seen[0].quick) == (11, 3, ("a*", "b"), False)


@pytest.mark.parametrize(
    ("error", "code"), [(UsageError(("no such transport",)), 2), (RoleFailedError("ps-0", "it is gone"), 1)]
)
def test_an_error_is_a_sentence_and_a_line_of_json(bench, capsys, error, code):
    def measure(settings):
        raise error

    assert bench(measure, "--json") == code
    out, err = capsys.readouterr()
    assert json.loads(out) == {"error": {"type": type(error).__name__, "message": str(error)}}
    assert f"psflow bench mlp: {error}" in err


def test_a_pattern_without_a_case_is_refused(bench, capsys):
    assert bench(lambda settings: [], "--case", "nonsense") == 2
    assert "has no case that matches nonsense" in capsys.readouterr().err


def test_the_table_shows_medians_quartiles_and_the_steady_figure():
    stream = io.StringIO()
    print_table(Console(file=stream, width=140), "It is fast.", MACHINE, ROWS)
    text = stream.getvalue()
    for part in (
        "It is fast.",
        "async/shm/1ps/2w",
        "4,100",
        "4,050 to 4,150",
        "0.804x",
        "5x",
        "psflow 0.45",
        "2 cores",
    ):
        assert part in text
    assert "make bench-peers" in text
