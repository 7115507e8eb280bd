"""Every cluster that this machine knows of: by a file here, by what we wrote down, or because a
backend finds it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from trainyard import backends, paths
from trainyard.backends.contract import Discovered, FoundCluster
from trainyard.backends.shared.record import made_from, recorded_backend
from trainyard.errors import OutsideError, TrainyardError, in_a_line
from trainyard.operations import clusters
from trainyard.operations.cluster import Cluster
from trainyard.spec.cluster import Backend as BackendName


@dataclass(frozen=True)
class ListedCluster:
    """A cluster that exists, or a file for one that could. `place` is where a backend says that it
    is.

    `details` are the parts of a problem that has several.
    """

    name: str
    backend: str
    state: str
    file: str
    address: str | None = None
    problem: str | None = None
    place: str | None = None
    details: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Return the problem as people read it: what it is, then a line a part."""
        what = str(self.problem).removesuffix("; ".join(["", *self.details]))
        return [f"{self.name}: {what}", *(f"  - {detail}" for detail in self.details)]


def list_clusters(
    environ: Mapping[str, str],
    *,
    directory: Path,
    region: str | None = None,
    context: str | None = None,
) -> tuple[list[ListedCluster], list[str]]:
    """Return every cluster with a file here, every one that was made from a file elsewhere, and
    what backends find.

    `region` is one to look into although nothing here names it, or "all"; `context` is a Kubernetes
    whose clusters somebody else made. What could not be looked into is returned as remarks; an
    outside system that does not answer costs seconds. Raises PrerequisiteError and OutsideError for
    a `context` that cannot be asked.
    """
    files = [_file(name, environ, directory) for name in paths.listed_clusters(directory)]
    clusters = [file for file in files if isinstance(file, Cluster)]
    # Of a file with a mistake in it, nobody knows which cluster it means.
    broken = {file.name for file in files if isinstance(file, ListedCluster)}
    records = sorted((paths.state_home(environ) / "clusters").glob("*/cluster.json"))
    names = {cluster.spec.name for cluster in clusters}
    recorded = [record.parent for record in records if record.parent.name not in names]
    unreadable = {state: problem for state in recorded if (problem := _unreadable(state))}
    states = [state for state in recorded if state not in unreadable]
    answers = _discover(clusters, states, environ, region)
    listed = (
        file if isinstance(file, ListedCluster) else _listed(file, answers[file.spec.backend])
        for file in files
    )
    found = {cluster.name: cluster for cluster in listed}
    others = []

    for backend, answer in answers.items():
        for other in answer.others:
            others.append(_other(backend, other, broken))

    known = {*found, *(cluster.name for cluster in others)}
    found |= {state.name: _recorded(state) for state in states if state.name not in known}
    remarks = [remark for answer in answers.values() for remark in answer.remarks]

    if context:
        others += _of_others(environ, context)

    return [*found.values(), *others], [*unreadable.values(), *remarks]


def to_remove(
    environ: Mapping[str, str], prefix: str, *, directory: Path
) -> tuple[list[Cluster], list[str]]:
    """Return the clusters whose names begin so, and which this machine made; and what is to be said
    of the others.

    Raises OutsideError where one cannot be asked.
    """
    listed, _ = list_clusters(environ, directory=directory)
    meant = [each for each in listed if each.name.startswith(prefix) and each.state != "absent"]
    theirs = [
        each
        for each in meant
        if each.backend in get_args(BackendName) and not _makes_nodes(each.backend)
    ]

    others = [f"{each.name} stays, which somebody else runs" for each in theirs]

    ours = [each for each in meant if each not in theirs]
    unknown = [line for each in ours if each.state == "unknown" for line in each.lines]
    if unknown:
        raise OutsideError(
            "not every cluster could be asked, and nothing was removed",
            where="; ".join(unknown),
            hint="Remove those that can be, one by one: trainyard cluster.list shows them.",
        )

    found = []
    for each in ours:
        if each.state == "recorded":
            named = (f"name={each.name}",)
            found.append(clusters.find(each.backend, environ, directory=directory, overrides=named))
        elif each.file:
            found.append(clusters.find(each.file, environ, directory=directory))
        else:
            others.append(f"{each.name} stays, which this machine did not make: {each.problem}")

    return found, others


