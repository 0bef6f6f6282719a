from dataclasses import fields
from pathlib import Path
from typing import Literal

import pytest
from pydantic import ValidationError

from psflow.flows.parameters.configuration import read_settings
from psflow.flows.parameters.input import MODELS, DataInput, FunctionInput
from psflow.flows.parameters.model import KINDS, CannedModel, FunctionModel
from psflow.flows.parameters.stages import PredictParameters, parse_predict_parameters
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.config.files import COMMAND_LINE, Origin, load
from psflow.ps_runtime.data.digits import Digits
from psflow.ps_runtime.data.formats import FORMATS
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.optimizers import (
    Adagrad,
    Adam,
    ChainedSchedules,
    LinearWarmup,
    Momentum,
    OneCycle,
    ReduceOnPlateau,
    WarmupCosine,
)
from psflow.ps_runtime.specs.consistency import CONSISTENCIES, Async, BoundedStaleness, Hogwild, Sync
from psflow.ps_runtime.specs.wire_format import WireFormat

DIGITS = Path(__file__).parents[3] / "conf" / "digits.yaml"


def parsed(*overrides: str) -> TrainParameters:
    settings = load([DIGITS], overrides)
    return parse_parameters(settings.values, settings.origins)


def test_digits_is_a_whole_configuration():
    parameters = parsed()

    assert isinstance(parameters.model, CannedModel)
    assert isinstance(parameters.model.params.optimizer.build(), Adam)
    assert isinstance(parameters.input.train, DataInput)
    assert parameters.best.mode == "max"
    assert parameters.train.save_checkpoints_steps == 300
    assert parameters.train.save_checkpoints_secs is None


def test_a_head_is_chosen_by_name():
    words = "[" + ", ".join(f"'{word}'" for word in "abcdefghij") + "]"
    asked = ("weight_column=w", "loss_reduction=sum_by_nonzero_weights", f"label_vocabulary={words}")
    model = parsed(*(f"model.params.{key}" for key in asked)).model
    assert isinstance(model, CannedModel)
    params = model.params.kind(**model.params.arguments(), model_dir="unused").params
    assert params["head"] == ClassifierSpec(10, "w", tuple("abcdefghij"), Reduction.SUM_BY_NONZERO_WEIGHTS)


