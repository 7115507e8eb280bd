"""The backends: every way to have a cluster, each a module of this package that has the name of its
backend.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from trainyard.backends.contract import Backend, OthersCluster


def named(backend: str) -> Backend:
    """Return a backend, imported when it is asked for: who uses one does not pay for Docker's
    client.

    Raises LookupError if there is none of this name.
    """
    match backend:
        case "local":
            from trainyard.backends import local

            return local.BACKEND
        case "compose":
            from trainyard.backends import compose

            return compose.BACKEND
        case "kuberay":
            from trainyard.backends import kuberay

            return kuberay.BACKEND
        case "microk8s":
            from trainyard.backends import microk8s

            return microk8s.BACKEND
        case "ec2":
            from trainyard.backends import ec2

            return ec2.BACKEND
        case "existing":
            from trainyard.backends import existing

            return existing.BACKEND

    raise LookupError(f"no backend is called {backend!r}")


def imported(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
    """Return the cluster file that a document of another tool describes, and notes about the rest
    of it.

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
    """Return the clusters that somebody else made on the Kubernetes of a context.

    Raises PrerequisiteError without that context, and OutsideError where its Kubernetes does not
    tell them.
    """
    module = import_module(f"{__name__}.kuberay.others")
    found: list[OthersCluster] = module.discover(environ, context=context, namespace=namespace)
    return found


def file_for_address(name: str, address: str) -> str:
    """Return a cluster file for a cluster that somebody else runs; without a token only this
    machine may reach it.
    """
    host = urlsplit(address).hostname or ""
    is_loopback = host == "localhost" or host.startswith("127.")
    head = f"name: {name}\nbackend: existing\n" + ("auth: none\n" if is_loopback else "")
    token = "" if is_loopback else "  token_env: RAY_AUTH_TOKEN\n"
    return f"{head}existing:\n  address: {json.dumps(address)}\n{token}"
