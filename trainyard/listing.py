"""Every cluster that this machine knows of: by a file here, by what we wrote down, or by its label on Kubernetes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard import lifecycle, paths
from trainyard.errors import RequestError, TrainyardError
from trainyard.lifecycle import Cluster

if TYPE_CHECKING:
    from trainyard.backends.kuberay.listing import Answer, Found
    from trainyard.backends.kuberay.site import Site


@dataclass(frozen=True)
class ListedCluster:
    """A cluster that exists, or a file for one that could. `place` is its namespace on Kubernetes."""

    name: str
    backend: str
    state: str
    file: str
    address: str | None = None
    problem: str | None = None
    place: str | None = None


@dataclass(frozen=True)
class Listing:
    """The clusters, and what could not be looked into."""

    clusters: tuple[ListedCluster, ...]
    remarks: tuple[str, ...] = ()


def list_clusters(environ: Mapping[str, str], *, directory: Path) -> Listing:
    """Return every cluster with a file here, and every one that was made from a file elsewhere.

    A Kubernetes that does not answer costs seconds, and is a remark.
    """
    files = {name: _file(name, environ, directory) for name in paths.cluster_names(directory)}
    kubernetes = _Kubernetes([one for one in files.values() if isinstance(one, Cluster)], environ)
    found: dict[str, ListedCluster] = {}
    for one in files.values():
        listed = one if isinstance(one, ListedCluster) else _listed(one, kubernetes)
        found[listed.name] = listed
    # Of a file with a mistake in it, nobody knows which place it means.
    broken = {name for name, one in files.items() if isinstance(one, ListedCluster)}
    elsewhere = kubernetes.without_file(broken)
    known = {*found, *(one.name for one in elsewhere)}
    for record in sorted((paths.state_home(environ) / "clusters").glob("*/cluster.json")):
        name = record.parent.name
        if name not in known:
            found[name] = _recorded(record.parent)
    return Listing((*found.values(), *elsewhere), tuple(kubernetes.remarks()))


class _Kubernetes:
    """What the Kubernetes clusters say that files, or the kubeconfig, lead to; nobody is asked without either."""

    def __init__(self, clusters: Sequence[Cluster], environ: Mapping[str, str]) -> None:
        self._sites: dict[str, Site | TrainyardError] = {}
        self._answers: dict[tuple[str, str], Answer] = {}
        ours = [one for one in clusters if one.spec.backend == "kuberay"]
        if not ours and not _has_kubeconfig(environ):
            return
        from trainyard.backends.kuberay import listing

        self._sites = {str(one.loaded.source): listing.place(one.spec, one.tools) for one in ours}
        there = [one for one in self._sites.values() if not isinstance(one, TrainyardError)]
        self._answers = listing.look(there, environ)

    def problem(self, cluster: Cluster) -> str | None:
        """Return why a file's Kubernetes cannot be asked, None if it can."""
        where = self._sites.get(str(cluster.loaded.source))
        if where is None:
            return None
        if isinstance(where, TrainyardError):
            return _in_a_line(where)
        answer = self._answers[where.kube.context, where.kube.server]
        return f"Kubernetes of context {answer.context}: {answer.problem}" if answer.problem else None

    def place(self, cluster: Cluster) -> str | None:
        """Return the namespace of a file's cluster."""
        where = self._sites.get(str(cluster.loaded.source))
        if where is None or isinstance(where, TrainyardError):
            return None
        return _place(where.namespace, where.kube.context)

    def without_file(self, broken: Collection[str] = ()) -> list[ListedCluster]:
        """Return the clusters that no file here is about, or only one of those that cannot be read."""
        sites = [one for one in self._sites.values() if not isinstance(one, TrainyardError)]
        known = {(one.kube.server, one.namespace, one.name) for one in sites}
        every = [one for answer in self._answers.values() for one in answer.found]
        # Several contexts may lead to one server.
        others = {(one.server, one.namespace, one.name): one for one in reversed(every)}
        return [_of_others(one, broken) for where, one in sorted(others.items()) if where not in known]

    def remarks(self) -> list[str]:
        """Return which Kubernetes did not answer, or only for some namespaces."""
        silent = [
            f"Kubernetes of context {one.context} ({one.server}): {one.problem}"
            for one in self._answers.values()
            if one.problem
        ]
        return [*silent, *(one.remark for one in self._answers.values() if one.remark)]


def _file(name: str, environ: Mapping[str, str], directory: Path) -> Cluster | ListedCluster:
    try:
        return lifecycle.find(name, environ, directory=directory)
    except TrainyardError as error:
        file = str(paths.cluster_file(name, environ, directory=directory))
        return ListedCluster(name, "?", "unknown", file, problem=_in_a_line(error))


def _listed(cluster: Cluster, kubernetes: _Kubernetes) -> ListedCluster:
    name, backend, file = cluster.spec.name, cluster.spec.backend, str(cluster.loaded.source)
    place = kubernetes.place(cluster)
    problem = kubernetes.problem(cluster)
    if problem:
        return ListedCluster(name, backend, "unknown", file, problem=problem, place=place)
    try:
        now = lifecycle.status(cluster)
    except TrainyardError as error:
        return ListedCluster(name, backend, "unknown", file, problem=_in_a_line(error), place=place)
    # A port-forward ends with this command.
    address = now.address if now.tunnel is None or backend != "kuberay" else None
    return ListedCluster(now.name, now.backend, now.state, file, address, place=place)


def _recorded(state: Path) -> ListedCluster:
    name, backend = state.name, lifecycle.recorded_backend(state) or "?"
    file = lifecycle.made_from(state)
    removal = f"invoke cluster.down --set name={name} --backend {backend}"
    where = file or "a file that is not here, or is another's now"
    problem = f"made from {where}; `{removal}` removes it"
    return ListedCluster(name, backend, "recorded", str(file or ""), problem=problem)


def _of_others(one: Found, broken: Collection[str] = ()) -> ListedCluster:
    context = f" --set kuberay.context={one.context}" if one.context else ""
    removal = (
        f"invoke cluster.down --set name={one.name} --backend kuberay --set kuberay.namespace={one.namespace}{context}"
    )
    state = "up" if one.is_ready else "partial"
    problem = f"made from a file that is not here; `{removal}` removes it"
    if one.name in broken:
        problem = "there, and perhaps made from the file of this name here, which cannot be read: mend that first"
    return ListedCluster(one.name, "kuberay", state, "", problem=problem, place=_place(one.namespace, one.context))


def _place(namespace: str, context: str) -> str:
    return f"namespace {namespace}" + (f" of context {context}" if context else "")


def _in_a_line(error: TrainyardError) -> str:
    if isinstance(error, RequestError) and error.problems:
        return "; ".join([error.what, *(f"{one.where}: {one.message}" for one in error.problems)])
    return f"{error.what}: {error.where}" if error.where else error.what


def _has_kubeconfig(environ: Mapping[str, str]) -> bool:
    home = Path(environ.get("HOME") or Path.home())
    return bool(environ.get("KUBECONFIG")) or (home / ".kube" / "config").is_file()
