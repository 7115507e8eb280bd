"""Removal of objects until Kubernetes has none left, and what holds an object that stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainyard import wording
from trainyard.backends.kuberay import leash, owned, pods, snapshot
from trainyard.backends.kuberay.diagnosis.host import explain_host
from trainyard.backends.kuberay.location import Location, is_ours, kubectl, owners
from trainyard.errors import LeftoverError
from trainyard.seams.kube.types import POD, RAY_CLUSTER, Kind, Object
from trainyard.steps import YES, Answer, Clock, Step, no

# A pod has 30 s from SIGTERM to SIGKILL, and its kubelet may be busy.
GONE_SECONDS = 75.0
POLL_SECONDS = 0.3
# While what an object owns is being removed, Kubernetes holds it by this.
_FOREGROUND = "foregroundDeletion"
Left = Sequence[tuple[Kind, Object]]


def uids(location: Location, live: Object | None, cluster_pods: Sequence[Object]) -> frozenset[str]:
    """Return the uids of the cluster's RayClusters: the live one, and former ones with pods."""
    found = set()
    for pod in cluster_pods:
        for owner in owners(pod):
            if owner.name == location.name:
                found.add(owner.uid)

    if live is not None and is_ours(live, location.name):
        found.add(pods.uid(live))
    elif live is not None:
        found.discard(pods.uid(live))
    return frozenset(found)


def ray_cluster_step(
    location: Location, id: str, title: str, uids: frozenset[str], *, disruptive: bool
) -> Step:
    """Return the step after which these RayClusters and all that KubeRay made for them are gone.

    A service that goes late would take its successor's name.
    """
    kube = location.kube
    name = location.name
    namespace = location.namespace

    def left() -> Left:
        live = kube.get(RAY_CLUSTER, name, namespace=namespace)
        # The pods first: the reason that holds a pod holds the RayCluster, too.
        objects = []
        for pod in snapshot.cluster_pods(location):
            if uids.intersection(owner.uid for owner in owners(pod)):
                objects.append((POD, pod))
        if live and pods.uid(live) in uids:
            objects.append((RAY_CLUSTER, live))
        return [*objects, *owned.left(location, uids)]

    def remove() -> None:
        # The next cluster needs the Secrets, or the next step removes them and waits for it.
        leash.release_secrets(location)
        for uid in uids:
            kube.delete(RAY_CLUSTER, name, namespace=namespace, uid=uid, with_owned=True)

    return step(location, id, title, left, remove, disruptive=disruptive)


def step(
    location: Location,
    id: str,
    title: str,
    left: Callable[[], Left],
    remove: Callable[[], None] | None = None,
    *,
    disruptive: bool = False,
) -> Step:
    """Return the step after which nothing is left; without `remove` each object is deleted."""

    def do() -> None:
        if remove:
            remove()
        else:
            delete(location, left())
        wait(location, left)

    def done() -> Answer:
        remaining = left()
        if remaining:
            return no(f"still there: {names(remaining)}")
        return YES

    return Step(id, title, done, do, disruptive=disruptive)


def delete(location: Location, objects: Left) -> None:
    for kind, found in objects:
        # By its uid: a successor of the same name stays.
        namespace = None
        if kind.namespaced:
            namespace = location.namespace
        location.kube.delete(kind, pods.name(found), namespace=namespace, uid=pods.uid(found))


def names(left: Left) -> str:
    return wording.named([pods.name(found) for _, found in left])


def wait(location: Location, left: Callable[[], Left], *, clock: Clock | None = None) -> None:
    """Wait until nothing is left. Raises LeftoverError with what holds the rest."""
    clock = clock or Clock()
    give_up = clock.now() + GONE_SECONDS
    while remaining := left():
        if clock.now() > give_up:
            raise leftover(location, remaining)
        clock.sleep(POLL_SECONDS)


def leftover(location: Location, left: Left) -> LeftoverError:
    """Return the error for the objects left: the first one's reason, and all names."""
    kind, first = left[0]
    metadata = first["metadata"]
    name = metadata["name"]
    command = kubectl(location)
    if kind.namespaced:
        command += f" -n {metadata.get('namespace') or location.namespace}"

    resource = kind.plural
    if kind.group:
        resource += f".{kind.group}"

    silent_host = None
    if kind == POD:
        hosts = snapshot.of_pods(location.kube, location.namespace, [first]).hosts
        silent_host = explain_host(first, hosts)

    finalizers = [held for held in metadata.get("finalizers") or () if held != _FOREGROUND]
    if finalizers:
        why = f"is held by its finalizer {', '.join(finalizers)}"
        hint = "Does the program run that put it there? If it is gone for good: "
        hint += f"""{command} patch {resource} {name} --type=merge -p '{{"metadata":{{"finalizers":null}}}}'"""
    elif silent_host:
        # Only its kubelet can say that a pod is gone.
        why = silent_host.message
        hint = "Start that machine again, or, if it is off for good: "
        hint += f"{command} delete pod {name} --force --grace-period=0"
    else:
        why = "is still there"
        hint = f"Why: {command} describe {kind.plural} {name}"

    return LeftoverError(
        f"{kind.name} {name} is to be removed, and {why}",
        where=f"{location}: {names(left)}",
        hint=f"{hint}; then repeat the same command.",
    )
