"""Find the Kubernetes cluster that is meant: a kubeconfig file, a context of it, or the cluster that we run in."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from trainyard.errors import PrerequisiteError
from trainyard.seams.kube import kubeconfig as files
from trainyard.seams.kube.access import Access
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.login import MOUNTED

# One login for each context and process: a program that logs in may take seconds, or ask a person.
_connected: dict[Access, Kube] = {}
_lock = threading.Lock()


def connect(
    environ: Mapping[str, str],
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    relative_to: Path | None = None,
) -> Kube:
    """Return the cluster of a context, the same one for the same question; nothing is asked of it yet.

    Without `kubeconfig` it is $KUBECONFIG, else ~/.kube/config, else, without `context`, the cluster that this process
    is a pod of. Raises PrerequisiteError if there is none of them, or no such context.
    """
    access = find(environ, kubeconfig=kubeconfig, context=context, relative_to=relative_to)
    with _lock:
        return _connected.setdefault(access, Kube(access, environ))


def find(
    environ: Mapping[str, str],
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    relative_to: Path | None = None,
) -> Access:
    """Return the way to that cluster."""
    looked = _files(environ, kubeconfig, relative_to)
    there = tuple(file for file in looked if file.is_file())
    if there:
        return files.access(files.load(there), context, environ)
    inside = _inside(environ) if kubeconfig is None and context is None else None
    if inside:
        return inside
    raise PrerequisiteError(
        "there is no kubeconfig",
        where=", ".join(map(str, looked)),
        hint="Set KUBECONFIG, or name the file in the cluster file (kubeconfig: ...).",
    )


def _files(environ: Mapping[str, str], named: str | None, relative_to: Path | None) -> tuple[Path, ...]:
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    if named:
        path = home / named[2:] if named.startswith("~/") else Path(named)
        return ((relative_to or Path.cwd()) / path,)
    listed = [Path(one).absolute() for one in environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    return tuple(listed) or (home / ".kube" / "config",)


def _inside(environ: Mapping[str, str]) -> Access | None:
    """Return the cluster that this process is a pod of."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (MOUNTED / "token").is_file():
        return None
    namespace = MOUNTED / "namespace"
    return Access(
        context="",
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        user="the pod's service account",
    )