@pytest.mark.parametrize("path", sorted(DIGITS.parent.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_configuration_that_ships_is_whole(path):
    settings = read_settings([str(path)])
    assert parse_parameters(settings.values, settings.origins).experiment == path.stem


def test_defaults_are_named_after_the_experiment():
    parameters = parsed("experiment=mine")
    assert (parameters.model_dir, parameters.registered_model) == ("runs/mine", "psflow-mine")

    parameters = parsed("model_dir=/data/m", "registered_model=best")
    assert (parameters.model_dir, parameters.registered_model) == ("/data/m", "best")


def test_parameters_survive_json_as_prefect_sends_them():
    parameters = parsed("train.max_steps=null", "input.train.epochs=2", "input.eval={name: 'my.module:input_fn'}")

    assert TrainParameters.model_validate(parameters.model_dump(mode="json")) == parameters
    assert TrainParameters.model_validate_json(parameters.model_dump_json()) == parameters


def test_every_field_shows_the_form_what_it_is():
    schema = TrainParameters.model_json_schema()
    described = {f"#/$defs/{title}" for title, model in schema["$defs"].items() if "description" in model}
    bare = [
        (model["title"], name)
        for model in (schema, *schema["$defs"].values())
        for name, field in model["properties"].items()
        if "description" not in field and field.get("$ref") not in described
    ]
    assert bare == []
    assert set(schema["required"]) == {"experiment", "model", "input"}


def test_a_model_and_an_input_can_be_functions_of_the_user():
    parameters = parsed(
        "model={name: 'my.module:model_fn', params: {units: 3}}", "input.train={name: 'my.module:input_fn'}"
    )
    assert parameters.model == FunctionModel(name="my.module:model_fn", params={"units": 3})
    assert parameters.input.train == FunctionInput(name="my.module:input_fn")


def test_the_formats_are_those_that_can_be_read():
    assert {kind.model_fields["format"].annotation for kind in MODELS.values()} == {Literal[name] for name in FORMATS}
    options = TrainParameters.model_json_schema()["$defs"]["InputParameters"]["properties"]["train"]["anyOf"]
    assert len(options) == len(FORMATS) + 2


def test_an_input_describes_a_data_set():
    source = parsed("input.train={format: digits, split: test, batch_size: 60, shuffle: true}").input.train

    batching = {"batch_size": 60, "shuffle": True, "epochs": None, "seed": 3}
    assert (source.build(), source.batching(training=True, seed=3)) == (Digits(split="test"), batching)
    assert source.batching(training=False, seed=3)["epochs"] == 1
    other = parsed("input.train={format: csv, path: x, epochs: 2, seed: 5, features: [a]}").input.train
    assert other.build() == Csv(path="x", features=("a",))
    batching = {"batch_size": 32, "shuffle": False, "epochs": 2, "seed": 5}
    assert other.batching(training=False, seed=3) == batching


@pytest.mark.parametrize(
    ("overrides", "steps", "secs"),
    [
        (["train={max_steps: 3}", "train.save_checkpoints_steps=null"], None, 600.0),
        (["train.save_checkpoints_steps=5"], 5, None),
        (["train.save_checkpoints_steps=null", "train.save_checkpoints_secs=9"], None, 9.0),
        (["train.save_checkpoints_steps=null", "train.save_checkpoints_secs=null"], None, None),
    ],
)
def test_checkpoints_come_by_steps_or_by_seconds_or_not_at_all(overrides, steps, secs):
    train = parsed(*overrides).train
    assert (train.save_checkpoints_steps, train.save_checkpoints_secs) == (steps, secs)


@pytest.mark.parametrize(
    ("optimizer", "built"),
    [
        ("{name: Adam}", Adam()),
        ("{name: Adam, learning_rate: 1e-2, beta1: 0.5}", Adam(learning_rate=0.01, beta1=0.5)),
        ("{name: Adagrad, learning_rate: 1}", Adagrad(learning_rate=1.0)),
        (
            "{name: Momentum, learning_rate: 0.1, momentum: 0.9, use_nesterov: true}",
            Momentum(learning_rate=0.1, momentum=0.9, use_nesterov=True),
        ),
    ],
)
def test_an_optimizer_is_built_from_its_name_and_hyper_parameters(optimizer, built):
    model = parsed(f"model={{name: DNNClassifier, params: {{hidden_units: [4], optimizer: {optimizer}}}}}").model
    assert isinstance(model, CannedModel)
    assert model.params.optimizer.build() == built


@pytest.mark.parametrize(
    ("value", "built"),
    [
        ("async", Async()),
        ("{name: async, staleness_aware: true}", Async(staleness_aware=True)),
        ("bounded_staleness", BoundedStaleness()),
        ("{name: bounded_staleness, max_staleness: 0}", BoundedStaleness(0)),
        ("sync", Sync()),
        ("{name: sync, replicas_to_aggregate: 2}", Sync(2)),
        ("{name: sync, replicas_to_aggregate: null}", Sync()),
        ("hogwild", Hogwild()),
    ],
)
def test_a_consistency_is_built_from_its_name_alone_or_with_its_options(value, built, tmp_path):
    parameters = parsed(f"train.consistency={value}", f"model_dir={tmp_path}")
    assert TrainParameters.model_validate(parameters.model_dump(mode="json")) == parameters
    assert build_training(parameters).estimator.config.consistency == built


def test_without_a_word_training_is_asynchronous_and_not_pipelined(tmp_path):
    config = build_training(parsed(f"model_dir={tmp_path}")).estimator.config
    assert (config.consistency, config.pipeline_depth) == (Async(), 0)


def test_a_pipeline_reaches_the_run(tmp_path):
    parameters = parsed("pipeline_depth=1", "train.consistency=hogwild", f"model_dir={tmp_path}")
    assert build_training(parameters).estimator.config.pipeline_depth == 1


def test_a_wire_format_reaches_the_run(tmp_path):
    assert build_training(parsed(f"model_dir={tmp_path}")).estimator.config.wire == WireFormat()
    parameters = parsed("wire.gradients=bfloat16", f"model_dir={tmp_path}")
    assert build_training(parameters).estimator.config.wire == WireFormat("bfloat16", "float32")


def test_each_option_of_a_consistency_is_in_the_form_with_its_default():
    for name, spec in CONSISTENCIES.items():
        form = KINDS[name].model_fields
        assert form.keys() - {"name"} == {field.name for field in fields(spec)}
        assert KINDS[name](name=name).build() == spec()


def test_the_form_takes_the_name_of_a_consistency_alone():
    schema = TrainParameters.model_json_schema()
    kinds = schema["$defs"]["TrainingParameters"]["properties"]["consistency"]["anyOf"]
    assert [kind["enum"] for kind in kinds if "enum" in kind] == [list(CONSISTENCIES)]
    assert len(kinds) == 1 + len(CONSISTENCIES)


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("cluster.worker=2", r"cluster\.worker: unknown key; did you mean 'workers'\?"),
        ("zzz=2", r"zzz: unknown key"),
        ("input.train.batch_sise=3", r"input\.train\.batch_sise: unknown key; did you mean 'batch_size'\?"),
        ("model.params.hidden_unit=[3]", r"model\.params\.hidden_unit: unknown key; did you mean 'hidden_units'\?"),
        ("train.max_steps=abc", r"train\.max_steps: expected an integer, got 'abc'"),
        ("train.max_steps='3'", r"train\.max_steps: expected an integer, got '3'"),
        ("train.max_steps=1.5", r"train\.max_steps: expected an integer, got 1\.5"),
        ("train.max_steps=true", r"train\.max_steps: expected an integer, got True"),
        ("train.max_steps=0", r"train\.max_steps: expected a number >= 1, got 0"),
        ("train.save_checkpoints_secs=5", r"train: expected save_checkpoints_steps or save_checkpoints_secs, got both"),
        ("eval.throttle_secs=.inf", r"eval\.throttle_secs: expected a finite number, got inf"),
        ("cluster.min_workers=2", r"cluster: min_workers should be at most workers, 1, got 2"),
        ("cluster.max_workers=0", r"cluster: max_workers should be at least workers, 1, got 0"),
        ("cluster.adaptive=true", r"cluster: adaptive is true, so address should be that of an adaptive cluster"),
        ("cluster=3", r"cluster: expected a mapping, got 3"),
        ("cluster.address=3", r"cluster\.address: expected a string, got 3"),
        (
            "cluster={address: 'tcp://h:1', require_tls: true}",
            r"cluster: require_tls is true, so address",
        ),
        ("seed=-1", r"seed: expected a number >= 0, got -1"),
        ("pipeline_depth=2", r"pipeline_depth: expected a number <= 1, got 2"),
        ("pipeline_depth=true", r"pipeline_depth: expected an integer, got True"),
        ("wire.gradients=float16", r"wire\.gradients: expected 'float32' or 'bfloat16', got 'float16'"),
        ("wire=bfloat16", r"wire: expected a mapping, got 'bfloat16'"),
        ("transport=unx", r"transport: expected 'auto', 'shm', 'unix' or 'tcp', got 'unx'; did you mean 'unix'\?"),
        (
            "train.consistency=snyc",
            r"train\.consistency\.name: unknown consistency 'snyc', expected one of async, bounded_staleness, sync, "
            r"hogwild; did you mean 'sync'\?",
        ),
        (
            "train.consistency={name: hogwlid}",
            r"train\.consistency\.name: unknown consistency .*; did you mean 'hogwild'\?",
        ),
        (
            "train.consistency={max_staleness: 3}",
            r"train\.consistency\.name: is missing: expected one of async, ",
        ),
        ("train.consistency=null", r"train\.consistency: expected one of async, .*, got None"),
        ("train.consistency=[sync]", r"train\.consistency: expected one of async, .*, got \['sync'\]"),
        (
            "train.consistency={name: sync, replica_to_aggregate: 2}",
            r"train\.consistency\.replica_to_aggregate: unknown key; did you mean 'replicas_to_aggregate'\?",
        ),
        (
            "train.consistency={name: sync, max_staleness: 2}",
            r"train\.consistency\.max_staleness: unknown key; known here: name, replicas_to_aggregate$",
        ),
        (
            "train.consistency={name: sync, replicas_to_aggregate: 0}",
            r"train\.consistency\.replicas_to_aggregate: expected a number >= 1, got 0",
        ),
        (
            "train.consistency={name: bounded_staleness, max_staleness: -1}",
            r"train\.consistency\.max_staleness: expected a number >= 0, got -1",
        ),
        (
            "train.consistency={name: async, staleness_aware: 1}",
            r"train\.consistency\.staleness_aware: expected true or false, got 1",
        ),
        (
            "experiment=a/b",
            r"experiment: expected letters, digits, '_', '-' and '\.', the first one a letter or a digit, got 'a/b'",
        ),
        (
            "registered_model=../../evil",
            r"registered_model: expected a model name without '/' and ':', got '\.\./\.\./evil'",
        ),
        ("registered_model=..", r"registered_model: expected a model name .* got '\.\.'"),
        ("model_dir=''", r"model_dir: expected a string that is not empty, got ''"),
        (
            "model.name=DNNClasifier",
            r"model\.name: unknown model 'DNNClasifier', .*, or one of your own as package.module:name; did you me",
        ),
        ("model={name: 'a:b c'}", r"model\.name: expected module:name, such as my_models:price, got 'a:b c'"),
        ("model={}", r"model\.name: is missing"),
        ("model=null", r"model: expected a mapping with a name, got None"),
        ("model.params.hidden_units=3", r"model\.params\.hidden_units: expected a list, got 3"),
        ("model.params.hidden_units=[0]", r"model\.params\.hidden_units\.0: expected a number >= 1, got 0"),
        ("model.params.n_classes=1", r"model\.params\.n_classes: expected a number >= 2, got 1"),
        ("model.params.loss_reduction=summ", r"model\.params\.loss_reduction: .*sum"),
        (
            "model.params.optimizer.name=Adm",
            r"model\.params\.optimizer\.name: unknown optimizer 'Adm', expected one of .*; did you mean 'Adam'\?",
        ),
        (
            "model.params.optimizer.beta_1=0.5",
            r"model\.params\.optimizer\.beta_1: unknown key; did you mean 'beta1'\?",
        ),
        (
            "model.params.optimizer.beta1=2",
            r"model\.params\.optimizer: Adam: beta1 is 2.0, expected a number in \[0, 1\)",
        ),
        ("input.eval=3", r"input\.eval: expected a mapping with a format or a name, got 3"),
        (
            "input.train.format=cvs",
            r"input\.train\.format: unknown input format 'cvs', expected one of .*; did you mean 'csv'\?",
        ),
        ("input.train.format=csv", r"input\.train\.path: is missing"),
        (
            "input.train={format: csv, path: x, split: all}",
            r"input\.train\.split: unknown key; known here: batch_size",
        ),
        ("input.train.labels_path=x", r"input\.train\.labels_path: unknown key; known here: batch_size"),
        ("input.train.path=x.csv", r"input\.train\.path: unknown key; known here: batch_size"),
        ("input.train.shuffle=1", r"input\.train\.shuffle: expected true or false, got 1"),
    ],
)
def test_a_fault_says_where_what_was_expected_and_what_came(override, fault):
    with pytest.raises(ConfigError, match=f"^command line: {fault}"):
        parsed(override)


