"""The last step of `cluster.up`: wait until Kubernetes, KubeRay and Ray all say that every node is ready.

KubeRay alone does not know: it calls a cluster ready whose dashboard does not answer, and its condition
RayClusterProvisioned never returns to False.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from trainyard.backends import wording
from trainyard.backends.kuberay import diagnosis, groups, naming, pods, replicas
from trainyard.backends.kuberay import snapshot as snapshots
from trainyard.backends.kuberay.dashboard import Dashboard
from trainyard.backends.kuberay.debounce import MINUTE, SOON, STILL, Debounce
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.objects import token
from trainyard.backends.kuberay.pods import Object
from trainyard.backends.kuberay.probe_pods import SECONDS as PULL_SECONDS
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.diagnosis import Diagnosis
from trainyard.errors import NotReadyError, OutsideError
from trainyard.seams.kube.errors import ForbiddenError, GoneError
from trainyard.seams.kube.types import POD, RAY_CLUSTER
from trainyard.seams.ray_api import RefusedError
from trainyard.steps import YES, Answer, Step, no

# Any change makes the operator try again at once what it failed to do; by itself it waits up to a quarter of an hour.
# From then on events count, too: what they said before is about pods that are being replaced.
TRIED_AGAIN = "io.trainyard/asked-again"


def step(location: Location, nodes: int, *, after: str | None = None) -> Step:
    waiting = Waiting(location, Dashboard(location))
    # A pull takes what it takes, and what comes after it no longer than that; machines have to come first.
    deadline = PULL_SECONDS + STILL + (location.section.wait_for_machines or 0.0)
    title = wording.all_answer(nodes)
    return Step(title, done=waiting.done, do=waiting.begin, deadline=deadline, every=1.0, after=after)


class Waiting:
    """Waits for one cluster. Until `begin`, `done` only says what it observes; from then on it raises the cause."""

    def __init__(self, location: Location, dashboard: Dashboard, *, now: Callable[[], float] = time.monotonic) -> None:
        self._location = location
        self._dashboard = dashboard
        self._now = now
        self._debounce = Debounce(now=now)
        self._began = False
        self._last_contact = now()

    def begin(self) -> None:
        """Have everything that failed tried again at once; from now on what fails is an error."""
        snapshot = snapshots.read(self._location)
        kube, namespace = self._location.kube, self._location.namespace
        # KubeRay makes others, whose image is pulled now, and which start now; who may not do that waits.
        with suppress(ForbiddenError):
            for pod in filter(pods.is_backing_off, snapshot.pods):
                kube.delete(POD, pods.name(pod), namespace=namespace, uid=pods.uid(pod))
        if snapshot.owner is not None:
            again = {"metadata": {"annotations": {TRIED_AGAIN: f"{time.time():.3f}"}}}
            kube.patch(RAY_CLUSTER, self._location.name, again, namespace=namespace)
        self._began = True

    def done(self) -> Answer:
        """Say whether all are ready, or what is waited for. Raises the cause once it lasts."""
        try:
            snapshot = snapshots.read(self._location)
        except GoneError:
            if not self._began or self._now() - self._last_contact > MINUTE:
                raise
            return no("the Kubernetes API does not answer")
        self._last_contact = self._now()
        missing, causes = self._missing(snapshot)
        if not missing:
            return YES
        if self._began:
            self._raise_expired([*causes, *_standstill(missing, snapshot)])
        return no(missing)

    def _missing(self, snapshot: Snapshot) -> tuple[str, Sequence[Diagnosis]]:
        """Return what is missing, "" if nothing, and why."""
        cluster = snapshot.owner
        if cluster is None or (self._began and pods.is_leaving(cluster)):
            return "there is no RayCluster", [removed(self._location)]
        missing = unready(cluster, snapshot)
        if missing:
            return missing, diagnosis.of_cluster(snapshot)
        # What Kubernetes once refused may still stand in the status; all that is needed runs.
        try:
            alive = self._dashboard.alive(token(self._location), snapshot.pods)
        except RefusedError as error:
            return "the head wants another token", [_another_token(error, self._location)]
        except OutsideError as error:
            raw = self._dashboard.last_error() or error.what
            return "waiting for the dashboard", [_silent(raw, snapshot.head)]
        unknown = [name for pod in snapshot.pods if pods.is_ready(pod) and (name := naming.node_name(pod)) not in alive]
        return (f"Ray does not know {wording.named(unknown)} yet" if unknown else ""), ()

    def _raise_expired(self, causes: Sequence[Diagnosis]) -> None:
        expired = self._debounce.expired(causes)
        if expired:
            raise diagnosis.to_error(expired, f"cluster {self._location.name}, {self._location}")


def unready(cluster: Object, snapshot: Snapshot) -> str:
    """Return what is missing until Kubernetes and KubeRay call all ready, "" if nothing (field-notes.md, section 6)."""
    text = groups.text(snapshot)
    if text:
        return text
    if not replicas.is_observed(cluster):
        return "KubeRay looks at the change"
    if pods.condition(cluster, "HeadPodReady").get("status") != "True":
        return "KubeRay has not seen yet that the head is ready"
    workers = sum(replicas.minimum(cluster).values()) - 1
    if int((cluster.get("status") or {}).get("readyWorkerReplicas") or 0) < workers:
        return "KubeRay has not seen yet that all workers are ready"
    if pods.condition(cluster, "RayClusterProvisioned").get("status") != "True":
        return "KubeRay does not call the cluster provisioned yet"
    return ""


def removed(location: Location) -> Diagnosis:
    """Return that a RayCluster went while it came up; `cluster.up --recreate` elsewhere makes it anew at once."""
    return Diagnosis(
        f"cluster {location.name} was removed while it came up",
        "Somebody else gave cluster.down, or removed the RayCluster or its namespace. If it is to exist: "
        "invoke cluster.up",
        error=NotReadyError,
        tolerates=SOON,
    )


def _another_token(error: RefusedError, location: Location) -> Diagnosis:
    return Diagnosis(
        "wants another token than the cluster's Secret has: it was changed or made anew while the head ran",
        f"To give the one in Secret {naming.token_secret(location.name)} to every node, which ends all that runs: "
        "invoke cluster.up --recreate",
        raw=error.what,
        tolerates=SOON,
        nodes=("head",),
    )


def _silent(raw: str, head: Object | None) -> Diagnosis:
    return Diagnosis(
        "is ready for Kubernetes, and its dashboard does not answer through the port-forward",
        "May you forward ports (kubectl auth can-i create pods/portforward), and does nothing between here and the API "
        "server cut such connections off?",
        error=NotReadyError,
        raw=raw,
        tolerates=MINUTE,
        nodes=("head",),
        hosts=(pods.host(head),) if head else (),
    )


def _standstill(missing: str, snapshot: Snapshot) -> Sequence[Diagnosis]:
    """Return that nothing changes, unless an image is on its way."""
    if groups.pulls(snapshot):
        return ()
    seconds = max(STILL, snapshot.wait_for_machines)
    return [
        Diagnosis(
            f"nothing has changed for {seconds:.0f} s: {missing}",
            "What the nodes say: invoke cluster.logs",
            error=NotReadyError,
            tolerates=seconds,
        )
    ]
