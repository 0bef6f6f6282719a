"""What the documents say is so: their code runs, their names exist, their links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import dask
import distributed.utils
import pytest

import psflow
from psflow.flows.cli import app
from psflow.flows.inspect.plan import plan
from psflow.flows.parameters.train import parse_parameters
from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.cluster.fork_server import start_fork_server
from psflow.ps_runtime.config.files import load
from psflow.ps_runtime.protocol.message import HEADER, Kind
from psflow.ps_runtime.specs.roles import Role

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PROGRAM = ROOT / "docs" / "howto" / "python.md"
TRAIN = ROOT / "docs" / "howto" / "train.md"
TORCH = ROOT / "docs" / "howto" / "torch.md"
PROTOCOL = ROOT / "docs" / "protocol.md"
EMBEDDINGS = ROOT / "docs" / "embeddings.md"
ESTIMATOR = ROOT / "docs" / "estimator.md"
MIGRATED = ROOT / "docs" / "migrating.md"
REPLAY = ROOT / "docs" / "howto" / "replay.md"
RECORD_FILES = ROOT / "docs" / "howto" / "tables.md"
PAGES = sorted([README, ROOT / "CHANGELOG.md", *ROOT.glob("docs/[!_]*/*.md"), *ROOT.glob("docs/*.md")])
PACKAGES = ("flows", "tasks", "ps_runtime", "benchmarks")

FENCE = re.compile(r"^```([\w{}-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^   ```python\n(.*?)^   ```$", re.MULTILINE | re.DOTALL)
"""Python in a numbered list."""
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
REFUSALS = ("Refusal", "refusal", "self._turn_away")
SOURCE_PATH = re.compile(r"(?:psflow|flows|tasks|ps_runtime|benchmarks|tests|docs|examples|conf)/[\w./-]*")
MODULE_NAME = re.compile(r"(?:psflow\.(?:flows|tasks|ps_runtime)|benchmarks)(?:\.\w+)+")
CLASS_NAME = re.compile(r"(_?[A-Z]\w*[a-z]\w*)(?:\.(\w+))?")

TORCH_ALONE = {
    "DataLoader",
    "EmbeddingBag",
    "OneCycleLR",
    "CosineAnnealingWarmRestarts",
    "LinearLR",
    "ReduceLROnPlateau",
    "SequentialLR",
}
TENSORFLOW_ALONE = {"FeedFnHook", "MultiHead", "SequentialHead", "PoissonRegressionHead", "LogisticRegressionHead"}
NAMES_OF_OTHERS = {
    "MLPClassifier",
    "MLmodel",
    "Pending",
    "Worker",
    "LocalCluster",
    "SSHCluster",
    "PyYAML",
    *TENSORFLOW_ALONE,
    *TORCH_ALONE,
}
"""Of MLflow, Prefect, Dask, TensorFlow, and who else is named."""


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text()) if kind == language]


def code_of(page: Path) -> list[str]:
    """Return what a page shows as code: spans, and blocks of no language."""
    return [*SPAN.findall(FENCE.sub("", page.read_text())), *blocks(page, "")]


def of_all_pages() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for text in code_of(page):
            yield page.relative_to(ROOT).as_posix(), text


def run(texts: list[str]) -> dict[str, Any]:
    """Run blocks one after the other, as one program."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for text in texts:
        exec(compile(text, "page", "exec"), names)
    return names


def test_a_line_of_a_migrated_program_stands_in_one() -> None:
    programs = [path.read_text().splitlines() for path in ROOT.glob("examples/migrated/*.py")]
    there = {line.strip() for lines in programs for line in lines}
    shown = [line for text in blocks(MIGRATED, "") for line in text.splitlines() if line.startswith("+ ")]
    assert shown
    assert [line for line in shown if line.removeprefix("+ ").strip() not in there] == []


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_elsewhere")
def test_the_models_of_the_readme_run(capsys: pytest.CaptureFixture[str]) -> None:
    texts = blocks(README, "python")
    names = run(texts)
    assert len(texts) == 2
    assert all(len([line for line in text.splitlines() if line]) <= 15 for text in texts)
    assert "'global_step': 500" in capsys.readouterr().out
    assert names["estimator"].get_variable_value("w") == pytest.approx(2, abs=0.05)
    assert names["first"]["class_ids"].tolist() == [0]
    assert names["first"]["probabilities"].shape == (2,)
    assert names["classifier"].get_variable_value("dnn/input_layer/town_embedding/embedding_weights").shape == (50, 4)


