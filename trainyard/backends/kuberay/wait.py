"""The step that waits until Kubernetes, KubeRay and Ray have every node.

KubeRay's status is not enough: it calls a cluster ready even if the dashboard
does not answer, and the condition RayClusterProvisioned never returns to False.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from trainyard import wording
from trainyard.backends.contract import NodeStatus
from trainyard.backends.kuberay import diagnosis, groups, naming, nodes, pods
from trainyard.backends.kuberay import snapshot as snapshots
from trainyard.backends.kuberay.dashboard import Dashboard
from trainyard.backends.kuberay.debounce import MINUTE, PULL, STILL, Debounce
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.objects import token
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.diagnosis import Diagnosis
from trainyard.errors import NotReadyError, OutsideError, Problem, TrainyardError
from trainyard.seams.kube.errors import ApiUnreachableError, ForbiddenError
from trainyard.seams.kube.types import POD, RAY_CLUSTER
from trainyard.seams.ray_api import RefusedError
from trainyard.steps import YES, Answer, Step, no

# A change of this annotation makes the operator retry at once, not after up to 15 minutes. Only
# later events count: earlier ones are about pods that are being replaced.
TRIED_AGAIN = "io.trainyard/asked-again"


def step(location: Location, count: int, *, after: str | None = None) -> Step:
    waiting = Waiting(location, Dashboard(location))
    # The sum of the longest tolerances: for new machines, a pull, and the start after the pull.
    deadline = PULL + STILL + (location.section.wait_for_machines or 0.0)
    title = wording.all_answer(count)
    return Step(
        "nodes-answer", title, waiting.done, waiting.begin, deadline, every=1.0, after=after
    )


# The error ends with this, because waiting pods count against a quota.
_STAYS = Problem("what was made stays", "to remove it: trainyard cluster.down")


class Waiting:
    """Waits for one cluster. `done` raises causes only after `begin`."""

    def __init__(
        self, location: Location, dashboard: Dashboard, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._location = location
        self._dashboard = dashboard
        self._now = now
        self._debounce = Debounce(now=now)
        self._began = False
        self._last_contact = now()

    def begin(self) -> None:
        """Make KubeRay retry at once; from now on `done` raises causes.

        Deletes pods whose kubelet backs off, and changes an annotation.
        """
        snapshot = snapshots.read(self._location)
        kube = self._location.kube
        namespace = self._location.namespace
        # KubeRay replaces a deleted pod, and the new one pulls its image at once. A user without
        # the right to delete pods has to wait for the kubelet's retry.
        with suppress(ForbiddenError):
            for pod in filter(pods.is_backing_off, snapshot.pods):
                kube.delete(POD, pods.name(pod), namespace=namespace, uid=pods.uid(pod))
        if snapshot.owner is not None:
            again = {"metadata": {"annotations": {TRIED_AGAIN: f"{time.time():.3f}"}}}
            kube.patch(RAY_CLUSTER, self._location.name, again, namespace=namespace)
        self._began = True

    def done(self) -> Answer:
        """Ask Kubernetes and Ray whether all nodes are ready.

        After `begin`, raises a cause that outlasted its tolerance.
        """
        try:
            snapshot = snapshots.read(self._location)
        except ApiUnreachableError:
            if not self._began or self._now() - self._last_contact > MINUTE:
                raise
            return no("the Kubernetes API does not answer")

        self._last_contact = self._now()
        missing, causes = self._missing(snapshot)
        if not missing:
            return YES

        if self._began:
            self._raise_expired(causes)
        return no(missing)

    def _raise_expired(self, causes: Sequence[Diagnosis]) -> None:
        expired = self._debounce.expired(causes)
        if expired is None:
            return

        error = diagnosis.to_error(expired, f"cluster {self._location.name}, {self._location}")
        others = self._debounce.others(expired, causes)
        seen = [Problem("seen as well", cause.sentence()) for cause in others]
        error.problems = (*error.problems, *seen, _STAYS)
        raise error

    def _missing(self, snapshot: Snapshot) -> tuple[str, Sequence[Diagnosis]]:
        """Return what is missing as text, or "", and the causes.

        Raises NotReadyError if the RayCluster was removed after `begin`.
        """
        cluster = snapshot.owner
        if cluster is None and not self._began:
            return "there is no RayCluster", ()
        if cluster is None or (self._began and pods.is_leaving(cluster)):
            raise NotReadyError(
                f"cluster {self._location.name} was removed while it came up",
                where=str(self._location),
                hint="Another user gave cluster.down, or removed the RayCluster or its namespace. "
                "To make the cluster again: trainyard cluster.up",
            )

        ready = frozenset(naming.node_name(pod) for pod in snapshot.pods if pods.is_ready(pod))
        unready = _unready(snapshot, ready)
        if unready:
            causes = (*diagnosis.of_cluster(snapshot), *_standstill(unready, snapshot))
            return nodes.text(unready), causes
        if not pods.is_true(cluster, "HeadPodReady"):
            return "KubeRay has not seen yet that the head is ready", ()

        # From here on, the RayCluster's status is no cause: all pods are ready, so it may be stale.
        try:
            alive = self._dashboard.alive(token(self._location), snapshot.pods)
        except OutsideError as error:
            return "waiting for the dashboard", (_silent(error, self._dashboard.last_error()),)

        unknown = sorted(ready - alive)
        if unknown:
            return f"Ray does not know {wording.named(unknown)} yet", ()
        return "", ()


def _unready(snapshot: Snapshot, ready: frozenset[str]) -> list[NodeStatus]:
    """Return the needed nodes that are missing or not ready."""
    awaited = set(map(naming.node_name, groups.awaited(snapshot.owner, snapshot.pods)))
    unready = []
    for node in nodes.statuses(groups.of_cluster(snapshot.owner).values(), snapshot, ready):
        if node.state == "absent" or (node.state != "up" and node.name in awaited):
            unready.append(node)
    return unready


def _standstill(unready: Sequence[NodeStatus], snapshot: Snapshot) -> Sequence[Diagnosis]:
    """Return causes to report at a standstill; () while an image is pulled."""
    if any(node.is_pulling for node in unready):
        return ()
    seconds = max(STILL, snapshot.wait_for_machines)
    message = f"nothing has changed for {seconds:.0f} s: {nodes.text(unready)}"
    hint = "See the nodes' logs: trainyard cluster.logs"
    return (Diagnosis(message, hint, error=NotReadyError, tolerates=seconds),)


def _silent(error: OutsideError, forward: str) -> Diagnosis:
    kind: type[TrainyardError] = NotReadyError
    if isinstance(error, RefusedError):
        kind = OutsideError
    return Diagnosis(
        "is ready for Kubernetes, and its dashboard does not answer through the port-forward",
        "May you forward ports (kubectl auth can-i create pods/portforward)? If Ray rejects the "
        "token, give every node the token of the cluster's Secret, which ends all that runs: "
        "trainyard cluster.up --recreate",
        error=kind,
        raw=forward or error.what,
        tolerates=MINUTE,
        nodes=("head",),
    )
