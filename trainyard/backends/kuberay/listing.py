"""This tool's clusters on Kubernetes, by label, where files and records of this machine lead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainyard.backends.contract import Discovered, FoundCluster, Tools
from trainyard.backends.kuberay import location, naming
from trainyard.backends.kuberay.location import Location
from trainyard.backends.shared.record import read_json
from trainyard.errors import OutsideError, TrainyardError, in_a_line
from trainyard.seams.kube import api, config
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import RAY_CLUSTER, Object
from trainyard.seams.threads import side_by_side, within
from trainyard.spec.cluster import ClusterSpec

# A list must not wait for a laptop's old kubeconfigs.
ANSWER_SECONDS = 3.0


def discover(
    clusters: Sequence[tuple[ClusterSpec, Tools]],
    states: Sequence[Path],
    environ: Mapping[str, str],
    *,
    region: str | None = None,
) -> Discovered:
    """Return the locations of these clusters, and labelled RayClusters that are none of them."""
    locations: dict[str, Location] = {}
    problems: dict[str, str] = {}
    for spec, tools in clusters:
        try:
            locations[spec.name] = location.find(spec, tools, spec.kuberay)
        except TrainyardError as error:
            problems[spec.name] = in_a_line(error)

    every = [*(where.kube for where in locations.values()), *_recorded(states, environ)]
    kubes = {(kube.context, kube.server): kube for kube in every}
    answers = dict(zip(kubes, side_by_side(ask, kubes.values()), strict=True))
    refused = {key: answer for key, answer in answers.items() if isinstance(answer, TrainyardError)}

    for name, where in locations.items():
        refusal = refused.get((where.kube.context, where.kube.server))
        if refusal and not isinstance(refusal, ForbiddenError):
            problems[name] = f"Kubernetes of {where.kube.place}: {refusal.what}"

    known = {(where.kube.server, where.namespace, name) for name, where in locations.items()}
    others: dict[tuple[str, str, str], FoundCluster] = {}
    for key, answer in answers.items():
        for cluster in () if isinstance(answer, TrainyardError) else answer:
            # Several contexts may lead to one server.
            metadata = cluster["metadata"]
            others.setdefault(
                (key[1], metadata["namespace"], metadata["name"]),
                found_cluster(kubes[key], cluster),
            )

    return Discovered(
        locations={name: str(where) for name, where in locations.items()},
        problems=problems,
        others=tuple(others[key] for key in sorted(others) if key not in known),
        remarks=tuple(
            f"Kubernetes of {kubes[key].place} ({kubes[key].server}): {error.what}"
            for key, error in refused.items()
        ),
    )


def ask(kube: Kube, *, seconds: float = ANSWER_SECONDS) -> list[Object] | TrainyardError:
    """Return the RayClusters with Trainyard's label, or why a Kubernetes did not list them."""
    try:
        return within(seconds, lambda: kube.list(RAY_CLUSTER, labels=naming.CLUSTER))
    except ForbiddenError as error:
        return ForbiddenError(f"clusters without a file here were not looked for: {error.what}")
    except TimeoutError:
        return OutsideError(f"no answer within {seconds:g} s")
    except TrainyardError as error:
        return error


def found_cluster(kube: Kube, cluster: Object) -> FoundCluster:
    """Return a RayCluster with the flags of cluster.* that select it."""
    metadata = cluster["metadata"]
    where = Location(kube, metadata["namespace"], metadata["name"])
    is_ready = (cluster.get("status") or {}).get("state") == "ready" and not metadata.get(
        "deletionTimestamp"
    )
    flags = f"--set kuberay.namespace={where.namespace} --set kuberay.context={kube.context}"
    return FoundCluster(where.name, str(where), is_ready, flags)


def _recorded(states: Sequence[Path], environ: Mapping[str, str]) -> Iterator[Kube]:
    """Yield the Kubernetes of each recorded cluster without a file, if a kubeconfig leads there."""
    for state in states:
        record = read_json(state / "cluster.json") or {}
        if record.get("kubeconfig"):
            files = {"KUBECONFIG": record["kubeconfig"]}
        else:
            files = {}
        try:
            yield api.connect(
                config.access({**environ, **files}, context=record.get("context") or None)
            )
        except TrainyardError:
            # Its record is listed with what removes it.
            continue
