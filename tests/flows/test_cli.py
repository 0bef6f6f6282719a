import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest
from typer.testing import CliRunner

from psflow.flows import cli
from psflow.flows.output import recorded
from psflow.ps_runtime.errors import RoleFailedError, UsageError

ROOT = Path(__file__).parents[2]
DIGITS = str(ROOT / "conf" / "digits.yaml")
SUMMARY = {
    "run_id": "a1b2",
    "model_dir": "runs/digits",
    "final_step": 3,
    "max_steps": 5,
    "stop_reason": "no more data",
    "best": {
        "step": 2,
        "metrics": {"loss": 0.25, "global_step": 2.0},
        "export_path": "e/1",
        "model_uri": "models:/d/1",
    },
    "non_finite": {"train": {"rows": 2, "dropped": True}},
    "invalid": {"train": {"rows": 1, "policy": "drop"}, "eval": {"rows": 3, "policy": "missing"}},
    "mlflow": {"complete": True, "lost": 0},
    "pages": {"mlflow": "http://127.0.0.1:5000/#/runs/a1b2?view=a", "prefect": None},
    "wall_secs": {"total": 12.34, "to_first_step": 4.56},
}
PREDICTED = {
    "rows": 3,
    "rejects": 0,
    "non_finite": {"rows": 0, "columns": {}},
    "invalid": {"rows": 0, "columns": {}},
    "parts": 1,
    "output": "out",
    "folders": ["out"],
    "model_uri": "models:/x@best",
    "model_version": "7",
    "global_step": 2,
}
PREDICT = ["predict", "--model", "models:/x@best", "--input", "a.csv", "--output", "out"]


@pytest.fixture
def flow(monkeypatch):
    """Put a function in place of the flows, so that only the command line is under test."""
    monkeypatch.setattr("psflow.flows.head_start.head_start", lambda *_, **__: contextlib.nullcontext())

    def flow(function):
        for name in ("train", "predict"):
            module = types.ModuleType(f"psflow.flows.{name}")
            setattr(module, name, lambda parameters, *_: function(parameters))
            monkeypatch.setitem(sys.modules, f"psflow.flows.{name}", module)

    return flow


def raising(error):
    def function(parameters):
        raise error

    return function


def test_train_hands_files_and_overrides_to_the_flow(flow, capsys):
    seen = []
    flow(lambda parameters: seen.append(parameters) or SUMMARY)

    assert cli.run(["train", DIGITS, "train.max_steps=3"]) == 0

    assert seen[0].train.max_steps == 3
    assert capsys.readouterr().out.splitlines() == [
        "trained      to step 3 of 5, 12.3 s, the first step after 4.6 s",
        "stopped      no more data",
        "best         step 2: loss 0.25",
        "model        models:/d/1",
        "not finite   train: 2 rows left out",
        "invalid      train: 1 rows left out; eval: 3 rows with missing values",
        "model_dir    runs/digits",
        "MLflow run   http://127.0.0.1:5000/#/runs/a1b2?view=a",
    ]


@pytest.mark.parametrize(("lost", "words"), [(3, "3 events"), (0, "how the run ended")])
def test_what_mlflow_lacks_is_reported(flow, capsys, lost, words):
    flow(lambda parameters: SUMMARY | {"mlflow": {"complete": False, "lost": lost}})
    assert cli.run(["train", DIGITS]) == 3
    lacks = (
        f"MLflow lacks {words}; run the same command again to complete the MLflow run from model_dir "
        "(checkpoints, evaluations, the best export, metrics, tags and plots)"
    )
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == lacks
    assert shown.err.startswith("psflow: done, but the MLflow run is incomplete; run the same command again")


def test_a_pipeline_is_as_incomplete_as_its_stages():
    whole, lacking = ({"mlflow": {"complete": complete}} for complete in (True, False))
    assert recorded(whole, {"rows": 3}) == 0
    assert recorded(whole, lacking) == 3


