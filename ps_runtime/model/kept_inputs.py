"""Cached scans of the inputs of a job, in its model_dir: the flow writes them, roles and later attempts read them."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.data.kept_scan import EarlierScan, FlowScan
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.redaction import shown_path

FOLDER = "inputs"


class KeptInputs:
    """The files in ``inputs/`` of a model_dir, one for each input of tabular files: ``train``, ``eval`` and so on.

    Notes
    -----
    Files are read only when an input turns out to be tabular files. A file is complete or absent.
    """

    def __init__(self, model_dir: str) -> None:
        self._files = FileStore(model_dir)

    def earlier(self, name: str) -> EarlierScan:
        """Return the scan of an input by an earlier attempt, if any."""
        return EarlierScan(lambda: self._read(name), self._shown(name))

    def of_flow(self, name: str) -> FlowScan:
        """Return the scan of an input that the flow wrote for its roles."""
        return FlowScan(lambda: self._read(name), self._shown(name))

    def write(self, inputs: Mapping[str, SplittableInput]) -> None:
        """Keep the scans of these inputs, and of no others."""
        kept = {_file(name): opened.scanned for name, opened in inputs.items() if isinstance(opened, RecordDataset)}
        for name in self._files.names(FOLDER):
            if f"{FOLDER}/{name}" not in kept:
                self._files.remove(f"{FOLDER}/{name}")
        for path, scanned in kept.items():
            self._files.put(path, scanned.to_bytes())

    def _read(self, name: str) -> bytes | None:
        try:
            return self._files.read(_file(name))
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InputError(
                (f"cannot read {self._shown(name)}: {reason}; correct its permissions, or remove it",)
            ) from None

    def _shown(self, name: str) -> str:
        return f"{shown_path(self._files.url)}/{_file(name)}"


def _file(name: str) -> str:
    return f"{FOLDER}/{quote(name, safe='')}"