@pytest.mark.usefixtures("_elsewhere")
def test_the_models_of_the_page_on_python_run(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [text for text in blocks(PROGRAM, "python") if "client=" not in text]
    names = run(texts)
    assert len(texts) == 2
    assert "'global_step': 200" in capsys.readouterr().out
    assert names["estimator"].get_variable_value("w") == pytest.approx(2, abs=0.05)


@pytest.mark.usefixtures("_elsewhere")
def test_the_module_of_the_page_on_torch_learns() -> None:
    torch = pytest.importorskip("torch")
    names = run([textwrap.dedent(text) for text in INDENTED.findall(TORCH.read_text())])
    assert names["estimator"].evaluate(names["test_input"])["accuracy"] > 0.9
    [images] = [torch.from_numpy(names["images"][1400:])]
    assert (names["net"](images).argmax(1).numpy() == names["digits"].target[1400:]).mean() > 0.9


@pytest.mark.process
@pytest.mark.usefixtures("_elsewhere")
def test_the_model_of_the_page_on_jax_learns() -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    [text] = blocks(ROOT / "docs" / "howto" / "jax.md", "python")  # its threads would hinder forks of this process
    out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=120).stdout
    assert ast.literal_eval(out)["accuracy"] > 0.87


@pytest.mark.usefixtures("_elsewhere")
def test_the_models_of_the_page_on_tables_run() -> None:
    names = run(blocks(EMBEDDINGS, "python"))
    loss = names["estimator"].evaluate(names["some_ratings"])["loss"]
    assert loss < 0.5 * names["some_ratings"]().labels.var()
    assert {path.name for path in Path("runs").iterdir()} == {"ratings", "baskets", "manual"}


@pytest.mark.usefixtures("_elsewhere")
def test_the_canned_models_of_the_page_on_estimators_run() -> None:
    names = run(blocks(ESTIMATOR, "python"))
    assert names["linear"].get_variable_value("linear/linear_model/style/weights").shape == (4, 1)
    assert names["deep"].evaluate(names["houses"])["loss"] < 0.5 * names["houses"]().labels.var()
    assert names["income"].evaluate(lambda: names["Csv"]("held_out.csv").read())["accuracy"] > 0.8


@pytest.mark.usefixtures("_elsewhere")
def test_the_program_of_the_page_on_replay_runs() -> None:
    run(blocks(REPLAY, "python"))
    assert {e.name for e in EvaluationLog("runs/line").read()} == {"", "again"}


@pytest.mark.usefixtures("_elsewhere")
def test_the_example_of_the_page_on_record_files_is_planned_as_it_says() -> None:
    run(blocks(RECORD_FILES, "python"))
    Path("people.yaml").write_text(blocks(RECORD_FILES, "yaml")[0])
    answer = plan(["people.yaml"])
    assert answer.facts["faults"] == []
    [shown] = (text for text in blocks(RECORD_FILES, "") if text.startswith("columns"))
    assert shown in "\n".join([*(answer.lines or []), ""])