def test_predict_shows_what_it_did(flow, capsys):
    flow(lambda parameters: PREDICTED)
    assert cli.run(PREDICT) == 0
    assert "predicted    3 rows in 1 part" in capsys.readouterr().out.splitlines()


def test_a_dry_run_of_predict_runs_no_flow(flow, monkeypatch, capsys):
    flow(lambda parameters: pytest.fail("it predicts"))
    answer = {"predictions": []}
    monkeypatch.setattr(sys.modules["psflow.flows.predict"], "dry_run", lambda parameters: answer, raising=False)
    assert cli.run([*PREDICT, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == ["no new files since the last run"]


def test_down_shows_a_line_for_each_fact(monkeypatch, capsys):
    monkeypatch.setattr("psflow.flows.local_servers.down", lambda timeout: {"rows": 3, "best": {"step": 2}})
    assert cli.run(["down"]) == 0
    assert capsys.readouterr().out.split() == ["rows", "3", "best.step", "2"]


def test_train_looks_for_modules_beside_the_first_file(flow, tmp_path, monkeypatch):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.yaml").write_text(Path(DIGITS).read_text())
    monkeypatch.chdir(tmp_path)
    seen = []
    flow(lambda parameters: seen.append(parameters.code_dir) or SUMMARY)

    assert cli.run(["train", "first/t.yaml", "second/t.yaml"]) == 0
    assert cli.run(["train", "first/t.yaml", "code_dir=src"]) == 0

    assert seen == [str(tmp_path / "first"), "src"]


def test_train_hands_its_flags_to_the_flow(flow):
    seen = []
    flow(lambda parameters: seen.append(parameters.resume) or SUMMARY)

    assert cli.run(["train", DIGITS, "resume.fork=a", "--fork", "b", "--allow-changes"]) == 0

    assert (seen[0].fork, seen[0].allow_changes) == ("b", True)


def test_predict_hands_its_options_to_the_flow(flow):
    seen = []
    flow(lambda parameters: seen.append(parameters) or PREDICTED)

    assert cli.run([*PREDICT, "cluster.workers=4"]) == 0

    assert (seen[0].model, seen[0].input, seen[0].output) == ("models:/x@best", "a.csv", "out")
    assert seen[0].cluster.workers == 4


def test_the_answer_is_one_line_of_json_in_which_nan_is_null(flow, capsys):
    flow(lambda parameters: PREDICTED | {"metrics": [1.5, float("nan")], "name": "é\n"})
    answer = io.StringIO()

    assert cli.run([*PREDICT, "--json"], answer) == 0

    assert answer.getvalue().count("\n") == 1
    assert json.loads(answer.getvalue()) == PREDICTED | {"metrics": [1.5, None], "name": "é\n"}
    assert capsys.readouterr().out == ""


RESUMES = "run the same command again to resume"


@pytest.mark.parametrize(
    ("error", "exit_code", "kind", "message"),
    [
        (UsageError(("no such column",)), 2, "UsageError", "no such column"),
        (RoleFailedError("ps-0", "boom"), 1, "RoleFailedError", "ps-0 failed: boom"),
        (KeyboardInterrupt(), 130, "KeyboardInterrupt", f"interrupted (Ctrl-C, SIGINT); {RESUMES}"),
        (SystemExit(143), 143, "SystemExit", f"terminated (SIGTERM); {RESUMES}"),
        (ZeroDivisionError("oops"), 1, "ZeroDivisionError", "oops"),
    ],
)
def test_a_failure_has_an_exit_code_a_sentence_and_json(flow, capsys, error, exit_code, kind, message):
    flow(raising(error))
    answer = io.StringIO()

    assert cli.run(["train", DIGITS, "--json"], answer) == exit_code

    assert json.loads(answer.getvalue()) == {"error": {"type": kind, "message": message}}
    shown = capsys.readouterr().err
    assert f"psflow: {message}" in shown
    assert ("Traceback" in shown) == (kind == "ZeroDivisionError")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing command"),
        (["trai"], "No such command 'trai'. Did you mean 'train'?"),
        (["train"], "Missing argument"),
        (["train", "seed=3"], "expected at least one configuration file, such as conf/digits.yaml"),
        (["train", "none.yaml"], "none.yaml: cannot be read: No such file or directory"),
        (["train", DIGITS, "sed=3"], "command line: sed: unknown key; did you mean 'seed'?"),
        (["train", DIGITS, "--jsn"], "No such option: --jsn"),
        (["predict", "--model", "m"], "Missing option '--input'"),
        ([*PREDICT, "cluster.worker=3"], "cluster.worker: unknown key; did you mean 'workers'?"),
        ([*PREDICT[:2], "", *PREDICT[3:]], "--model: expected a string that is not empty, got ''"),
    ],
)
def test_a_usage_error_starts_nothing_and_exits_with_2(flow, capsys, arguments, message):
    started = []
    flow(started.append)
    answer = io.StringIO()

    assert cli.run(arguments, answer) == 2

    assert started == []
    assert message in capsys.readouterr().err
    assert message in json.loads(answer.getvalue())["error"]["message"]


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["predict", "--help"]])
def test_help_explains_the_exit_codes(arguments):
    result = CliRunner().invoke(cli.app, arguments)

    assert result.exit_code == 0
    for line in ("2    invalid request; nothing was started", "130  interrupted", "143  terminated"):
        assert line in result.output


