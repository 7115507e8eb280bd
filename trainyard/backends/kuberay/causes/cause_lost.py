"""Whether a Kubernetes node is lost, or Kubernetes only takes it for that; pure.

A control plane that was away calls nodes lost that are not, for up to 40 s (seen with Kubernetes 1.34). A kubelet goes
on renewing its lease then, which tells the one from the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import event
from trainyard.backends.kuberay.causes.facts import Cause, Host, Object
from trainyard.backends.kuberay.pod import Pod

# A kubelet that is started again reports within seconds.
LOST_SECONDS = 10.0
# A control plane thinks again within a minute.
DOUBTED_SECONDS = 60.0
DOUBTED = "doubted host"
NOT_READY = "host that is not ready"
# Here Ray knows better whether a node works.
UNSURE = (DOUBTED, NOT_READY)
# A kubelet renews its lease four times in the time that it is for (kubernetes/pkg/kubelet, NodeLeaseDurationSeconds and
# nodeLeaseRenewIntervalFraction): one that lives has done so in this part of it.
LEASE_SECONDS = 40.0
RENEWED = 3 / 8
# What Kubernetes tells a pod that was ready as it calls its node not ready (kubernetes/pkg/controller/util/node,
# MarkPodsNotReady); so many seconds apart is at once.
NODE_NOT_READY = "NodeNotReady"
AT_ONCE = 5.0


def cause(pod: Pod, nodes: Mapping[str, Host | None], events: Sequence[event.Event]) -> Cause | None:
    """Return that a pod's Kubernetes node does not answer or is not ready, None if it is, or nobody says.

    Who may not see nodes still sees what became of the pod: `events` are its.
    """
    name = pods.host(pod)
    if not name:
        return None
    host = nodes.get(name)
    if host is not None:
        return _of_node(name, host)
    if name in nodes:
        return _lost(name, f'nodes "{name}" not found')
    status = pod.get("status") or {}
    if status.get("reason") == "NodeLost":
        return _lost(name, str(status.get("message") or ""))
    return _of_events(pod, name, events)


def patient(causes: Sequence[Cause]) -> Sequence[Cause]:
    """Return the causes, all with more patience while Kubernetes takes a host for lost that may not be.

    A pod that found no room then did not look for it on that host.
    """
    if not any(one.about == DOUBTED for one in causes):
        return causes
    return [replace(one, patience=max(one.patience, DOUBTED_SECONDS)) for one in causes]


def _of_node(name: str, host: Host) -> Cause | None:
    ready = pods.condition(host.node, "Ready")
    said = str(ready.get("message") or "")
    if ready.get("status") == "True":
        return None
    if ready.get("status") == "False":
        return Cause(
            what=f"is on the Kubernetes node {name}, which is not ready",
            brief=f"its Kubernetes node {name} is not ready",
            about=NOT_READY,
            hint=f"More about it: kubectl describe node {name}",
            said=said,
            patience=LOST_SECONDS,
        )
    if host.lease is None:
        return _doubted(name, "takes for lost", f"Does it answer? More about it: kubectl describe node {name}", said)
    if _renewed(host.lease) < pods.seconds(ready.get("lastTransitionTime")) - _period(host.lease):
        return _lost(name, said)
    hint = f"Can that kubelet write what its node is like? kubectl describe node {name}, and its own log."
    return _doubted(name, "takes for lost, though its kubelet renews its lease", hint, said)


def _renewed(lease: Object) -> float:
    """Return when it was renewed, in Unix seconds: by the clock of the API server, or else by that of its host."""
    fields = (lease.get("metadata") or {}).get("managedFields") or ()
    times = [pods.seconds(one.get("time")) for one in fields]
    return max(times, default=0.0) or pods.seconds((lease.get("spec") or {}).get("renewTime"))


def _period(lease: Object) -> float:
    seconds = (lease.get("spec") or {}).get("leaseDurationSeconds") or LEASE_SECONDS
    return float(seconds) * RENEWED


def _of_events(pod: Pod, name: str, events: Sequence[event.Event]) -> Cause | None:
    """Return what Kubernetes said as it called the pod unready with its node, None if its kubelet has spoken since."""
    said, ready = event.newest(events, NODE_NOT_READY), pods.condition(pod, "Ready")
    if said is None or ready.get("status") != "False" or pods.phase(pod) != "Running":
        return None
    at = event.when(said)
    if at < pods.seconds(ready.get("lastTransitionTime")) - AT_ONCE or any(one > at for one in _spoken(pod, events)):
        return None
    hint = f"Whoever runs this Kubernetes sees why: kubectl describe node {name}"
    return _doubted(name, "calls not ready", hint, event.message(said))


def _spoken(pod: Pod, events: Sequence[event.Event]) -> Iterator[float]:
    """Return the times that only a kubelet can have told."""
    yield from (event.when(one) for one in events if event.is_of_kubelet(one))
    for one in pods.containers(pod):
        yield pods.seconds(one.running_since)
        yield from (pods.seconds(each.finished) for each in (one.ended, one.last) if each)


def _lost(name: str, said: str) -> Cause:
    return Cause(
        what=f"ran on the Kubernetes node {name}, which does not answer any more",
        brief=f"its Kubernetes node {name} does not answer",
        hint=f"Start that machine or its kubelet again; or give it up (kubectl delete node {name}), "
        "and its Ray nodes are made anew elsewhere.",
        said=said,
        patience=LOST_SECONDS,
    )


def _doubted(name: str, how: str, hint: str, said: str) -> Cause:
    return Cause(
        what=f"is on the Kubernetes node {name}, which Kubernetes {how}",
        brief=f"Kubernetes {how.replace(' ', f' its node {name} ', 1)}",
        about=DOUBTED,
        hint=hint,
        said=said,
        patience=DOUBTED_SECONDS,
    )
