"""Trainyard's clusters on each Kubernetes that a file or record names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainyard.backends.contract import Discovered, FoundCluster, Site
from trainyard.backends.kuberay import location, naming, pods
from trainyard.backends.kuberay.location import Location
from trainyard.backends.shared.record import read_json
from trainyard.errors import OutsideError, TrainyardError, in_a_line
from trainyard.seams.kube import api, config
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import RAY_CLUSTER, Object
from trainyard.seams.threads import side_by_side, within
from trainyard.spec.cluster import ClusterSpec

# Old kubeconfigs may name servers that do not answer, and `cluster.list` must not wait long.
ANSWER_SECONDS = 3.0


def discover(
    clusters: Sequence[tuple[ClusterSpec, Site]],
    states: Sequence[Path],
    environ: Mapping[str, str],
    *,
    region: str | None = None,
) -> Discovered:
    """Ask the Kubernetes of clusters and records for Trainyard's RayClusters.

    Returns where the given clusters are or would be, and the other RayClusters.
    `states` are the directories of records. `region` is not used.
    """
    locations, problems = _located(clusters)
    kubes: dict[tuple[str, str], Kube] = {}
    for where in locations.values():
        kubes[_key(where.kube)] = where.kube
    for kube in _recorded(states, environ):
        kubes[_key(kube)] = kube

    refused: dict[tuple[str, str], TrainyardError] = {}
    # By server, namespace and name, because several contexts may lead to one server.
    others: dict[tuple[str, str, str], FoundCluster] = {}
    for kube, answer in zip(kubes.values(), side_by_side(ask, kubes.values()), strict=True):
        if isinstance(answer, TrainyardError):
            refused[_key(kube)] = answer
            continue
        for cluster in answer:
            metadata = cluster["metadata"]
            key = (kube.server, metadata["namespace"], metadata["name"])
            others.setdefault(key, found_cluster(kube, cluster))

    for name, where in locations.items():
        others.pop((where.kube.server, where.namespace, name), None)
        refusal = refused.get(_key(where.kube))
        # A user who may not list all namespaces may still use the cluster's namespace.
        if refusal and not isinstance(refusal, ForbiddenError):
            problems[name] = f"Kubernetes of {where.kube.place}: {refusal.what}"

    remarks = []
    for of_kube, error in refused.items():
        kube = kubes[of_kube]
        remarks.append(f"Kubernetes of {kube.place} ({kube.server}): {error.what}")
    return Discovered(
        locations={name: str(where) for name, where in locations.items()},
        problems=problems,
        others=tuple(others[key] for key in sorted(others)),
        remarks=tuple(remarks),
    )


def _located(
    clusters: Sequence[tuple[ClusterSpec, Site]],
) -> tuple[dict[str, Location], dict[str, str]]:
    """Return locations by cluster name, and why others are unknown."""
    locations = {}
    problems = {}
    for spec, site in clusters:
        try:
            locations[spec.name] = location.find(spec, site, spec.kuberay)
        except TrainyardError as error:
            problems[spec.name] = in_a_line(error)
    return locations, problems


def _key(kube: Kube) -> tuple[str, str]:
    return kube.context, kube.server


def ask(kube: Kube, *, seconds: float = ANSWER_SECONDS) -> list[Object] | TrainyardError:
    """Ask for Trainyard's RayClusters; an error is returned, not raised."""
    try:
        return within(seconds, lambda: kube.list(RAY_CLUSTER, labels=naming.CLUSTER))
    except ForbiddenError as error:
        return ForbiddenError(f"clusters without a file here were not looked for: {error.what}")
    except TimeoutError:
        return OutsideError(f"no answer within {seconds:g} s")
    except TrainyardError as error:
        return error


def found_cluster(kube: Kube, cluster: Object) -> FoundCluster:
    """Describe a RayCluster, with the flags of cluster.* that select it."""
    metadata = cluster["metadata"]
    where = Location(kube, metadata["namespace"], metadata["name"])
    is_ready = (cluster.get("status") or {}).get("state") == "ready"
    is_up = is_ready and not pods.is_leaving(cluster)
    flags = f"--set kuberay.namespace={where.namespace} --set kuberay.context={kube.context}"
    return FoundCluster(where.name, str(where), is_up, flags)


def _recorded(states: Sequence[Path], environ: Mapping[str, str]) -> Iterator[Kube]:
    """Yield the Kubernetes of records with a usable kubeconfig and context."""
    for state in states:
        record = read_json(state / "cluster.json") or {}
        files = {}
        if record.get("kubeconfig"):
            files = {"KUBECONFIG": record["kubeconfig"]}
        try:
            access = config.access({**environ, **files}, context=record.get("context") or None)
            yield api.connect(access)
        except TrainyardError:
            # `cluster.list` shows the record anyway, with the command that removes it.
            continue
