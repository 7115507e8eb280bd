"""Where a cluster lives on Kubernetes: the API server, the namespace, and what is written down about them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trainyard.backends import record as records
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import naming
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.kube import config
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import RAY_CLUSTER, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection

# Keys of the section that say where a cluster is; given on the command line, they are meant for this very command.
_KEYS = ("namespace", "context", "kubeconfig")


@dataclass(frozen=True)
class Location:
    """A namespace of one Kubernetes, and the name of the cluster that lives there, or is to.

    `section` is what the caller says about kubeconfig, pods and operator: of a cluster file's `kuberay`, or its own.
    """

    kube: Kube
    namespace: str
    name: str
    section: KuberaySection = field(default_factory=KuberaySection)

    def __str__(self) -> str:
        return _described(self.namespace, self.kube.context)


@dataclass(frozen=True)
class Record:
    """What is written down, so that a cluster is found although its file or the kubeconfig's context changed.

    `kubeconfig` is written as $KUBECONFIG is; None inside a pod, where the service account is used.
    """

    name: str
    context: str
    kubeconfig: str | None
    namespace: str
    server: str

    def __str__(self) -> str:
        return f"{_described(self.namespace, self.context)} ({self.server})"


def find(spec: ClusterSpec, tools: Tools, section: KuberaySection) -> Location:
    """Return where the cluster is, or is to be: what is written down counts, whatever the file says by now.

    Raises PrerequisiteError if the recorded context leads to another server by now, RequestError if another location
    was given on the command line: whoever types it means that one.
    """
    record = read(tools)
    if record is None:
        return of_section(spec, tools, section)
    if _typed(tools):
        refuse_other(tools, of_section(spec, tools, section))
    environ = {**tools.environ, "KUBECONFIG": record.kubeconfig} if record.kubeconfig else tools.environ
    kube = config.connect(environ, kubeconfig=None, context=record.context or None, relative_to=None)
    if kube.server != record.server:
        raise PrerequisiteError(
            f"cluster {record.name} is on another Kubernetes than the one that {kube.place} leads to now",
            where=f"it was made on {record.server}; now it is {kube.server}",
            hint="Give the kubeconfig of that one (KUBECONFIG=...). If that Kubernetes is gone for good, or only got "
            f"another address (then what was written down is made anew): rm -r {tools.state}",
        )
    return Location(kube, record.namespace, spec.name, section)


def of_section(spec: ClusterSpec, tools: Tools, section: KuberaySection) -> Location:
    """Return where the section wants the cluster to be, whatever is written down. Raises PrerequisiteError."""
    kube = config.connect(
        tools.environ, kubeconfig=section.kubeconfig, context=section.context, relative_to=tools.directory
    )
    return Location(kube, section.namespace, spec.name, section)


def refuse_other(tools: Tools, location: Location) -> None:
    """Raise RequestError if the cluster was made in another namespace, or on another Kubernetes, than this one."""
    record = read(tools)
    if record is None or (record.namespace, record.server) == (location.namespace, location.kube.server):
        return
    typed = _typed(tools)
    leave_out = f"To mean that one, leave out {' and '.join(f'--set {key}' for key in typed)}. " if typed else ""
    raise RequestError(
        f"cluster {record.name} is in {record}; now {location} ({location.kube.server}) is asked for",
        where=str(tools.source) if tools.source else None,
        hint=f"{leave_out}For a second cluster, give it another name: a name is one cluster on this machine. "
        "To move this one, remove it there first: invoke cluster.down. If that Kubernetes is gone for good, or only "
        f"got another address: rm -r {tools.state}",
    )


def moved(tools: Tools, section: KuberaySection) -> str:
    """Say which location the file names by now, where that is not the recorded one; "" if it is."""
    record = read(tools)
    if record is None:
        return ""
    pairs = (("namespace", section.namespace, record.namespace), ("context", section.context, record.context))
    other = [f"{key} {desired}" for key, desired, recorded in pairs if desired and desired != recorded]
    where = _described(record.namespace, record.context)
    return f"this is the cluster in {where}, where it was made; its file now says {', '.join(other)}" if other else ""


def read(tools: Tools) -> Record | None:
    found = records.read_json(tools.state / "cluster.json")
    if not found or found.get("backend") != tools.backend:
        return None
    return Record(**{key: found[key] for key in ("name", "context", "kubeconfig", "namespace", "server")})


def record_of(tools: Tools, location: Location) -> Record:
    kube = location.kube
    return Record(location.name, kube.context, kubeconfig(tools, location.section), location.namespace, kube.server)


def write(tools: Tools, location: Location) -> None:
    tools.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    tools.state.chmod(0o700)
    document = {"backend": tools.backend, **asdict(record_of(tools, location))}
    records.write_private(tools.state / "cluster.json", json.dumps(document, indent=2))


def ray_cluster(location: Location) -> Object | None:
    """Return the cluster's RayCluster, None if there is none. Raises RequestError if it is somebody else's."""
    found = location.kube.get(RAY_CLUSTER, location.name, namespace=location.namespace)
    if found is not None:
        refuse_foreign(found, location)
    return found


def refuse_foreign(ray_cluster: Object, location: Location) -> None:
    """Raise RequestError if a RayCluster of this name does not carry our label: it is not touched."""
    if is_ours(ray_cluster, location.name):
        return
    service = f"{location.namespace}/{location.name}-head-svc"
    raise RequestError(
        f"a RayCluster called {location.name} is in namespace {location.namespace}, and Trainyard did not make it",
        where=location.kube.place,
        hint="Give yours another name (`name:` in the cluster file); "
        f"or use that one: `backend: existing` with `existing: {{service: {service}}}`.",
    )


def is_ours(found: Object, name: str) -> bool:
    return (found["metadata"].get("labels") or {}).get(naming.CLUSTER) == name


def owners(found: Object) -> list[tuple[str, str]]:
    """Return name and uid of each RayCluster that an object belongs to."""
    every = found["metadata"].get("ownerReferences") or ()
    return [(owner["name"], str(owner["uid"])) for owner in every if owner["kind"] == RAY_CLUSTER.name]


def kubeconfig(tools: Tools, section: KuberaySection) -> str | None:
    """Return the kubeconfig files in use, absolute; None if there are none."""
    if section.kubeconfig:
        return _absolute(section.kubeconfig, tools)
    named = tools.environ.get("KUBECONFIG")
    if named:
        return os.pathsep.join(_absolute(path, tools) for path in named.split(os.pathsep) if path)
    default = _home(tools.environ) / ".kube" / "config"
    return str(default) if default.exists() else None


def _typed(tools: Tools) -> list[str]:
    keys = {f"{tools.backend}.{key}" for key in _KEYS}
    return [override for override in tools.overrides if override.partition("=")[0].strip() in keys]


def _described(namespace: str, context: str) -> str:
    return f"namespace {namespace}" + (f" of context {context}" if context else "")


def _absolute(path: str, tools: Tools) -> str:
    home, _, rest = path.partition("/")
    return str((_home(tools.environ) / rest if home == "~" else tools.directory / path).absolute())


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or "~").expanduser()