@pytest.mark.cluster
@pytest.mark.usefixtures("_elsewhere")
def test_the_cluster_of_the_page_on_python_trains(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    start_fork_server()  # a worker that imports everything by itself is shown by examples/digits_on_dask.py
    distributed.utils._forkserver_preload_set = True
    method = {"distributed.worker.multiprocessing-method": "forkserver"}
    with dask.config.set(method | {"temporary-directory": str(tmp_path)}):
        run(blocks(PROGRAM, "python"))
    ends = dict.fromkeys(("ps-0", "chief-0", "worker-0", "evaluator-0"), "finished")
    assert ast.literal_eval(capsys.readouterr().out.splitlines()[-1]) == ends


def test_the_configuration_of_the_page_on_training_is_read(tmp_path: Path) -> None:
    texts = blocks(TRAIN, "yaml")
    assert texts
    for text in texts:
        (tmp_path / "conf.yaml").write_text(text)
        parse_parameters(load([tmp_path / "conf.yaml"]).values, {})


def test_the_training_commands_are_understood() -> None:
    texts = [*blocks(README, ""), *blocks(TRAIN, "")]
    lines = [line.split() for text in texts for line in text.splitlines() if line.startswith("psflow train")]
    drafted = re.findall(r"^psflow init (?:\w+/)?(\w+)\.\w+ --label", "\n".join(texts), re.MULTILINE)
    kept = [line for line in lines if line[2] not in {f"{name}.yaml" for name in drafted}]
    assert len(kept) > 2
    for _, _, file, *overrides in kept:
        parse_parameters(load([ROOT / file], overrides).values, {})


def test_every_command_and_target_exists() -> None:
    commands = {command.callback.__name__ for command in app.registered_commands if command.callback}
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    seen = []
    for page, text in of_all_pages():
        for program, known in (("psflow", commands), ("make", targets)):
            for name in re.findall(rf"(?:^|(?<!import)[\s/]){program} (\w+)", text):
                seen.append((program, name))
                assert name in known, f"{page}: {program} {name}"
    assert {("psflow", "train"), ("psflow", "predict"), ("make", "demo"), ("make", "ci")} <= set(seen)


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        for target in LINK.findall(FENCE.sub("", page.read_text())):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_index_reaches_every_page() -> None:
    reached, waiting = set(), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting.extend(_pages_below(page))
    assert {page for page in PAGES if ROOT / "docs" in page.parents} == reached


def test_the_reference_has_every_public_name() -> None:
    pages = ROOT.glob("docs/reference/*.md")
    listed = [name for page in pages for text in blocks(page, "{api}") for name in text.split()]
    assert len(listed) == len(set(listed))
    below = {name.partition(".")[0] for name in listed if "." in name}
    assert {name for name in listed if "." not in name} | below == {"torch", *psflow.__all__} - {
        "app",
        "estimator",
        "optimizers",
        "train",
        "Event",
    }
    if importlib.util.find_spec("torch") is None:
        listed = [name for name in listed if not name.startswith("torch.")]
    face = {f"feature_column.{name}" for name in psflow.feature_column.__all__}
    face |= {f"metrics.{name}" for name in psflow.metrics.__all__ if name[0].islower() or name == "Metric"}
    face |= {f"export.{name}" for name in psflow.export.__all__}
    assert {name for name in listed if name.startswith(("feature_column.", "metrics.", "export."))} == face
    for name in listed:
        attrgetter(name)(psflow)


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 120


def test_every_file_that_is_named_exists() -> None:
    for page, text in of_all_pages():
        if SOURCE_PATH.fullmatch(text):
            assert (ROOT / text).exists(), f"{page}: {text}"


def test_every_promise_of_security_has_its_test() -> None:
    page = ROOT / "docs" / "security.md"
    promises = re.findall(r"\[`(test_\w+)`\]\(([^)]*)\)", page.read_text())
    assert len(promises) > 20
    for name, file in promises:
        assert f"def {name}(" in (page.parent / file).read_text(), f"{file} has no {name}"


def test_every_module_that_is_named_exists() -> None:
    for page, text in of_all_pages():
        if MODULE_NAME.fullmatch(text):
            assert _is_there(text), f"{page}: {text}"


def test_every_class_that_is_named_exists() -> None:
    classes = dict(_classes())
    named = 0
    for page, text in of_all_pages():
        if match := CLASS_NAME.fullmatch(text.removesuffix("(client=)")):
            owner, member = match.groups()
            if owner in NAMES_OF_OTHERS:
                continue
            named += 1
            assert owner in classes, f"{page}: {text}"
            assert member is None or member in classes[owner], f"{page}: {text}"
    assert named > 20


def test_what_estimator_is_said_to_lack_is_not_there() -> None:
    table = ESTIMATOR.read_text().partition("| not there |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.count("|") > 2]
    said = {name for cell in cells for name in re.findall(r"`([a-z_]+)`", cell.partition(" beyond ")[0])}
    kinds = (psflow.Estimator, psflow.EstimatorSpec, psflow.EvalSpec, psflow.RunConfig)
    there = {name for kind in kinds for name in (*dir(kind), *inspect.signature(kind).parameters)}
    assert {"receiver_tensors_alternatives", "init_op", "service"} <= said
    assert said.isdisjoint(there | set(Role))


def test_every_name_of_the_face_is_there() -> None:
    face = importlib.import_module("psflow")
    for text in [*blocks(README, "python"), *blocks(PROGRAM, "python")]:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module == "psflow":
                assert {alias.name for alias in node.names} <= set(face.__all__)


def test_every_kind_of_message_is_described() -> None:
    tables = PROTOCOL.read_text().partition("## Requests")[2].partition("## Bounds")[0]
    described = re.findall(r"^\| ([A-Z_, ]+) \|", tables, re.MULTILINE)
    names = [name for cell in described for name in cell.split(", ")]
    assert sorted(names) == sorted(kind.name for kind in Kind)


def test_every_refusal_is_described() -> None:
    codes = {code for package in PACKAGES for path in (ROOT / package).rglob("*.py") for code in _refusals(path)}
    assert len(codes) > 8
    described = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", PROTOCOL.read_text(), re.MULTILINE)
    assert {code for cell in described for code in SPAN.findall(cell)} == codes


def test_the_header_has_the_size_that_is_said() -> None:
    assert f"A header of {HEADER.size} bytes" in PROTOCOL.read_text()


def test_the_configuration_page_is_what_is_generated() -> None:
    spec = importlib.util.spec_from_file_location("generate_configuration", ROOT / "docs" / "generate_configuration.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == module.configuration(), "run python docs/generate_configuration.py"


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=\[]", text)[0] for text in project["dependencies"]}
    reasons = re.findall(r"^\| (`.*`) \|", (ROOT / "docs/decisions/0002-dependencies.md").read_text(), re.MULTILINE)
    assert {name for cell in reasons for name in SPAN.findall(cell)} == names


def test_decisions_are_numbered_and_say_what_was_given_up() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
        assert heads[0].startswith(f"{int(page.name[:4])}. "), page.name
        sections = [head for head in heads[1:] if head != "What we tried and left"]
        assert sections == ["Why", "Choice", "What we gave up"], page.name
    index = (ROOT / "docs" / "decisions" / "index.md").read_text()
    assert sorted(LINK.findall(index)) == [page.name for page in pages]


def test_the_glossary_is_in_alphabetical_order() -> None:
    terms = re.findall(r"^\| \*\*(.*?)\*\* \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len(terms) > 100
    assert terms == sorted(terms, key=str.lower)


def test_the_changelog_begins_with_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (\S+)", text, re.MULTILINE)[0] == version
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= {"Added", "Changed", "Fixed", "Removed"}


def test_every_example_says_what_it_is() -> None:
    for path in (ROOT / "examples").glob("*.py"):
        assert f"examples/{path.name}" in (ast.get_docstring(ast.parse(path.read_text())) or ""), path.name


def _pages_below(page: Path) -> Iterator[Path]:
    """Yield the pages that the toctrees of `page` name, globs among them."""
    for text in blocks(page, "{toctree}"):
        for entry in text.splitlines():
            if entry and not entry.startswith(":"):
                found = sorted(page.parent.glob(f"{entry}.md"))
                assert found, f"{page.name}: {entry}"
                yield from found


def _is_there(dotted: str) -> bool:
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name, None)
        return found is not None
    return False


def _classes() -> Iterator[tuple[str, set[str]]]:
    """Yield each class of the packages, with the names of its methods and fields."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    yield node.name, {name for statement in node.body for name in _names(statement)}


def _names(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef):
        return [statement.name]
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return [statement.target.id]
    return []


def _refusals(path: Path) -> Iterator[str]:
    """Yield the codes with which a file refuses something: the first text that it hands to such a call."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if any(f"{call}(" in text for call in REFUSALS) else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in REFUSALS:
            texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            yield from texts[:1]


def test_each_request_to_a_ps_has_a_limit_in_the_list_of_waits() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    waits = page[page.index("## Waits") : page.index("## Not promised")]
    assert {kind.name for kind in Kind if not kind.is_reply} == set(re.findall(r"`([A-Z_]{4,})`", waits))
