"""The clusters known here, from cluster files, records and backends."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from trainyard import backends, paths
from trainyard.backends.contract import Discovered, FoundCluster
from trainyard.backends.shared.record import made_from, recorded_backend
from trainyard.errors import OutsideError, TrainyardError, in_a_line
from trainyard.operations import clusters
from trainyard.operations.cluster import Cluster
from trainyard.spec.cluster import Backend as BackendName


@dataclass(frozen=True)
class ListedCluster:
    """A row of `cluster.list`: an existing cluster, or a file without one.

    `place` is the cluster's location in the backend's words, such as a region.
    If a `problem` has several parts, `details` lists them.
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
        """Return the name and the problem, then one line for each detail."""
        what = str(self.problem).removesuffix("; ".join(["", *self.details]))
        details = [f"  - {detail}" for detail in self.details]
        return [f"{self.name}: {what}", *details]


def list_clusters(
    environ: Mapping[str, str],
    *,
    directory: Path,
    region: str | None = None,
    context: str | None = None,
) -> tuple[list[ListedCluster], list[str]]:
    """Return the clusters of files and records, and those that backends find.

    `region` is a region to search in addition, or "all". With `context`,
    clusters that other tools made in this Kubernetes context are listed, too.
    Also returns remarks about what could not be searched. This asks outside
    systems, and waits seconds for one that does not answer. Raises
    PrerequisiteError and OutsideError for a `context` that cannot be asked.
    """
    files = [_file(name, environ, directory) for name in paths.listed_clusters(directory)]
    readable = [file for file in files if isinstance(file, Cluster)]
    # A file that cannot be read may be the file of any cluster found below.
    broken = {file.name for file in files if isinstance(file, ListedCluster)}

    recorded, remarks = _records(environ, without={cluster.spec.name for cluster in readable})
    answers = _discover(readable, recorded, environ, region)

    listed = {}
    for file in files:
        if isinstance(file, Cluster):
            row = _with_status(file, answers[file.spec.backend])
        else:
            row = file
        listed[row.name] = row

    others = []
    for backend, answer in answers.items():
        remarks += answer.remarks
        for other in answer.others:
            others.append(_other(backend, other, broken))

    known = {*listed, *(cluster.name for cluster in others)}
    for state, backend in recorded.items():
        if state.name not in known:
            listed[state.name] = _recorded(state, backend)

    if context:
        others += _of_others(environ, context)

    return [*listed.values(), *others], remarks


def _records(
    environ: Mapping[str, str], *, without: Collection[str]
) -> tuple[dict[Path, str], list[str]]:
    """Return backends by state directory, and a remark for each bad record.

    Names in `without` are left out, because their cluster files are known.
    """
    recorded = {}
    remarks = []
    for record in sorted((paths.state_home(environ) / "clusters").glob("*/cluster.json")):
        state = record.parent
        if state.name in without:
            continue
        try:
            backend = recorded_backend(state)
        except OutsideError as error:
            remarks.append(in_a_line(error))
            continue
        # Another command may have removed the record a moment ago.
        if backend is not None:
            recorded[state] = backend

    return recorded, remarks


def to_remove(
    environ: Mapping[str, str], prefix: str, *, directory: Path
) -> tuple[list[Cluster], list[str]]:
    """Return the clusters with this name `prefix` that this machine made.

    Also returns a remark for each matching cluster that is kept, with the
    reason. Raises OutsideError if a cluster cannot be asked.
    """
    listed, _ = list_clusters(environ, directory=directory)
    candidates = []
    remarks = []
    unknown: list[str] = []
    for cluster in listed:
        if not cluster.name.startswith(prefix) or cluster.state == "absent":
            continue
        is_known = cluster.backend in get_args(BackendName)
        if is_known and not backends.named(cluster.backend).traits.makes_nodes:
            remarks.append(f"{cluster.name} stays, since another administrator runs it")
            continue
        candidates.append(cluster)
        if cluster.state == "unknown":
            unknown += cluster.lines

    if unknown:
        raise OutsideError(
            "not every cluster could be asked, and nothing was removed",
            where="; ".join(unknown),
            hint="Remove the others one by one: trainyard cluster.list shows them.",
        )

    found = []
    for cluster in candidates:
        name = cluster.name
        if cluster.state == "recorded":
            overrides = (f"name={name}",)
            found.append(
                clusters.find(cluster.backend, environ, directory=directory, overrides=overrides)
            )
        elif cluster.file:
            found.append(clusters.find(cluster.file, environ, directory=directory))
        else:
            remarks.append(f"{name} stays, since this machine did not make it: {cluster.problem}")

    return found, remarks


