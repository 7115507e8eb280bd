"""The objects that a RayCluster owns: disruption budget, network policy."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.backends.kuberay import location, naming, pods
from trainyard.backends.kuberay.location import Location, owners
from trainyard.backends.kuberay.manifest import Documents
from trainyard.backends.kuberay.objects import refuse_foreign
from trainyard.backends.kuberay.snapshot import if_allowed
from trainyard.seams.kube.types import BUDGET, NETWORK_POLICY, Kind, Object
from trainyard.steps import YES, Answer, Step, no

_TITLES = {
    BUDGET: "Keep the head where it is while hosts are drained",
    NETWORK_POLICY: "Let no other pod reach the nodes",
}


def steps(where: Location, documents: Documents, *, after: str) -> Iterator[Step]:
    """Yield the steps that make the desired objects, and remove the others."""
    wanted = {BUDGET: documents.budget, NETWORK_POLICY: documents.network_policy}
    for kind, document in wanted.items():
        if document is not None:
            yield _step(where, kind, document, after=after)
        elif found := _of_ours(where, kind):
            yield _removal(where, kind, found)


def left(where: Location, uids: frozenset[str]) -> list[tuple[Kind, Object]]:
    """Return the objects that one of these uids owns."""
    objects = []
    for kind in _TITLES:
        found = _of_ours(where, kind)
        if found and uids.intersection(owner.uid for owner in owners(found)):
            objects.append((kind, found))
    return objects


def _step(where: Location, kind: Kind, document: Object, *, after: str) -> Step:
    name = naming.of_pods(where.name)

    def done() -> Answer:
        found = where.kube.get(kind, name, namespace=where.namespace)
        live = location.ray_cluster(where)
        if found is None or live is None:
            return no("there is none")
        refuse_foreign(found, where, kind)
        if pods.uid(live) in [owner.uid for owner in owners(found)]:
            return YES
        return no("it is the former cluster's")

    def apply() -> None:
        live = location.ray_cluster(where)
        if live is None:
            return

        owner = location.owner_of(live, where.name)
        metadata = {**document["metadata"], "ownerReferences": [owner]}
        where.kube.apply(kind, {**document, "metadata": metadata}, namespace=where.namespace)

    return Step(f"own:{kind.plural}", _TITLES[kind], done, apply, after=after)


def _removal(where: Location, kind: Kind, found: Object) -> Step:
    name = found["metadata"]["name"]

    def done() -> Answer:
        if _of_ours(where, kind):
            return no(f"still there: {name}")
        return YES

    def remove() -> None:
        where.kube.delete(kind, name, namespace=where.namespace)

    return Step(f"remove:{kind.plural}", f"Remove the {kind.name} {name}", done, remove)


def _of_ours(where: Location, kind: Kind) -> Object | None:
    found = if_allowed(where.kube.get, kind, naming.of_pods(where.name), namespace=where.namespace)
    if found and location.is_ours(found, where.name):
        return found
    return None