def _makes_nodes(backend: str) -> bool:
    return backends.named(backend).traits.makes_nodes


def _of_others(environ: Mapping[str, str], context: str) -> list[ListedCluster]:
    return [
        ListedCluster(
            other.name,
            str(other.file["backend"]),
            "up" if other.is_up else "partial",
            "",
            problem="made by somebody else; a file for it: "
            f"trainyard cluster.import --context {shlex.quote(context)} --namespace "
            f"{other.namespace} {other.name}",
            place=f"namespace {other.namespace} of context {context}",
        )
        for other in backends.others(environ, context=context)
    ]


def _file(name: str, environ: Mapping[str, str], directory: Path) -> Cluster | ListedCluster:
    try:
        return clusters.find(name, environ, directory=directory)
    except TrainyardError as error:
        file = str(paths.cluster_file(name, environ, directory=directory))
        return ListedCluster(name, "?", "unknown", file, **_told(error))


def _unreadable(state: Path) -> str | None:
    try:
        backend = recorded_backend(state)
    except OutsideError as error:
        return in_a_line(error)
    if backend in get_args(BackendName):
        return None
    return f"{state} is of a backend that is not known here: {backend}"


def _discover(
    clusters: Sequence[Cluster],
    states: Sequence[Path],
    environ: Mapping[str, str],
    region: str | None,
) -> dict[str, Discovered]:
    """Ask the backends that a file or a record names, and with a region those that have some."""
    recorded = {state: recorded_backend(state) for state in states}
    found = {}
    regional = [
        name for name in get_args(BackendName) if region and backends.named(name).traits.has_regions
    ]
    for name in sorted(
        {
            *(cluster.spec.backend for cluster in clusters),
            *filter(None, recorded.values()),
            *regional,
        }
    ):
        ours = [
            (cluster.spec, cluster.tools) for cluster in clusters if cluster.spec.backend == name
        ]
        without_file = [state for state, backend in recorded.items() if backend == name]
        backend = backends.named(name)
        found[name] = backend.discover(ours, without_file, environ, region=region)

    return found


def _listed(cluster: Cluster, discovered: Discovered) -> ListedCluster:
    name, backend, file = cluster.spec.name, cluster.spec.backend, str(cluster.loaded.source)
    place = discovered.locations.get(name)
    if problem := discovered.problems.get(name):
        return ListedCluster(name, backend, "unknown", file, problem=problem, place=place)
    try:
        now = clusters.status(cluster)
    except TrainyardError as error:
        return ListedCluster(name, backend, "unknown", file, **_told(error), place=place)
    # A tunnel ends with this command.
    address = now.address if now.tunnel is None else None
    return ListedCluster(now.name, now.backend, now.state, file, address, place=place)


def _recorded(state: Path) -> ListedCluster:
    backend, file = recorded_backend(state) or "?", made_from(state)
    problem = _removal(state.name, backend, file or "a file that is not here, or is another's now")
    return ListedCluster(state.name, backend, "recorded", str(file or ""), problem=problem)


def _other(backend: str, cluster: FoundCluster, broken: Collection[str]) -> ListedCluster:
    problem = _removal(cluster.name, f"{backend} {cluster.flags}", "a file that is not here")
    if cluster.name in broken:
        problem = (
            "there, and perhaps made from the file of this name here, which cannot be "
            "read: mend that first"
        )
    state = "up" if cluster.is_up else "partial"
    return ListedCluster(cluster.name, backend, state, "", problem=problem, place=cluster.location)


def _removal(name: str, flags: str, file: Path | str) -> str:
    return (
        f"made from {file}; `trainyard cluster.down --set name={name} --backend {flags}` removes it"
    )


def _told(error: TrainyardError) -> dict[str, Any]:
    if error.problems:
        return {"problem": in_a_line(error), "details": tuple(map(str, error.problems))}
    return {"problem": in_a_line(error)}