def _of_others(environ: Mapping[str, str], context: str) -> list[ListedCluster]:
    rows = []
    for other in backends.others(environ, context=context):
        problem = (
            "made by another tool; a file for it: "
            f"trainyard cluster.import --context {shlex.quote(context)} --namespace "
            f"{other.namespace} {other.name}"
        )
        row = ListedCluster(
            other.name,
            str(other.file["backend"]),
            _state(is_up=other.is_up),
            "",
            problem=problem,
            place=f"namespace {other.namespace} of context {context}",
        )
        rows.append(row)

    return rows


def _state(*, is_up: bool) -> str:
    return "up" if is_up else "partial"


def _file(name: str, environ: Mapping[str, str], directory: Path) -> Cluster | ListedCluster:
    try:
        return clusters.find(name, environ, directory=directory)
    except TrainyardError as error:
        file = str(paths.cluster_file(name, environ, directory=directory))
        return _unknown(name, "?", file, error)


def _discover(
    clusters: Sequence[Cluster],
    recorded: Mapping[Path, str],
    environ: Mapping[str, str],
    region: str | None,
) -> dict[str, Discovered]:
    """Find the clusters of each backend that a cluster file or a record names.

    If `region` is given, backends with regions are asked, too.
    """
    names = {cluster.spec.backend for cluster in clusters} | set(recorded.values())
    if region:
        for name in get_args(BackendName):
            if backends.named(name).traits.has_regions:
                names.add(name)

    found = {}
    for name in sorted(names):
        own_clusters = [cluster for cluster in clusters if cluster.spec.backend == name]
        with_file = [(cluster.spec, cluster.site) for cluster in own_clusters]
        without_file = [state for state, backend in recorded.items() if backend == name]
        backend = backends.named(name)
        found[name] = backend.discover(with_file, without_file, environ, region=region)

    return found


def _with_status(cluster: Cluster, discovered: Discovered) -> ListedCluster:
    name = cluster.spec.name
    backend = cluster.spec.backend
    file = str(cluster.loaded.source)
    place = discovered.locations.get(name)
    problem = discovered.problems.get(name)
    if problem:
        return ListedCluster(name, backend, "unknown", file, problem=problem, place=place)

    try:
        now = clusters.status(cluster)
    except TrainyardError as error:
        return replace(_unknown(name, backend, file, error), place=place)
    # An address through a tunnel is left out: the tunnel closes with this command.
    address = now.address if now.tunnel is None else None
    return ListedCluster(now.name, now.backend, now.state, file, address, place=place)


def _recorded(state: Path, backend: str) -> ListedCluster:
    try:
        file = made_from(state)
    except OutsideError as error:
        return _unknown(state.name, backend, "", error)

    problem = _removal(state.name, backend, file or "a file that is not recorded")
    return ListedCluster(state.name, backend, "recorded", str(file or ""), problem=problem)


def _other(backend: str, cluster: FoundCluster, broken: Collection[str]) -> ListedCluster:
    problem = _removal(cluster.name, f"{backend} {cluster.flags}", "a file that is not here")
    if cluster.name in broken:
        problem = (
            "exists, and may come from the file of this name here, which cannot be read: mend "
            "the file first"
        )
    state = _state(is_up=cluster.is_up)
    return ListedCluster(cluster.name, backend, state, "", problem=problem, place=cluster.location)


def _removal(name: str, flags: str, file: Path | str) -> str:
    return (
        f"made from {file}; `trainyard cluster.down --set name={name} --backend {flags}` removes it"
    )


def _unknown(name: str, backend: str, file: str, error: TrainyardError) -> ListedCluster:
    details = tuple(map(str, error.problems))
    problem = in_a_line(error)
    return ListedCluster(name, backend, "unknown", file, problem=problem, details=details)
