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
    """Return a backend. Raises LookupError if there is none of this name.

    Its module is imported only now: a cluster of another backend does not pay for Docker's client.
    """
    if name not in get_args(BackendName):
        raise LookupError(f"no backend is called {name!r}")

    backend: Backend = import_module(f"{__name__}.{name}").BACKEND
    return backend


def imported(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
    """Return the cluster file that another tool's document describes, and notes on the rest.

    None if it describes none. Raises RequestError where it describes one that no backend makes, and
    KeyError, TypeError, AttributeError or ValueError where it is not as that tool takes it.
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
    """Return other users' clusters on the Kubernetes of a context.

    Raises PrerequisiteError without that context, and OutsideError where its Kubernetes does not
    list them.
    """
    module = import_module(f"{__name__}.kuberay.others")
    found: list[OthersCluster] = module.discover(environ, context=context, namespace=namespace)
    return found


def file_for_address(name: str, address: str) -> str:
    """Return a cluster file for a cluster at an address; only loopback may do without a token."""
    host = urlsplit(address).hostname or ""
    is_loopback = host == "localhost" or host.startswith("127.")
    head = f"name: {name}\nbackend: existing\n"
    section = f"existing:\n  address: {json.dumps(address)}\n"
    if is_loopback:
        return f"{head}auth: none\n{section}"
    return f"{head}{section}  token_env: RAY_AUTH_TOKEN\n"
