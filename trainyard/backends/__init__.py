"""The backends: each way to have a cluster is a module of this package with its name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any, get_args
from urllib.parse import urlsplit

from trainyard.backends.contract import Backend, OthersCluster
from trainyard.spec.cluster import Backend as BackendName


def named(name: str) -> Backend:
    """Return the backend of this name, or raise LookupError.

    The backend's module is imported only here: other backends do not wait for Docker's client.
    """
    if name not in get_args(BackendName):
        raise LookupError(f"no backend is called {name!r}")

    backend: Backend = import_module(f"{__name__}.{name}").BACKEND
    return backend


def imported(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
    """Return the cluster file for another tool's document, and notes on keys without a place.

    Returns None if the document describes no cluster. Raises RequestError for a cluster that no
    backend can make, and KeyError, TypeError, AttributeError or ValueError for a document that the
    other tool itself would reject.
    """
    for backend in ("kuberay", "ec2"):
        module = import_module(f"{__name__}.{backend}.imported")
        if module.is_one(document):
            found: tuple[dict[str, Any], list[str]] = module.convert(document)
            return found
    return None


def others(
    environ: Mapping[str, str], *, context: str, namespace: str | None = None
) -> list[OthersCluster]:
    """Ask the Kubernetes of a context for RayClusters that Trainyard did not make.

    Raises PrerequisiteError if the context does not exist, and OutsideError if its Kubernetes
    refuses the list.
    """
    module = import_module(f"{__name__}.kuberay.others")
    found: list[OthersCluster] = module.discover(environ, context=context, namespace=namespace)
    return found


def file_for_address(name: str, address: str) -> str:
    """Return a cluster file's text for an existing cluster; without a token only on loopback."""
    host = urlsplit(address).hostname or ""
    is_loopback = host == "localhost" or host.startswith("127.")
    head = f"name: {name}\nbackend: existing\n"
    section = f"existing:\n  address: {json.dumps(address)}\n"
    if is_loopback:
        return f"{head}auth: none\n{section}"
    return f"{head}{section}  token_env: RAY_AUTH_TOKEN\n"