def test_workers_that_may_be_missing_read_no_data_of_their_own():
    with pytest.raises(
        ConfigError, match=r"^train\.each_worker_reads_all is true: each worker reads data that no other"
    ):
        parsed("cluster.max_workers=2", "train.each_worker_reads_all=true")
    parsed("cluster.max_workers=1", "train.each_worker_reads_all=true")


def test_sync_with_a_pipeline_is_refused():
    with pytest.raises(ConfigError, match=r"^sync needs pipeline_depth 0, got 1: a gradient of values that are"):
        parsed("train.consistency=sync", "pipeline_depth=1")


def test_a_fault_in_a_file_names_its_line(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("cluster:\n  ps: 1\n  worker: 2\ntrain:\n  max_steps: abc\n")

    settings = load([DIGITS, path])
    with pytest.raises(ConfigError) as raised:
        parse_parameters(settings.values, settings.origins)

    assert raised.value.faults == (
        f"{path}:5: train.max_steps: expected an integer, got 'abc'",
        f"{path}:3: cluster.worker: unknown key; did you mean 'workers'?",
    )


def test_a_missing_key_stands_where_the_key_above_it_does():
    with pytest.raises(ConfigError) as raised:
        parse_parameters({"experiment": "x", "model": {"name": "DNNClassifier"}}, {"model": Origin("a.yaml", 2)})
    assert raised.value.faults == ("a.yaml:2: model.params: is missing", "input: is missing")


def test_a_consequence_of_another_fault_is_not_told():
    with pytest.raises(ConfigError) as raised:
        parsed("experiment=3")
    assert raised.value.faults == ("command line: experiment: expected a string, got 3",)


def test_a_long_value_is_cut_short():
    with pytest.raises(ConfigError, match=r"got 'a{79}\.\.\.$"):
        parsed("seed=" + "a" * 1000)


def test_parameters_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        parsed().seed = 3


def test_prediction_parameters():
    values = {"model": "models:/x@best", "input": "a.csv", "output": "out", "cluster": {"workers": 3}}
    parameters = parse_predict_parameters(values, {})
    assert parameters == PredictParameters.model_validate(values)
    assert parameters.cluster.workers == 3

    with pytest.raises(ConfigError, match=r"^command line: cluster\.worker: unknown key; did you mean 'workers'\?$"):
        parse_predict_parameters(values | {"cluster": {"worker": 3}}, {"cluster.worker": COMMAND_LINE})


def model_with(optimizer):
    return parsed(f"model={{name: LinearRegressor, params: {{optimizer: {optimizer}}}}}").model


def test_an_optimizer_is_built_from_its_name_alone():
    found = model_with("Adam").params
    assert found.build().params["optimizer"] == Adam(0.001)
    assert found.model_dump()["optimizer"]["learning_rate"] == 0.001, "the resolved configuration shows it"
    assert found == model_with("{name: Adam}").params


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("RMSProp", "optimizer: RMSProp has no default of learning_rate: expected a mapping with name, learning_rate"),
        ("SGD", "optimizer.name: unknown optimizer 'SGD', expected one of .*; did you mean 'GradientDescent'"),
        (
            "{name: SGD, learning_rate: 0.1}",
            "optimizer.name: unknown optimizer 'SGD', expected one of .*did you mean 'GradientDescent'",
        ),
        ("adam", "optimizer.name: unknown optimizer 'adam', .*; did you mean 'Adam'"),
        ("0.1", "optimizer: expected one of GradientDescent, .*, or a mapping with one of these as name, got 0.1"),
    ],
)
def test_a_name_that_is_no_whole_optimizer(text, fault):
    with pytest.raises(ConfigError, match=rf"model\.params\.{fault}"):
        model_with(text)


