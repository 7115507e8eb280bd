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


def uids(location: Location, live: Object | None, own: Sequence[Object]) -> frozenset[str]:
    """Return the uids of the cluster's RayClusters: the live one, and former ones with pods."""
    former = {uid for pod in own for name, uid in owners(pod) if name == location.name}
    if live is None:
        return frozenset(former)
    return frozenset(
        former | {pods.uid(live)} if is_ours(live, location.name) else former - {pods.uid(live)}
    )


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
        own = []
        for pod in snapshot.cluster_pods(location):
            if any(uid in uids for _, uid in owners(pod)):
                own.append(pod)

        if live and pods.uid(live) in uids:
            clusters = [(RAY_CLUSTER, live)]
        else:
            clusters = []

        return [*((POD, pod) for pod in own), *clusters, *owned.left(location, uids)]

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
        name = found["metadata"]["name"]
        uid = found["metadata"]["uid"]
        location.kube.delete(
            kind, name, namespace=location.namespace if kind.namespaced else None, uid=uid
        )


def names(left: Left) -> str:
    return wording.named([found["metadata"]["name"] for _, found in left])


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
    name = first["metadata"]["name"]
    command = kubectl(location)
    command += (
        f" -n {first['metadata'].get('namespace') or location.namespace}" if kind.namespaced else ""
    )
    held = ", ".join(
        each for each in first["metadata"].get("finalizers") or () if each != _FOREGROUND
    )
    silent = kind == POD and explain_host(
        first, snapshot.of_pods(location.kube, location.namespace, [first]).hosts
    )

    if held:
        if kind.group:
            resource = f"{kind.plural}.{kind.group}"
        else:
            resource = kind.plural
        why = f"is held by its finalizer {held}"
        hint = "Does the program run that put it there? If it is gone for good: "
        hint += f"""{command} patch {resource} {name} --type=merge -p '{{"metadata":{{"finalizers":null}}}}'"""
    elif silent:
        # Only its kubelet can say that a pod is gone.
        why = silent.message
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
