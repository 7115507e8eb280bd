"""Removal of objects, and the reason why one stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainyard import wording
from trainyard.backends.kuberay import leash, owned, pods, snapshot
from trainyard.backends.kuberay.diagnosis.host import explain_host
from trainyard.backends.kuberay.location import Location, is_ours, kubectl, owners
from trainyard.errors import LeftoverError
from trainyard.seams.kube.types import POD, RAY_CLUSTER, Kind, Object
from trainyard.steps import YES, Answer, Clock, Step, no

# A pod has 30 s from SIGTERM to SIGKILL; a busy kubelet needs longer.
GONE_SECONDS = 75.0
POLL_SECONDS = 0.3
# With this finalizer an object stays until all that it owns is removed.
_FOREGROUND = "foregroundDeletion"
Left = Sequence[tuple[Kind, Object]]


def uids(location: Location, live: Object | None, cluster_pods: Sequence[Object]) -> frozenset[str]:
    """Return the uids of the live RayCluster, and of former ones with pods.

    A RayCluster that Trainyard did not make is left out.
    """
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
    """Return the step that removes RayClusters, and awaits their objects' end.

    Without the wait, a service that is removed late would block its successor's
    name.
    """
    kube = location.kube
    name = location.name
    namespace = location.namespace

    def left() -> Left:
        live = kube.get(RAY_CLUSTER, name, namespace=namespace)
        # An error names the first object. Pods come first, because the RayCluster waits for them.
        objects = []
        for pod in snapshot.cluster_pods(location):
            if uids.intersection(owner.uid for owner in owners(pod)):
                objects.append((POD, pod))
        if live and pods.uid(live) in uids:
            objects.append((RAY_CLUSTER, live))
        return [*objects, *owned.left(location, uids)]

    def remove() -> None:
        # With a leash the RayCluster owns the Secrets. They must outlive this step: either the next
        # cluster needs them, or the next step removes them and waits for their end.
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
    """Return the step that removes objects, and waits until none is left.

    `remove` defaults to the deletion of all that `left` returns.
    """

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
        # The uid keeps a successor of the same name from being deleted.
        location.kube.delete(
            kind, pods.name(found), namespace=location.namespace, uid=pods.uid(found)
        )


def names(left: Left) -> str:
    return wording.named([pods.name(found) for _, found in left])


def wait(location: Location, left: Callable[[], Left], *, clock: Clock | None = None) -> None:
    """Wait until nothing is `left`; raise LeftoverError after GONE_SECONDS."""
    clock = clock or Clock()
    give_up = clock.now() + GONE_SECONDS
    while remaining := left():
        if clock.now() > give_up:
            raise leftover(location, remaining)
        clock.sleep(POLL_SECONDS)


def leftover(location: Location, left: Left) -> LeftoverError:
    """Return the error for objects that stay, with the reason of the first.

    For a pod, its events and host are read.
    """
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
        hint = "Does the program that set the finalizer run? If it no longer exists: "
        hint += f"""{command} patch {resource} {name} --type=merge -p '{{"metadata":{{"finalizers":null}}}}'"""
    elif silent_host:
        # Kubernetes keeps a pod until its host's kubelet reports the pod's end.
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
