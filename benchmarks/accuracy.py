"""A whole training of Fashion-MNIST, beside programs of other libraries for the same network, optimizer and epochs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import fashion
from benchmarks.rows import Row, Samples
from benchmarks.settings import Settings
from benchmarks.startup_scene import ROOT, Scene
from psflow.ps_runtime.errors import UsageError

__all__ = ["CLAIM", "measure"]

CLAIM = """\
Fashion-MNIST, 784-100-10, Adam, five epochs in batches of 100: psflow train from a configuration, with an evaluation,
an export, plots and its own cluster and Prefect server, beside programs of scikit-learn, torch and JAX in one process,
which print the accuracy and keep nothing: the same accuracy, in at most 6.5 s where JAX takes 2.9 s."""

logger = logging.getLogger(__name__)

PEERS = ("sklearn", "torch", "jax")
"""Their modules, and the names of their programs."""
CONF = ROOT / "conf" / "fashion_mnist.yaml"
FIVE_EPOCHS = ("train.max_steps=3000", "train.save_checkpoints_steps=3000")
FIGURES = ("wall", "accuracy", "lines")
DIGITS = 4


class Training(NamedTuple):
    """A whole command: its seconds, and the accuracy on the test part."""

    secs: float
    accuracy: float


def measure(settings: Settings) -> list[Row]:
    """Measure psflow and each installed library, in turn.

    Raises UsageError if the data set is not installed.
    """
    if not Path(fashion.FOLDER).is_dir():
        raise UsageError((f"{fashion.FOLDER} is missing: install Debian's package dataset-fashion-mnist",))
    wanted = [name for name in PEERS if any(settings.wants(f"{name}/{figure}") for figure in FIGURES)]
    names = [name for name in wanted if find_spec(name) is not None]
    if names != wanted:
        missing = sorted({*wanted} - {*names})
        logger.warning("not installed here, so there are no rows of them: %s", ", ".join(missing))
    names = names[:1] if settings.quick else names
    if not names:
        return []
    trained: dict[str, list[Training]] = {name: [] for name in ("psflow", *names)}
    with Scene() as scene:
        scene.local()  # makes the databases
        for number in range(1 if settings.quick else settings.pairs):
            for name in sorted(trained, reverse=bool(number % 2)):
                trained[name].append(_psflow(scene, number) if name == "psflow" else _peer(scene, name))
            logger.info("round %d: %s", number + 1, {name: runs[-1] for name, runs in trained.items()})
    rows = [row for name in names for row in _rows(name, trained["psflow"], trained[name])]
    return [row for row in rows if settings.wants(row.case)]


def _rows(name: str, ours: Sequence[Training], theirs: Sequence[Training]) -> list[Row]:
    """Return the rows of one library; the lines of its program include those that read the data."""
    program = [ROOT / "benchmarks" / "peers" / f"{file}.py" for file in ("fashion", f"fashion_{name}")]
    lines = Samples([_num_lines([CONF])]), Samples([_num_lines(program)])
    (our_secs, our_accuracy), (secs, accuracy) = (map(Samples, zip(*runs, strict=True)) for runs in (ours, theirs))
    return [
        Row.of(f"{name}/wall", "s", our_secs, peer=secs, less_is_better=True),
        Row.of(f"{name}/accuracy", "share", our_accuracy, peer=accuracy),
        Row.of(f"{name}/lines", "lines", lines[0], peer=lines[1], less_is_better=True),
    ]


def _psflow(scene: Scene, number: int) -> Training:
    secs, answer = scene.train(CONF, *FIVE_EPOCHS, f"model_dir={scene.directory}/fashion-{number}")
    assert answer["best"]["step"] == 3000, "the only evaluation after the first step"
    return Training(secs, round(answer["best"]["metrics"]["accuracy"], DIGITS))


def _peer(scene: Scene, name: str) -> Training:
    secs, said = scene.run([sys.executable, "-m", f"benchmarks.peers.fashion_{name}"])
    return Training(secs, round(float(said), DIGITS))


def _num_lines(files: Sequence[Path]) -> int:
    """Return the number of lines that are neither empty nor comments."""
    lines = [line.strip() for file in files for line in file.read_text().splitlines()]
    return sum(bool(line) and not line.startswith("#") for line in lines)
