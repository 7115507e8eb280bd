"""The Kubernetes cluster of a command: a context of kubeconfig files.

If several files set a value, the first one wins
(kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig).
The `kubernetes` library reads the files again to log in, but would take the
last file's current context. So this module chooses the context and passes its
name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainyard.errors import PrerequisiteError
from trainyard.wording import did_you_mean


@dataclass(frozen=True)
class Access:
    """A context: its server and user, and the kubeconfigs that name them."""

    context: str
    server: str
    user: str
    files: tuple[Path, ...] = ()

    def __str__(self) -> str:
        return f"{self.server} (context {self.context})"

    @property
    def source(self) -> str:
        return ", ".join(map(str, self.files))


def access(
    environ: Mapping[str, str],
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    relative_to: Path | None = None,
) -> Access:
    """Return a context, by default the current one.

    Without `kubeconfig`, the files of $KUBECONFIG are read, else
    ~/.kube/config. Raises PrerequisiteError without such a file or context, or
    if the context cannot be used.
    """
    listed = _files(environ, kubeconfig, relative_to)
    files = tuple(file for file in listed if file.is_file())
    if not files:
        raise PrerequisiteError(
            "there is no kubeconfig",
            where=", ".join(map(str, listed)),
            hint="Set KUBECONFIG, or name the file in the cluster file (kubeconfig: ...).",
        )
    try:
        return _access(files, context)
    except (AttributeError, KeyError, TypeError) as error:
        raise _broken(files, "it is not a kubeconfig") from error


def _files(
    environ: Mapping[str, str], named: str | None, relative_to: Path | None
) -> tuple[Path, ...]:
    home = Path(environ.get("HOME") or Path.home())
    if named:
        if named.startswith("~/"):
            path = home / named[2:]
        else:
            path = Path(named)
        return ((relative_to or Path.cwd()) / path,)

    names = filter(None, environ.get("KUBECONFIG", "").split(os.pathsep))
    listed = tuple(Path(name).absolute() for name in names)
    return listed or (home / ".kube" / "config",)


def _access(files: tuple[Path, ...], context: str | None) -> Access:
    documents = [_parse(file) for file in files]
    contexts = _named(documents, "context")
    clusters = _named(documents, "cluster")
    users = _named(documents, "user")
    name = context or _current(documents)
    if name not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        unknown = "the kubeconfig has no current context"
        if name:
            unknown = f"the kubeconfig has no context {name!r}{did_you_mean(name, contexts)}"
        raise PrerequisiteError(
            unknown,
            where=", ".join(map(str, files)),
            hint=f"Name one in the cluster file (context: ...); the kubeconfig has {known}.",
        )

    chosen = contexts[name]
    user = str(chosen.get("user") or "")
    # The library cannot impersonate: it would silently act with all rights of the user.
    if any(key.split("-")[0] == "as" for key in users.get(user, {})):
        raise PrerequisiteError(
            f"user {user} of the kubeconfig acts as another user (`as`), which Trainyard does not support",
            where=", ".join(map(str, files)),
            hint="Use a context whose user has these rights itself.",
        )

    cluster = clusters.get(str(chosen.get("cluster")), {})
    server = str(cluster.get("server") or "").rstrip("/")
    if not server:
        raise _broken(files, f"context {name} names no cluster that has a server")
    return Access(name, server, user, files)


def _current(documents: Sequence[Mapping[str, Any]]) -> str:
    for document in documents:
        if document.get("current-context"):
            return str(document["current-context"])
    return ""


def _named(documents: Sequence[Mapping[str, Any]], key: str) -> dict[str, Mapping[str, Any]]:
    """Return a kind's entries by name; the first file with a name wins."""
    entries: dict[str, Mapping[str, Any]] = {}
    for document in reversed(documents):
        for entry in document.get(f"{key}s") or ():
            entries[entry["name"]] = entry.get(key) or {}
    return entries


def _parse(file: Path) -> Mapping[str, Any]:
    try:
        return dict(yaml.safe_load(file.read_bytes()))
    except OSError as error:
        raise PrerequisiteError(
            f"the kubeconfig cannot be read: {error.strerror}", where=str(file)
        ) from error
    except (yaml.YAMLError, ValueError):
        # The error's text quotes the line, which may hold a key.
        raise _broken((file,), "it is not YAML, or it is empty") from None


def _broken(files: tuple[Path, ...], why: str) -> PrerequisiteError:
    hint = "`kubectl config view` shows its content."
    return PrerequisiteError(
        f"the kubeconfig cannot be used: {why}", where=", ".join(map(str, files)), hint=hint
    )
