"""Commands ``init``, ``plan``, ``train``, ``pipeline``, ``evaluate``, ``export`` and ``predict``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psflow.flows.commands import BEGAN_AT, Json, Overrides, Settings
from psflow.flows.output import Answer, ExitCode, recorded

if TYPE_CHECKING:
    from psflow.flows.parameters.stages import PredictParameters

Reading = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]", help="Options of the files, such as encoding=latin-1 or columns.zip.type=string."
    ),
]


def init(
    data: Annotated[str, typer.Argument(metavar="DATA", help="File, folder, glob or URL of tabular files.")],
    overrides: Reading = None,
    *,
    label: Annotated[str, typer.Option(metavar="COLUMN", help="The column to predict.")],
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="Path of the configuration; default: ./DATA.yaml.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="DNNClassifier, LinearClassifier, DNNRegressor or LinearRegressor."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="csv, tsv, parquet, arrow, jsonl or libsvm; default: by suffix."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Json = False,
) -> Answer:
    """Write a first configuration for tabular files.

    All entries are guesses, each with its reason in a comment. At most the first 100,000 records are read.
    """
    from psflow.flows.init.answer import init

    return init(data, label, overrides or (), output=output, model=model, format_name=format, overwrites=force)


def plan(settings: Settings, as_json: Json = False) -> Answer:
    """Show what psflow train CONF would do; start nothing.

    Checks inputs, model, model_dir, cluster and servers, and writes nothing.
    """
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.inspect.plan import plan

    return plan(settings)


def train(
    settings: Annotated[
        list[str], typer.Argument(metavar="CONF [KEY=VALUE]", help="YAML files and overrides; later ones win.")
    ],
    fork: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Start a new job in DIR from the latest checkpoint of CONF's job."),
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Resume even if CONF now alters what the job learns.")
    ] = False,
    timings: Annotated[
        bool, typer.Option("--timings", help="Show where the seconds go: to the first step, and after the last one.")
    ] = False,
    as_json: Json = False,
) -> Answer:
    """Train, evaluate and export CONF, or resume.

    A training that was interrupted continues from its last checkpoint.
    """
    from psflow.flows.head_start import head_start
    from psflow.flows.timings import shown_timings
    from psflow.flows.timings import timings as taken

    flags: dict[str, tuple[str, Any]] = {} if fork is None else {"--fork": ("resume.fork", fork)}
    flags |= {"--allow-changes": ("resume.allow_changes", True)} if allow_changes else {}
    with head_start(BEGAN_AT):
        from psflow.flows.parameters.configuration import read_settings
        from psflow.flows.parameters.train import parse_parameters

        loaded = read_settings(settings, flags)
        parameters = parse_parameters(loaded.values, loaded.origins)
        taken.mark("configuration")
        from psflow.flows.train import train

        taken.mark("imports")
        summary = train(parameters, loaded)
    taken.mark("end of the Prefect server")
    from psflow.flows.reporting.summary import shown

    lines = shown(summary)
    if timings:
        summary = summary | {"timings": taken.facts()}
        lines += ["", *shown_timings(summary["timings"])]
    return Answer(summary, lines, recorded(summary))


def pipeline(settings: Settings, as_json: Json = False) -> Answer:
    """Train, evaluate, export and predict CONF.

    Finished stages are not repeated.
    """
    from psflow.flows.head_start import head_start

    with head_start(BEGAN_AT):
        from psflow.flows.parameters.configuration import pipeline_parameters, read_conf

        conf = read_conf(settings)
        parameters = pipeline_parameters(conf)
        from psflow.flows.pipeline import pipeline
        from psflow.flows.reporting.summary import shown_pipeline

        facts = pipeline(parameters, conf.settings)
    stages = [stage for stage in facts.values() if isinstance(stage, Mapping)]
    return Answer(facts, shown_pipeline(facts), recorded(*stages))


def evaluate(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONF] [KEY=VALUE]",
            help="Configuration to use in place of the one in the model_dir, and overrides, such as "
            "evals.other.input.path=other.csv; cluster.address names a Dask scheduler to evaluate on, "
            "cluster.workers=4 sets the number of Dask workers of a cluster on this machine.",
        ),
    ] = None,
    model_dir: Annotated[str | None, typer.Option(metavar="DIR", help="model_dir of the training.")] = None,
    run_id: Annotated[str | None, typer.Option(metavar="RUN", help="Id of the MLflow run of the training.")] = None,
    checkpoints: Annotated[
        str,
        typer.Option(
            metavar="WHICH",
            help="Checkpoints to evaluate: all, latest, best, last:5, 1000..9000, or steps such as 300,600.",
        ),
    ] = "all",
    force: Annotated[bool, typer.Option("--force", help="Repeat evaluations that are already recorded.")] = False,
    record: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory of the record of evaluations; default: the model_dir.")
    ] = None,
    as_json: Json = False,
) -> Answer:
    """Evaluate old checkpoints on any data, in parallel."""
    from psflow.flows.head_start import head_start
    from psflow.ps_runtime.errors import EvaluationFailedError

    options = {"model_dir": model_dir, "run_id": run_id, "checkpoints": checkpoints, "force": force, "record": record}
    with head_start(BEGAN_AT):
        from psflow.flows.parameters.configuration import source_settings
        from psflow.flows.parameters.stages import parse_evaluate_parameters

        loaded = source_settings(settings or (), options)
        parameters = parse_evaluate_parameters(loaded.values, loaded.origins)
        from psflow.flows.evaluate import evaluate
        from psflow.flows.reporting.summary import shown_evaluations

        try:
            facts = evaluate(parameters)
        except EvaluationFailedError as error:
            lines = [*shown_evaluations(error.facts), *str(error).splitlines()]
            return Answer(error.facts, lines, ExitCode.FAILED)
    return Answer(facts, shown_evaluations(facts), recorded(facts))


def export(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONF] [KEY=VALUE]",
            help="Configuration to use in place of the one in the model_dir, and overrides.",
        ),
    ] = None,
    model_dir: Annotated[str | None, typer.Option(metavar="DIR", help="model_dir of the training.")] = None,
    run_id: Annotated[str | None, typer.Option(metavar="RUN", help="Id of the MLflow run of the training.")] = None,
    checkpoint: Annotated[
        str, typer.Option(metavar="WHICH", help="Checkpoint to export: best, latest, or a step such as 600.")
    ] = "best",
    metric: Annotated[
        str | None,
        typer.Option(
            help="Choose the best checkpoint by this metric instead of best.metric, and move the alias best to it."
        ),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="min|max", help="Whether a smaller or a larger value of --metric is better.")
    ] = None,
    as_json: Json = False,
) -> Answer:
    """Export a checkpoint as an MLflow model, and register it."""
    from psflow.flows.head_start import head_start

    options = {"model_dir": model_dir, "run_id": run_id, "checkpoint": checkpoint, "metric": metric, "mode": mode}
    with head_start(BEGAN_AT):
        from psflow.flows.parameters.configuration import source_settings
        from psflow.flows.parameters.stages import parse_export_parameters

        loaded = source_settings(settings or (), options)
        parameters = parse_export_parameters(loaded.values, loaded.origins)
        from psflow.flows.export import export
        from psflow.flows.reporting.summary import shown_export

        facts = export(parameters)
    return Answer(facts, shown_export(facts))


def predict(
    model: Annotated[
        str, typer.Option(metavar="URI", help="URI of an MLflow model, such as models:/psflow-digits@best.")
    ],
    data: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="PATH",
            help="File, folder, glob or URL to score: CSV, TSV, Parquet, Arrow, JSON lines, npz, IDX, or another "
            "format with the override format=NAME, which a folder needs; or digits:test.",
        ),
    ],
    output: Annotated[
        str, typer.Option(metavar="DIR", help="Directory for the predictions, one row per row of the input.")
    ],
    overrides: Overrides = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Count files, rows and partitions, and show the output columns; write nothing."),
    ] = False,
    as_json: Json = False,
) -> Answer:
    """Predict every row of a file, in order, in parallel."""
    from psflow.flows.head_start import head_start
    from psflow.ps_runtime.config.environment import prepare_environment

    options = {"model": model, "input": data, "output": output}
    if dry_run:
        prepare_environment()
        from psflow.flows.predict import dry_run as look
        from psflow.flows.reporting.summary import shown_dry_run

        facts = look(_predict_parameters(options, overrides or ()))
        return Answer(facts, shown_dry_run(facts))
    with head_start(BEGAN_AT):
        parameters = _predict_parameters(options, overrides or ())
        from psflow.flows.predict import predict
        from psflow.flows.reporting.summary import shown_predictions

        facts = predict(parameters)
    return Answer(facts, shown_predictions(facts))


def _predict_parameters(options: Mapping[str, str], overrides: Sequence[str]) -> PredictParameters:
    from psflow.flows.parameters.configuration import text_keys
    from psflow.flows.parameters.stages import PredictParameters, parse_predict_parameters
    from psflow.ps_runtime.config.files import Origin, Settings, load

    origins = {name: Origin(f"--{name}") for name in options}
    loaded = load([], overrides, text_keys(PredictParameters)).merged(Settings(options, origins))
    return parse_predict_parameters(loaded.values, loaded.origins)
