import json
import sys
from typing import get_args

import pytest

import psflow.flows.inspect.bench
from benchmarks.__main__ import NAMES
from psflow.flows import cli
from psflow.flows.inspect.bench import BenchName, bench

pytestmark = pytest.mark.process


@pytest.fixture
def program(monkeypatch, tmp_path):
    """Put a program in place of the benchmarks of a checkout; return what it was called with."""
    calls = tmp_path / "calls"
    monkeypatch.setattr(psflow.flows.inspect.bench, "CHECKOUT", tmp_path / "checkout")

    def program(text):
        package = tmp_path / "checkout" / "benchmarks"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()  # else a real package further down the path would win
        (package / "__main__.py").write_text(
            f"import json, sys\njson.dump(sys.argv[1:], open({str(calls)!r}, 'w'))\n{text}"
        )
        return lambda: json.loads(calls.read_text())

    return program


def test_the_command_knows_every_benchmark():
    assert get_args(BenchName) == NAMES


def test_a_benchmark_runs_in_a_process_of_its_own(program, capsys):
    calls = program('print(\'not JSON\'); print(\'{"bench": "mlp", "rows": [1, 2]}\')')
    assert cli.run(["bench", "mlp", "--pairs", "3", "--quick", "--case", "a*", "--rows", "5", "--output", "o"]) == 0
    counts = ["--pairs", "3", "--starts", "2", "--rows", "5"]
    assert calls() == ["mlp", *counts, "--output", "o", "--quick", "--case=a*", "--json"]
    assert capsys.readouterr().out.split() == ["bench", "mlp", "cases", "2", "output", "o"]


def test_with_json_the_answer_is_that_of_the_benchmark(program, capsys):
    program('print(\'{"bench": "mlp", "rows": [1, 2]}\')')
    assert cli.run(["bench", "mlp", "--json"], sys.stdout) == 0
    assert json.loads(capsys.readouterr().out) == {"bench": "mlp", "rows": [1, 2]}


def test_they_are_found_from_any_directory_and_work_in_it(program, monkeypatch, tmp_path, capsys):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "benchmarks").mkdir(parents=True)
    (elsewhere / "benchmarks" / "__main__.py").write_text("raise SystemExit('these are of somebody else')")
    monkeypatch.chdir(elsewhere)
    program("import os; print(json.dumps({'bench': 'mlp', 'rows': [], 'cwd': os.getcwd()}))")
    assert cli.run(["bench", "mlp", "--json"], sys.stdout) == 0
    assert json.loads(capsys.readouterr().out)["cwd"] == str(elsewhere)


def test_a_python_path_of_the_user_stays(program, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    program("print(json.dumps({'bench': 'mlp', 'rows': [], 'found': '/somewhere' in sys.path}))")
    cli.run(["bench", "mlp", "--json"], sys.stdout)
    assert json.loads(capsys.readouterr().out)["found"]


def test_without_a_checkout_there_are_no_benchmarks(program, capsys, tmp_path):
    assert cli.run(["bench", "mlp"]) == 2
    error = capsys.readouterr().err
    assert (
        f"the benchmarks are not part of the installed package, and {tmp_path / 'checkout'} is not a checkout" in error
    )
    assert "Traceback" not in error


@pytest.mark.parametrize(("code", "kind"), [(2, "UsageError"), (1, "RoleFailedError")])
def test_what_a_benchmark_fails_with_is_reported(program, capsys, code, kind):
    program(f'print(\'{{"error": {{"message": "no such thing"}}}}\'); sys.exit({code})')
    assert cli.run(["bench", "mlp", "--json"], sys.stdout) == code
    answer = json.loads(capsys.readouterr().out)
    assert answer["error"]["type"] == kind
    assert "no such thing" in answer["error"]["message"]


def test_a_benchmark_that_says_nothing_has_failed(program):
    program("sys.exit(3)")
    with pytest.raises(Exception, match="bench mlp failed: it ended with exit code 3"):
        bench("mlp", [])


def test_an_unknown_benchmark_is_refused(capsys):
    assert cli.run(["bench", "mpl"]) == 2
    assert "mlp" in capsys.readouterr().err
