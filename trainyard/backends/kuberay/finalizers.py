"""What does not go although its removal was asked for: what holds it, and who can let go of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainyard.backends import wording
from trainyard.backends.kuberay import snapshot
from trainyard.backends.kuberay.diagnosis.host import explain_host
from trainyard.backends.kuberay.location import Location
from trainyard.errors import LeftoverError
from trainyard.seams.kube.types import POD, Kind, Object
from trainyard.steps import YES, Answer, Clock, Step, no

# A pod has 30 s from SIGTERM to SIGKILL, and its kubelet may be busy.
GONE_SECONDS = 75.0
POLL_SECONDS = 0.3
# Who puts a finalizer there, and what makes it go.
FINALIZERS = {
    "ray.io/gcs-ft-redis-cleanup-finalizer": "The KubeRay operator takes it away once it has cleaned up Redis: "
    "does the operator run, and does Redis answer?",
    "kubernetes.io/pvc-protection": "Kubernetes takes it away once no pod uses the claim.",
    "foregroundDeletion": "Kubernetes takes it away once everything that belongs to it is gone.",
    "orphan": "Kubernetes' garbage collector takes it away: does the controller manager run?",
}
OTHERS = "Whoever put it there takes it away: does that program still run?"


def removal(
    location: Location,
    kind: Kind,
    title: str,
    left: Callable[[], Sequence[Object]],
    *,
    first: Callable[[], None] = lambda: None,
    disruptive: bool = False,
) -> Step:
    """Return the step that removes what is left of a kind and waits until it is gone; `first` may refuse that."""

    def remove() -> None:
        first()
        for found in left():
            # By its uid: one that is made anew meanwhile is another one.
            name, uid = found["metadata"]["name"], found["metadata"]["uid"]
            location.kube.delete(kind, name, namespace=location.namespace if kind.namespaced else None, uid=uid)
        wait(location, kind, left)

    return Step(title, lambda: gone(left()), remove, disruptive=disruptive)


def gone(left: Sequence[Object]) -> Answer:
    return no(f"still there: {wording.named([each['metadata']['name'] for each in left])}") if left else YES


def wait(location: Location, kind: Kind, left: Callable[[], Sequence[Object]], *, clock: Clock | None = None) -> None:
    """Wait until nothing is left. Raises LeftoverError that says what holds it."""
    clock = clock or Clock()
    give_up = clock.now() + GONE_SECONDS
    while found := left():
        if clock.now() > give_up:
            raise leftover(location, kind, found)
        clock.sleep(POLL_SECONDS)


def leftover(location: Location, kind: Kind, left: Sequence[Object]) -> LeftoverError:
    """Return the error for what is left of a kind: the first one's reason, and the names of all."""
    first = left[0]
    name = first["metadata"]["name"]
    namespace = str(first["metadata"].get("namespace") or location.namespace)
    kubectl = "kubectl" + (f" --context {location.kube.context}" if location.kube.context else "")
    kubectl += f" -n {namespace}" if kind.namespaced else ""
    why, hint = _reason(location, kind, first, kubectl, namespace)
    where = f"namespace {namespace}" if kind.namespaced else location.kube.place
    listed = f": {wording.named([each['metadata']['name'] for each in left])}" if len(left) > 1 else ""
    return LeftoverError(f"{kind.name} {name} is to be removed, and {why}", where=f"{where}{listed}", hint=hint)


def _reason(location: Location, kind: Kind, found: Object, kubectl: str, namespace: str) -> tuple[str, str]:
    name, again = found["metadata"]["name"], "; then repeat the same command."
    # What keeps a namespace (kubernetes/pkg/controller/namespace/deletion/status_condition_utils.go).
    conditions = (found.get("status") or {}).get("conditions") or ()
    content = [each for each in conditions if each["type"].startswith("Namespace") and each.get("status") == "True"]
    if content:
        return "is not empty", "; ".join(str(each.get("message")) for each in content) + again
    held = list(found["metadata"].get("finalizers") or ())
    if held:
        holds = "its finalizer {} holds it" if len(held) == 1 else "its finalizers {} hold it"
        resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        patch = f"""{kubectl} patch {resource} {name} --type=merge -p '{{"metadata":{{"finalizers":null}}}}'"""
        return holds.format(
            ", ".join(held)
        ), f"{FINALIZERS.get(held[0], OTHERS)} If it is gone for good: {patch}{again}"
    if kind == POD:
        # Only its kubelet can say that a pod is gone.
        silent = explain_host(found, snapshot.of_pods(location.kube, namespace, [found]).hosts)
        if silent:
            force = f"{kubectl} delete pod {name} --force --grace-period=0"
            return silent.message, f"Start that machine again, or, if it is off for good: {force}{again}"
    return "is still there", f"Why: {kubectl} describe {kind.plural} {name}{again}"
