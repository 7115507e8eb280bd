"""Clusters of ours on Kubernetes, by their label: where the files and records of this machine say that clusters are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.backends.contract import Discovered, FoundCluster, Tools
from trainyard.backends.kuberay import location, naming
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.snapshot import side_by_side
from trainyard.backends.record import read_json
from trainyard.errors import TrainyardError, in_a_line
from trainyard.seams.kube import config
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import RAY_CLUSTER, Object
from trainyard.seams.threads import within
from trainyard.spec.cluster import ClusterSpec

# A list must not wait for a laptop's old kubeconfigs.
ANSWER_SECONDS = 3.0
# A context, and the server that it leads to: of two contexts on one server, one user may see more.
Context = tuple[str, str]


@dataclass(frozen=True)
class Answer:
    """What one Kubernetes said: RayClusters with our label; or why it did not, and what could not be looked into."""

    kube: Kube
    found: tuple[Object, ...] = ()
    problem: str = ""
    remark: str = ""


def discover(
    clusters: Sequence[tuple[ClusterSpec, Tools]], states: Sequence[Path], environ: Mapping[str, str]
) -> Discovered:
    """Return where these clusters are, and the RayClusters with our label that are none of them."""
    locations: dict[str, Location] = {}
    problems: dict[str, str] = {}
    for spec, tools in clusters:
        try:
            locations[spec.name] = location.find(spec, tools, spec.kuberay)
        except TrainyardError as error:
            problems[spec.name] = in_a_line(error)
    answers = ask([*locations.values(), *_recorded(states, environ)])
    for name, where in locations.items():
        answer = answers[_context(where.kube)]
        if answer.problem:
            problems[name] = f"Kubernetes of {where.kube.place}: {answer.problem}"
    remarks = [
        f"Kubernetes of {each.kube.place} ({each.kube.server}): {each.problem}" if each.problem else each.remark
        for each in answers.values()
    ]
    return Discovered(
        {name: str(where) for name, where in locations.items()},
        problems,
        tuple(
            _others([*answers.values()], {_key(where.kube, where.namespace, name) for name, where in locations.items()})
        ),
        tuple(filter(None, remarks)),
    )


def ask(locations: Sequence[Location], *, seconds: float = ANSWER_SECONDS) -> dict[Context, Answer]:
    """Ask each Kubernetes once, side by side; one that says nothing within some seconds is not waited for."""
    namespaces: dict[Context, list[str]] = {}
    kubes = {_context(where.kube): where.kube for where in locations}
    for where in locations:
        namespaces.setdefault(_context(where.kube), []).append(where.namespace)

    def answer(kube: Kube) -> Answer:
        try:
            return within(seconds, lambda: _answer(kube, namespaces[_context(kube)]))
        except TimeoutError:
            return Answer(kube, problem=f"no answer within {seconds:g} s")
        except TrainyardError as error:
            return Answer(kube, problem=error.what)

    return dict(zip(kubes, side_by_side(answer, kubes.values()), strict=True))


def _answer(kube: Kube, namespaces: Sequence[str]) -> Answer:
    try:
        return Answer(kube, tuple(kube.list(RAY_CLUSTER, labels=naming.CLUSTER)))
    except ForbiddenError:
        # Not everybody may look into all namespaces: then into those that files and records name.
        own = tuple(dict.fromkeys(namespaces))
    found = [each for space in own for each in kube.list(RAY_CLUSTER, namespace=space, labels=naming.CLUSTER)]
    return Answer(kube, tuple(found), remark=f"{kube.place}: you may list RayClusters only in {', '.join(own)}")


def _recorded(states: Sequence[Path], environ: Mapping[str, str]) -> list[Location]:
    """Return where clusters without a file here are recorded to be, as far as a kubeconfig still leads there."""
    found = []
    for state in states:
        record = read_json(state / "cluster.json") or {}
        files = {"KUBECONFIG": record["kubeconfig"]} if record.get("kubeconfig") else {}
        try:
            kube = config.connect({**environ, **files}, context=record.get("context") or None)
        except TrainyardError:
            # Its record is listed with what removes it.
            continue
        found.append(Location(kube, str(record.get("namespace") or kube.namespace), state.name))
    return found


def _others(answers: Sequence[Answer], known: set[tuple[str, str, str]]) -> Sequence[FoundCluster]:
    """Return what was found that no file here is about; several contexts may lead to one server."""
    every = {
        _key(answer.kube, each["metadata"]["namespace"], each["metadata"]["name"]): (answer.kube, each)
        for answer in reversed(answers)
        for each in answer.found
    }
    return [
        _other(kube, each) for key, (kube, each) in sorted(every.items(), key=lambda item: item[0]) if key not in known
    ]


def _other(kube: Kube, cluster: Object) -> FoundCluster:
    metadata = cluster["metadata"]
    where = Location(kube, metadata["namespace"], metadata["name"])
    is_ready = (cluster.get("status") or {}).get("state") == "ready" and not metadata.get("deletionTimestamp")
    flags = f"--set kuberay.namespace={where.namespace}"
    flags += f" --set kuberay.context={kube.context}" if kube.context else ""
    return FoundCluster(where.name, str(where), is_ready, flags)


def _context(kube: Kube) -> Context:
    return kube.context, kube.server


def _key(kube: Kube, namespace: str, name: str) -> tuple[str, str, str]:
    return kube.server, namespace, name
