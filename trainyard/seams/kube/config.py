"""Which Kubernetes cluster is meant: a context of kubeconfig files, or the cluster that we run in.

Several files merge into one, and the first that says something counts (kubernetes.io/docs/concepts/configuration/
organize-cluster-access-kubeconfig). The library reads them again to log in, but by the
last file's current context; what is wrong with which file is said here.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from trainyard import suggest
from trainyard.errors import PrerequisiteError

if TYPE_CHECKING:
    from trainyard.seams.kube.api import Kube

LISTS = ("clusters", "contexts", "users")
# The library does not act as somebody else, and would silently act as the user instead.
IMPERSONATION = ("as", "as-groups", "as-uid", "as-user-extra")
# Where Kubernetes puts what a pod needs to talk to it (kubernetes.io/docs/tasks/run-application/access-api-from-pod).
MOUNTED = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# One login for each context and process: a program that logs in may take seconds, or ask a person.
_connected: dict[Access, Kube] = {}
_lock = threading.Lock()

# Entries of kubeconfigs by list and name: what each says, and the file that it stands in.
Entries = Mapping[str, Mapping[str, tuple[Mapping[str, Any], Path]]]


@dataclass(frozen=True)
class Access:
    """A context: its server, namespace and user. No files and no context: the cluster that we are a pod of.

    `plugin` is the program that logs in, if the user has one; `proxy` the one that the kubeconfig names.
    """

    context: str
    server: str
    namespace: str
    user: str
    files: tuple[Path, ...] = ()
    plugin: str | None = None
    proxy: str | None = None

    def __str__(self) -> str:
        return f"{self.server} (context {self.context})" if self.context else self.server

    @property
    def place(self) -> str:
        """Return what messages call it: a pod of it knows no context."""
        return f"context {self.context}" if self.context else self.server

    @property
    def source(self) -> str:
        return ", ".join(map(str, self.files)) or "the service account of this pod"


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
    from trainyard.seams.kube.api import Kube

    access = find(environ, kubeconfig, context, relative_to)
    with _lock:
        return _connected.setdefault(access, Kube(access, environ))


def find(
    environ: Mapping[str, str],
    kubeconfig: str | None = None,
    context: str | None = None,
    relative_to: Path | None = None,
) -> Access:
    """Return how to reach that cluster."""
    looked = _files(environ, kubeconfig, relative_to)
    files = tuple(file for file in looked if file.is_file())
    if files:
        return _access(files, context, environ)
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
    listed = [Path(file).absolute() for file in environ.get("KUBECONFIG", "").split(os.pathsep) if file]
    return tuple(listed) or (home / ".kube" / "config",)


def _inside(environ: Mapping[str, str]) -> Access | None:
    """Return the cluster that this process is a pod of."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (MOUNTED / "token").is_file():
        return None
    file = MOUNTED / "namespace"
    namespace = file.read_text().strip() if file.is_file() else "default"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access("", server, namespace, "the pod's service account")


def _access(files: tuple[Path, ...], context: str | None, environ: Mapping[str, str]) -> Access:
    entries, current = _merged(files)
    names = entries["contexts"]
    where, listed = ", ".join(map(str, files)), ", ".join(sorted(names)) or "none"
    name = context or current
    if not name:
        hint = f"Name one in the cluster file (context: ...); it has {listed}."
        raise PrerequisiteError("the kubeconfig has no current context", where=where, hint=hint)
    if name not in names:
        unknown = f"the kubeconfig has no context {name!r}{suggest.did_you_mean(name, names)}"
        raise PrerequisiteError(unknown, where=where, hint=f"It has {listed}.")
    chosen = names[name][0]
    cluster, file = _part(entries, name, "cluster")
    server, user = str(cluster.get("server") or ""), str(chosen.get("user") or "")
    if not server:
        raise _broken(file, f"cluster {chosen.get('cluster')} has no server")
    return Access(
        context=name,
        server=server.rstrip("/"),
        namespace=str(chosen.get("namespace") or "default"),
        user=user,
        files=files,
        plugin=_plugin(*_part(entries, name, "user"), user, environ) if user else None,
        proxy=str(cluster.get("proxy-url") or "") or None,
    )


def _merged(files: Sequence[Path]) -> tuple[Entries, str]:
    """Return what the files say together, and the current context."""
    entries: dict[str, dict[str, tuple[Mapping[str, Any], Path]]] = {key: {} for key in LISTS}
    current = ""
    for file in files:
        content = _parse(file)
        current = current or str(content.get("current-context") or "")
        for key in LISTS:
            listed = content.get(key)
            for entry in listed if isinstance(listed, list) else []:
                if isinstance(entry, dict) and entry.get("name"):
                    part = entry.get(key[:-1])
                    entries[key].setdefault(str(entry["name"]), (part if isinstance(part, dict) else {}, file))
    return entries, current


def _part(entries: Entries, context: str, word: str) -> tuple[Mapping[str, Any], Path]:
    chosen, file = entries["contexts"][context]
    name = str(chosen.get(word) or "")
    if name not in entries[f"{word}s"]:
        raise _broken(file, f"context {context} names a {word} {name!r} that is not there")
    return entries[f"{word}s"][name]


def _plugin(user: Mapping[str, Any], file: Path, name: str, environ: Mapping[str, str]) -> str | None:
    """Return the program that logs in."""
    if any(user.get(word) for word in IMPERSONATION):
        raise PrerequisiteError(
            f"user {name} of the kubeconfig acts as somebody else (`as`), which Trainyard cannot",
            where=str(file),
            hint="Use a context whose user has these rights itself.",
        )
    login = user.get("exec")
    command = str(login.get("command") or "") if isinstance(login, dict) else ""
    path = str(file.parent / command) if "/" in command else command
    if command and shutil.which(path, path=environ.get("PATH")) is None:
        hint = str(user["exec"].get("installHint") or "").strip() or f"Install {command}."
        missing = f"{command} is not installed, and the kubeconfig logs in with it"
        raise PrerequisiteError(missing, where=f"user {name} of {file}", hint=hint.splitlines()[0])
    return command or None


def _parse(file: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise PrerequisiteError(f"the kubeconfig cannot be read: {error.strerror}", where=str(file)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # The error's own text quotes the line, and a key may stand there.
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        raise _broken(file, "it is not YAML" + (f" (line {line + 1})" if line is not None else "")) from None
    if not isinstance(content, dict):
        raise _broken(file, "it is empty" if content is None else "it is not a kubeconfig")
    return content


def _broken(file: Path, why: str) -> PrerequisiteError:
    hint = "`kubectl config view` shows what it says."
    return PrerequisiteError(f"the kubeconfig cannot be used: {why}", where=str(file), hint=hint)
