"""Where a cluster lives on Kubernetes: the way to the API server, the namespace, and what we wrote down about it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import names
from trainyard.backends.kuberay import record as records
from trainyard.backends.kuberay.record import Record
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.seams.kube import config
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import POD, RAY_CLUSTER, Object
from trainyard.spec.cluster import ClusterSpec

# What a cluster file says of the place; given on the command line, it is meant for the command that is typed.
_PLACE = ("kuberay.namespace", "kuberay.context", "kuberay.kubeconfig")


@dataclass(frozen=True)
class Site:
    """A namespace that can be asked, and the name of the cluster that lives there, or is to. `flag` is as in Tools."""

    kube: Kube
    namespace: str
    name: str
    flag: str = ""


def find(spec: ClusterSpec, tools: Tools) -> Site:
    """Return where the cluster is, or is to be: what is written down counts, whatever the file says by now.

    Raises PrerequisiteError, also where the context leads to another Kubernetes by now; RequestError if another place
    was given on the command line: whoever types it means that one.
    """
    record = records.read(tools)
    if record is None:
        return asked(spec, tools)
    if _typed(tools):
        refuse_other_site(spec, tools, asked(spec, tools))
    return Site(_recorded(spec, tools, record), record.namespace, spec.name, tools.flag)


def asked(spec: ClusterSpec, tools: Tools) -> Site:
    """Return where the file wants the cluster to be, whatever is written down. Raises PrerequisiteError."""
    section = spec.kuberay
    kube = config.connect(
        tools.environ, kubeconfig=section.kubeconfig, context=section.context, relative_to=tools.directory
    )
    return Site(kube, section.namespace, spec.name, tools.flag)


def record_of(spec: ClusterSpec, tools: Tools, site: Site) -> Record:
    """Return what is to be written down about a cluster at this site."""
    kube = site.kube
    return Record(spec.name, kube.context, kubeconfig(spec, tools), site.namespace, kube.server, records.identity(kube))


def refuse_other_site(spec: ClusterSpec, tools: Tools, site: Site) -> None:
    """Raise RequestError if the cluster is in another namespace, or on another Kubernetes, than the file now asks for.

    The address of an API server may change, and a kubeconfig may be replaced by another one with the same names.
    """
    there, here = records.read(tools), record_of(spec, tools, site)
    if there is None:
        return
    if there.namespace == here.namespace and records.is_same(there, here.server, here.kubernetes):
        return
    if (there.namespace, there.context, there.server) == (here.namespace, here.context, here.server):
        raise records.other_kubernetes(there, site.kube, tools)
    typed = _typed(tools)
    flag = replace(tools.typed, overrides=tuple(one for one in tools.typed.overrides if one not in typed)).cluster
    leave_out = f"To mean that one, leave out {' and '.join(f'--set {one}' for one in typed)}. " if typed else ""
    raise RequestError(
        f"cluster {spec.name} is in {records.place(there)}; now {records.place(here)} is asked for",
        where=str(tools.source) if tools.source else None,
        hint=f"{leave_out}For a second cluster, give it another name: a name is one cluster on this machine. "
        f"To move this one, remove it there first: invoke cluster.down{flag}",
    )


def moved(spec: ClusterSpec, tools: Tools) -> str:
    """Say which place the file asks for by now, where that is not the one that is written down; "" if it is."""
    there = records.read(tools)
    if there is None:
        return ""
    section = spec.kuberay
    kubeconfig_then = there.kubeconfig if section.kubeconfig else None
    pairs = (
        ("namespace", section.namespace, there.namespace),
        ("context", section.context, there.context),
        ("kubeconfig", kubeconfig(spec, tools) if section.kubeconfig else None, kubeconfig_then),
    )
    other = [f"{word} {wants}" for word, wants, has in pairs if wants and wants != has]
    here = f"namespace {there.namespace}" + (f" of context {there.context}" if there.context else "")
    return f"this is the cluster in {here}, where it was made; its file now says {', '.join(other)}" if other else ""


def place(site: Site) -> str:
    """Return where a cluster is, as a person would say it."""
    return f"namespace {site.namespace}" + (f" of context {site.kube.context}" if site.kube.context else "")


def ray_cluster(site: Site) -> Object | None:
    """Return the cluster's RayCluster, None if there is none. Raises RequestError if it is somebody else's."""
    found = site.kube.get(RAY_CLUSTER, site.name, namespace=site.namespace)
    if found is not None:
        refuse_foreign(found, site)
    return found


def refuse_foreign(ray_cluster: Object, site: Site) -> None:
    """Raise RequestError if a RayCluster of this name does not carry our label: it is not touched."""
    if is_ours(ray_cluster, site.name):
        return
    raise RequestError(
        f"a RayCluster called {site.name} is in namespace {site.namespace}, and Trainyard did not make it",
        where=site.kube.place,
        hint="Give yours another name (`name:` in the cluster file); "
        f"or use that one: `backend: existing` with `existing: {{service: {site.namespace}/{site.name}-head-svc}}`.",
    )


def is_ours(found: Object, name: str) -> bool:
    """Say whether an object belongs to our cluster of this name."""
    return (found["metadata"].get("labels") or {}).get(names.CLUSTER) == name


def pods(site: Site) -> list[Object]:
    """Return the pods that KubeRay made for the cluster, the head first, then the oldest."""
    found = site.kube.list(POD, namespace=site.namespace, labels=names.of_ray_cluster(site.name))

    def order(pod: Object) -> tuple[bool, str, str]:
        metadata = pod["metadata"]
        is_worker = metadata["labels"].get(names.RAY_NODE_TYPE) != "head"
        return is_worker, metadata.get("creationTimestamp") or "", metadata["name"]

    return sorted(found, key=order)


def _typed(tools: Tools) -> list[str]:
    """Return what of the place was given on the command line, as it was typed."""
    return [one for one in tools.typed.overrides if one.partition("=")[0].strip() in _PLACE]


def _recorded(spec: ClusterSpec, tools: Tools, record: Record) -> Kube:
    environ = {**tools.environ, "KUBECONFIG": record.kubeconfig} if record.kubeconfig else tools.environ
    try:
        kube = config.connect(environ, kubeconfig=None, context=record.context or None, relative_to=None)
        if not records.is_same(record, kube.server, records.identity(kube)):
            raise records.other_kubernetes(record, kube, tools)
        return kube
    except PrerequisiteError:
        # The kubeconfig was moved, or its context has another name by now: what is asked for may lead there as well.
        other = asked(spec, tools).kube
        if not records.is_same(record, other.server, records.identity(other)):
            raise
        return other


def kubeconfig(spec: ClusterSpec, tools: Tools) -> str | None:
    """Return the kubeconfig files in use, absolute; None if there are none."""
    if spec.kuberay.kubeconfig:
        return _absolute(spec.kuberay.kubeconfig, tools)
    named = tools.environ.get("KUBECONFIG")
    if named:
        return os.pathsep.join(_absolute(one, tools) for one in named.split(os.pathsep) if one)
    default = _home(tools.environ) / ".kube" / "config"
    return str(default) if default.exists() else None


def _absolute(path: str, tools: Tools) -> str:
    home, _, rest = path.partition("/")
    return str((_home(tools.environ) / rest if home == "~" else tools.directory / path).absolute())


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or "~").expanduser()
