"""What does not go although its removal was asked for: what holds it, and who can let go of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainyard.backends import wording
from trainyard.backends.kuberay import snapshot
from trainyard.backends.kuberay.diagnosis import explain_host
from trainyard.backends.kuberay.site import Site
from trainyard.diagnosis import Diagnosis
from trainyard.errors import LeftoverError
from trainyard.seams.kube.types import POD, Kind, Object
from trainyard.steps import Clock

# Who puts a finalizer there, and what makes it go.
FINALIZERS = {
    "ray.io/gcs-ft-redis-cleanup-finalizer": "The KubeRay operator takes it away once it has cleaned up Redis: "
    "does the operator run, and does Redis answer?",
    "kubernetes.io/pvc-protection": "Kubernetes takes it away once no pod uses the claim.",
    "kubernetes.io/pv-protection": "Kubernetes takes it away once no claim uses the volume.",
    "foregroundDeletion": "Kubernetes takes it away once everything that belongs to it is gone.",
    "orphan": "Kubernetes' garbage collector takes it away: does the controller manager run?",
    "batch.kubernetes.io/job-tracking": "Kubernetes' job controller takes it away: does the controller manager run?",
}
# A pod has 30 s from SIGTERM to SIGKILL, and its kubelet may be busy.
GONE_SECONDS = 75.0
POLL_SECONDS = 0.3
OTHERS = "Whoever put it there takes it away: does that program still run?"


def wait(site: Site, kind: Kind, left: Callable[[], Sequence[Object]], *, clock: Clock | None = None) -> None:
    """Wait until nothing is left. Raises LeftoverError that says what holds it."""
    clock = clock or Clock()
    give_up = clock.now() + GONE_SECONDS
    while found := left():
        if clock.now() > give_up:
            raise error(site, kind, found)
        clock.sleep(POLL_SECONDS)


def error(site: Site, kind: Kind, left: Sequence[Object]) -> LeftoverError:
    """Return the error for what is left of a kind: the first one's reason, and the names of all."""
    first = left[0]
    name = first["metadata"]["name"]
    described = f"{kind.name} {name}"
    held = list(first["metadata"].get("finalizers") or ())
    if content := _content(first):
        what = f"{described} is to be removed, and is not empty"
        hint = f"{content}. Then repeat the same command."
    elif held:
        what = f"{described} is to be removed, and {_finalizers(held)} it"
        hint = f"{FINALIZERS.get(held[0], OTHERS)} If it is gone for good: {_let_go(site, kind, first)}"
    elif silent := _silent_node(site, kind, first):
        what = f"{described} is to be removed, and {silent.summary}"
        hint = f"{_listen(site, kind, first)}; then repeat the same command."
    else:
        what = f"{described} is to be removed, and is still there"
        hint = f"Why: kubectl{_where(site, kind, first)} describe {kind.plural} {name}; then repeat the same command."
    everything = wording.named([one["metadata"]["name"] for one in left])
    where = f"namespace {_namespace(site, first)}" if kind.namespaced else site.kube.place
    return LeftoverError(what, where=f"{where}: {everything}" if len(left) > 1 else where, hint=hint)


def _finalizers(held: Sequence[str]) -> str:
    listed = ", ".join(held)
    return f"its finalizer {listed} holds" if len(held) == 1 else f"its finalizers {listed} hold"


def _content(one: Object) -> str:
    """Return what Kubernetes says that keeps a namespace: objects in it with finalizers, or a kind that nobody serves.

    (kubernetes/pkg/controller/namespace/deletion/status_condition_utils.go)
    """
    conditions = (one.get("status") or {}).get("conditions") or ()
    telling = [each for each in conditions if each["type"].startswith("Namespace") and each.get("status") == "True"]
    return "; ".join(str(each.get("message")) for each in telling)


def _let_go(site: Site, kind: Kind, one: Object) -> str:
    """Return the command that takes the finalizers away."""
    name = one["metadata"]["name"]
    return (
        f"kubectl{_where(site, kind, one)} patch {kind.plural}{f'.{kind.group}' if kind.group else ''} {name} "
        """--type=merge -p '{"metadata":{"finalizers":null}}'; then repeat the same command."""
    )


def _where(site: Site, kind: Kind, one: Object) -> str:
    context = f" --context {site.kube.context}" if site.kube.context else ""
    return context + (f" -n {_namespace(site, one)}" if kind.namespaced else "")


def _namespace(site: Site, one: Object) -> str:
    return str(one["metadata"].get("namespace") or site.namespace)


def _listen(site: Site, kind: Kind, one: Object) -> str:
    """Return what makes its kubelet say that a pod is gone, or what does without."""
    name = one["metadata"]["name"]
    return (
        "Start that machine again, or, if it is off for good: "
        f"kubectl{_where(site, kind, one)} delete pod {name} --force --grace-period=0"
    )


def _silent_node(site: Site, kind: Kind, one: Object) -> Diagnosis | None:
    """Return what is wrong with the pod's Kubernetes node: only its kubelet can say that a pod is gone."""
    if kind != POD:
        return None
    return explain_host(one, snapshot.of_pods(site.kube, _namespace(site, one), [one]).hosts)
