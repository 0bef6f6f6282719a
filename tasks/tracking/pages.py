"""Addresses of pages in the MLflow UI: there are some where the store is a server."""

from __future__ import annotations

from urllib.parse import quote

from psflow.ps_runtime.redaction import without_secrets

__all__ = ["VIEW", "checkpoint_page", "link", "run_page", "version_page"]

VIEW = "workflowType=machine_learning"
"""Opens a page in the view of runs and curves; a browser that has chosen no view shows that of GenAI."""


def run_page(uri: str, experiment_id: str, run_id: str) -> str | None:
    """Return the address of a run's page; None if `uri` is a store without a server.

    Examples
    --------
    >>> run_page("http://bob:secret@host:5000/", "3", "f00")
    'http://host:5000/#/experiments/3/runs/f00?workflowType=machine_learning'
    """
    return _page(uri, f"experiments/{experiment_id}/runs/{run_id}")


def checkpoint_page(uri: str, experiment_id: str, model_id: str) -> str | None:
    """Return the address of the page of a logged model, such as a checkpoint."""
    return _page(uri, f"experiments/{experiment_id}/models/{model_id}")


def version_page(uri: str, name: str, version: str) -> str | None:
    """Return the address of the page of a version of a registered model."""
    return _page(uri, f"models/{quote(name, safe='')}/versions/{version}")


def link(text: str, page: str | None) -> str:
    """Return `text` as markdown that leads to `page`, where there is one.

    Examples
    --------
    >>> link("f00", "http://host/f00"), link("f00", None)
    ('[f00](http://host/f00)', '`f00`')
    """
    return f"`{text}`" if page is None else f"[{text}]({page})"


def _page(uri: str, place: str) -> str | None:
    if not uri.startswith(("http://", "https://")):
        return None
    return f"{without_secrets(uri).rstrip('/')}/#/{place}?{VIEW}"