def test_help_shows_the_summary_of_every_command_whole():
    listed = CliRunner().invoke(cli.app, ["--help"], terminal_width=80).output.partition("Commands:")[2]

    assert "role" in listed
    assert "..." not in listed


@pytest.mark.process
@pytest.mark.parametrize("module", ["psflow", "psflow.flows.cli"])
def test_the_packages_are_the_command_too(module):
    process = subprocess.run([sys.executable, "-m", module, "trai"], cwd=ROOT, capture_output=True, timeout=200)
    assert process.returncode == 2
    assert b"No such command 'trai'" in process.stderr


@pytest.mark.process
def test_help_loads_none_of_the_libraries_that_take_long():
    program = (
        "import sys; from psflow.flows.cli import run; run(['--help']); "
        "sys.exit(' '.join({'dask', 'distributed', 'mlflow', 'numpy', 'prefect', 'pydantic'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: psflow" in done.stdout


NOISY = """
import atexit, contextlib, os, sys, types
import psflow.flows.head_start
psflow.flows.head_start.head_start = lambda *_, **__: contextlib.nullcontext()
def flow(*_):
    print("for people"); os.system("echo from a child")
    atexit.register(print, "at exit")
    {body}
module = types.ModuleType("psflow.flows.predict"); module.predict = flow
sys.modules["psflow.flows.predict"] = module
from psflow.flows.cli import main
main()
"""


def start(body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", NOISY.replace("{body}", body), *PREDICT, "--json"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.process
def test_with_json_nothing_but_the_answer_reaches_stdout():
    out, err = start(f"return {PREDICTED}").communicate(timeout=200)

    assert out == json.dumps(PREDICTED) + "\n"
    assert {"for people", "from a child", "at exit"} <= set(err.splitlines())


READY = "sys.stderr.write('ready\\n'); sys.stderr.flush(); sys.stdin.read()"
WRAPPED = f"""
    class Wrapping:
        def __set_name__(self, owner, name): {READY}
    type('Made', (), dict(field=Wrapping()))
"""  # Python 3.11 raises a RuntimeError then, whatever was raised; pydantic makes its models in this way


@pytest.mark.process
@pytest.mark.parametrize("body", [READY, WRAPPED], ids=["plain", "wrapped"])
@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_its_exit_code_and_an_answer(body, number, exit_code):
    with start(body) as process:
        assert process.stderr is not None
        assert any(line == "ready\n" for line in process.stderr)
        process.send_signal(number)
        out, err = process.communicate(timeout=200)

    assert process.returncode == exit_code
    assert "Traceback" not in err
    assert json.loads(out)["error"]["message"].endswith(RESUMES)
    assert f"{RESUMES}\n" in err
