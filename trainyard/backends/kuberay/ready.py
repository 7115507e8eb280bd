"""The last step of `cluster.up`: wait until Kubernetes, KubeRay and Ray all say that every node is there.

KubeRay alone does not know: it calls a cluster ready whose dashboard does not answer, and its condition
RayClusterProvisioned never returns to False.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from trainyard.backends import words
from trainyard.backends.kuberay import counts, names, way_in
from trainyard.backends.kuberay import look as looking
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import cause, cause_cluster, progress
from trainyard.backends.kuberay.causes.facts import Cause, Facts, Object
from trainyard.backends.kuberay.causes.patience import Patience
from trainyard.backends.kuberay.errands.errand import PULL_SECONDS
from trainyard.backends.kuberay.look import Look
from trainyard.backends.kuberay.objects import token
from trainyard.backends.kuberay.site import Site
from trainyard.errors import NotReadyError, OutsideError
from trainyard.seams.kube.errors import GoneError
from trainyard.seams.kube.types import RAY_CLUSTER
from trainyard.seams.ray_api import RefusedError
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

# Ray gives its dashboard 150 s (ray_settings.py); while nobody pulls an image, nothing takes longer.
STILL_SECONDS = 300.0
# A pull takes what it takes, and what comes after it no longer than that; machines have to come first.
READY_SECONDS = PULL_SECONDS + STILL_SECONDS
SILENT_SECONDS = 60.0
GONE_SECONDS = 90.0
REFUSED_SECONDS = 3.0
# Any change makes the operator try again at once what it failed to do; by itself it waits up to a quarter of an hour.
ASKED_AGAIN = "io.trainyard/asked-again"


def step(spec: ClusterSpec, site: Site, *, after: str | None = None) -> Step:
    """Return the step after which every node that the file asks for is there and answers."""
    waiting = Waiting(spec, site)
    title = words.all_answer(len(spec.nodes()))
    deadline = READY_SECONDS + (spec.kuberay.wait_for_machines or 0.0)
    return Step(title, done=waiting.done, do=waiting.begin, deadline=deadline, every=1.0, after=after)


class Waiting:
    """Waits for one cluster. Until `begin`, `done` only says what it sees; from then on it raises the real cause."""

    def __init__(self, spec: ClusterSpec, site: Site, *, now: Callable[[], float] = time.monotonic) -> None:
        self._spec = spec
        self._site = site
        self._now = now
        self._patience = Patience(now=now)
        self._began = False
        self._known: frozenset[tuple[str, str]] = frozenset()
        self._seen = ("", now())
        self._heard = now()

    def begin(self) -> None:
        """Have the operator try again what it could not do, and hold against it from now on what it cannot."""
        seen = looking.look(self._site, self._spec)
        self._known = frozenset(map(_key, seen.facts.events))
        self._began = True
        if seen.cluster is not None and cause_cluster.failure(seen.cluster):
            again = {"metadata": {"annotations": {ASKED_AGAIN: f"{time.time():.3f}"}}}
            self._site.kube.patch(RAY_CLUSTER, self._site.name, again, namespace=self._site.namespace)

    def done(self) -> Answer:
        """Say whether all are there, or what is waited for. Raises the cause if there will be no waiting it out."""
        try:
            seen = looking.look(self._site, self._spec)
        except GoneError:
            if not self._bears_silence():
                raise
            return no("the Kubernetes API does not answer")
        self._heard = self._now()
        if seen.cluster is None:
            return no("there is no RayCluster")
        facts = replace(
            seen.facts,
            fresh=tuple(one for one in seen.facts.events if _key(one) not in self._known),
            spare=counts.spare(seen.cluster, seen.pods),
        )
        causes = cause.of_cluster(facts)
        missing = unready(seen.cluster, facts)
        if not missing and not causes:
            missing, causes = self._ask_ray(seen)
        if not missing:
            return YES
        if self._began:
            self._refuse(causes)
            self._refuse_standing_still(missing, facts)
        return no(missing)

    def _bears_silence(self) -> bool:
        """Say whether the API may be silent for longer: a server that is started again is away for half a minute."""
        return self._began and self._now() - self._heard < GONE_SECONDS

    def _ask_ray(self, seen: Look) -> tuple[str, tuple[Cause, ...]]:
        """Return which nodes Ray does not know, "" if it knows all, and why it does not answer."""
        try:
            alive = way_in.answer(self._site, token(self._site), seen.pods)
        except RefusedError as error:
            return "the head wants another token", (_other_token(error, self._site),)
        except OutsideError as error:
            return "waiting for the dashboard", (_silent(way_in.trouble(self._site) or error.what, seen.head),)
        silent = [names.node_name(one) for one in seen.pods if names.node_name(one) not in alive and pods.is_ready(one)]
        return (f"Ray does not know {words.named(silent)} yet" if silent else ""), ()

    def _refuse(self, causes: tuple[Cause, ...]) -> None:
        worn = self._patience.over(causes)
        if worn:
            raise cause.error(worn, f"cluster {self._site.name}, {way_in.place(self._site)}")

    def _refuse_standing_still(self, missing: str, facts: Facts) -> None:
        """Raise NotReadyError if nothing has changed for long, and no image is on its way."""
        text, since = self._seen
        patience = max(STILL_SECONDS, facts.wait_for_machines)
        if missing != text or progress.pulls(facts):
            self._seen = (missing, self._now())
        elif self._now() - since > patience:
            raise NotReadyError(
                f"nothing has changed for {patience:.0f} s: {missing}",
                where=f"cluster {self._site.name}, {way_in.place(self._site)}",
                hint=f"What the nodes say: invoke cluster.logs{self._site.flag}",
            )


def unready(cluster: Object, facts: Facts) -> str:
    """Return what is missing until Kubernetes and KubeRay call all ready, "" if nothing (field-notes.md, section 6)."""
    text = progress.text(facts)
    if text:
        return text
    if not counts.is_observed(cluster):
        return "KubeRay looks at the change"
    if pods.condition(cluster, "HeadPodReady").get("status") != "True":
        return "KubeRay has not seen yet that the head is ready"
    status = cluster.get("status") or {}
    wanted = sum(counts.minimum(cluster).values()) - 1
    if int(status.get("readyWorkerReplicas") or 0) < wanted:
        return "KubeRay has not seen yet that all workers are ready"
    if pods.condition(cluster, "RayClusterProvisioned").get("status") != "True":
        return "KubeRay does not call the cluster provisioned yet"
    return ""


def _key(event: Object) -> tuple[str, str]:
    metadata = event["metadata"]
    return str(metadata.get("uid")), str(metadata.get("resourceVersion"))


def _other_token(error: RefusedError, site: Site) -> Cause:
    return Cause(
        what="wants another token than the cluster's Secret has: it was changed while the head ran",
        brief="wants another token",
        who=("head",),
        hint=f"To give the one in Secret {names.token_secret(site.name)} to every node, which ends all that runs: "
        f"invoke cluster.up{site.flag} --recreate",
        said=error.what,
        patience=REFUSED_SECONDS,
    )


def _silent(said: str, head: Object | None) -> Cause:
    return Cause(
        what="is ready for Kubernetes, and its dashboard does not answer through the port-forward",
        brief="its dashboard does not answer",
        who=("head",),
        hosts=(pods.host(head),) if head else (),
        kind=NotReadyError,
        hint="May you forward ports (kubectl auth can-i create pods/portforward), and does nothing between here and "
        "the API server cut such connections off?",
        said=said,
        patience=SILENT_SECONDS,
    )
