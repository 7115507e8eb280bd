"""The backends: one module for each value of `backend:` in a cluster file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any, get_args
from urllib.parse import urlsplit

from trainyard.backends.contract import Backend, OthersCluster
from trainyard.spec.cluster import Backend as BackendName


def named(name: str) -> Backend:
    """Import this backend alone, or raise LookupError.

    Docker's client, which other backends use, is slow to import.
    """
    if name not in get_args(BackendName):
        raise LookupError(f"no backend is called {name!r}")

    backend: Backend = import_module(f"{__name__}.{name}").BACKEND
    return backend


def imported(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
    """Convert another tool's document to a cluster file, with notes on changes.

    Returns None if the document describes no cluster. Raises RequestError if no
    backend can make the cluster. Raises KeyError, TypeError, AttributeError or
    ValueError if the other tool would reject the document, too.
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
    """List the RayClusters that Trainyard did not make.

    Raises PrerequisiteError for a missing context, OutsideError if Kubernetes
    refuses the list.
    """
    module = import_module(f"{__name__}.kuberay.others")
    found: list[OthersCluster] = module.discover(environ, context=context, namespace=namespace)
    return found


def file_for_address(name: str, address: str) -> str:
    """Return the text of a cluster file for an existing cluster.

    A loopback address gets `auth: none`. For any other, $RAY_AUTH_TOKEN has the
    token.
    """
    host = urlsplit(address).hostname or ""
    is_loopback = host == "localhost" or host.startswith("127.")
    head = f"name: {name}\nbackend: existing\n"
    section = f"existing:\n  address: {json.dumps(address)}\n"
    if is_loopback:
        return f"{head}auth: none\n{section}"
    return f"{head}{section}  token_env: RAY_AUTH_TOKEN\n"