def test_the_form_offers_the_optimizers_that_a_name_alone_stands_for():
    schema = TrainParameters.model_json_schema()
    [names] = [kind for kind in schema["$defs"]["FunctionModel"]["properties"]["optimizer"]["anyOf"] if "enum" in kind]
    assert names["enum"] == ["Adagrad", "Adam", "AdamW", "NAdam"]


def schedule_of(text):
    return model_with(f"{{name: Adam, learning_rate: {text}}}").params.build().params["optimizer"].learning_rate


def test_a_learning_rate_can_be_any_schedule_by_name():
    assert schedule_of("0.5") == 0.5
    warmup = "{name: WarmupCosine, peak: 0.1, warmup_steps: 5, decay_steps: 60}"
    assert schedule_of(warmup) == WarmupCosine(0.1, 5, 60)
    assert schedule_of(f"{{name: LinearWarmup, warmup_steps: 2, learning_rate: {warmup}}}") == LinearWarmup(
        WarmupCosine(0.1, 5, 60), 2
    )
    cycle = "{name: OneCycle, peak: 1, total_steps: 9}"
    found = schedule_of(f"{{name: ChainedSchedules, schedules: [{cycle}, {warmup}], boundaries: [9]}}")
    assert found == ChainedSchedules([OneCycle(1.0, 9), WarmupCosine(0.1, 5, 60)], [9])
    plateau = "{name: ReduceOnPlateau, learning_rate: 0.1, patience: 3, metric: accuracy, mode: max}"
    assert schedule_of(plateau) == ReduceOnPlateau(0.1, patience=3, metric="accuracy", mode="max")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{name: WarmupCosin}", "learning_rate.name: unknown schedule 'WarmupCosin'.*did you mean 'WarmupCosine'"),
        ("{name: CosineDecay, learning_rate: 1}", "learning_rate.decay_steps: is missing"),
        ("{name: WarmupCosine, peak: 1, warmup_steps: 5, decay_steps: 3}", "decay_steps is 3, expected more than"),
        ("{name: LinearWarmup, warmup_steps: 2, learning_rate: {name: OneCycl}}", "unknown schedule 'OneCycl'"),
        ("{name: ReduceOnPlateau, learning_rate: 0.1, mode: less}", "learning_rate.mode: expected 'min' or 'max', got"),
        (
            "{name: LinearWarmup, warmup_steps: 2, learning_rate: {name: ReduceOnPlateau, learning_rate: 1}}",
            "learning_rate.learning_rate.name: unknown schedule 'ReduceOnPlateau', expected one of",
        ),
        ("fast", "learning_rate: expected a number, or a mapping with a name, got 'fast'"),
        ("null", "learning_rate: expected a number, or a mapping with a name, got None"),
        ("[0.1]", r"learning_rate: expected a number, or a mapping with a name, got \[0.1\]"),
        (
            "{name: LinearWarmup, warmup_steps: 2, learning_rate: fast}",
            "learning_rate.learning_rate: expected a number, or a mapping with a name, got 'fast'",
        ),
        (
            "{name: ChainedSchedules, schedules: [0.1], boundaries: []}",
            "learning_rate.schedules.0: expected a mapping with a name, got 0.1",
        ),
    ],
)
def test_a_wrong_schedule_is_named(text, fault):
    with pytest.raises(ConfigError, match=fault):
        schedule_of(text)
