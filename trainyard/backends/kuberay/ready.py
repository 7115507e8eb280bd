"""The last step of `cluster.up`: wait until Kubernetes, KubeRay and Ray all say that every node is there.

KubeRay alone does not know: it calls a cluster ready whose dashboard does not answer, and its condition
RayClusterProvisioned never returns to False.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from trainyard.backends import wording
from trainyard.backends.kuberay import counts, names, way_in
from trainyard.backends.kuberay import look as looking
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import cause, cause_cluster, cause_ray, progress
from trainyard.backends.kuberay.causes.facts import Cause, Facts, Object
from trainyard.backends.kuberay.causes.patience import Patience
from trainyard.backends.kuberay.errands.errand import PULL_SECONDS
from trainyard.backends.kuberay.look import Look
from trainyard.backends.kuberay.objects import token
from trainyard.backends.kuberay.site import Site
from trainyard.errors import NotReadyError, OutsideError
from trainyard.seams.kube.errors import ForbiddenError, GoneError
from trainyard.seams.kube.types import POD, RAY_CLUSTER
from trainyard.seams.ray_api import RefusedError
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

# Ray gives its dashboard 150 s (ray_settings.py); while nobody pulls an image, nothing takes longer.
STILL_SECONDS = 300.0
# A pull takes what it takes, and what comes after it no longer than that; machines have to come first.
READY_SECONDS = PULL_SECONDS + STILL_SECONDS
GONE_SECONDS = 90.0
# Whoever makes it anew (cluster.up --recreate elsewhere) does so at once.
REMOVED_SECONDS = 5.0
# Any change makes the operator try again at once what it failed to do; by itself it waits up to a quarter of an hour.
ASKED_AGAIN = "io.trainyard/asked-again"


def step(spec: ClusterSpec, site: Site, *, after: str | None = None) -> Step:
    """Return the step after which every node that the file asks for is there and answers."""
    waiting = Waiting(spec, site)
    title = wording.all_answer(len(spec.nodes()))
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
        self._missed: float | None = None

    def begin(self) -> None:
        """Have tried again at once what could not be done, and hold against all from now on what they cannot do."""
        seen = looking.look(self._site, self._spec)
        # KubeRay makes others, whose image is asked for now, and which start now; who may not do that waits.
        with suppress(ForbiddenError):
            for one in filter(pods.is_backing_off, seen.pods):
                self._site.kube.delete(POD, pods.name(one), namespace=self._site.namespace, uid=pods.uid(one))
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
        if seen.cluster is None or (self._began and pods.is_leaving(seen.cluster)):
            return self._without_cluster()
        self._missed = None
        facts = replace(
            seen.facts,
            fresh=tuple(one for one in seen.facts.events if _key(one) not in self._known),
            spare=counts.spare(seen.cluster, seen.pods),
        )
        missing = unready(seen.cluster, facts)
        if missing:
            causes = cause.of_cluster(facts)
        else:
            # What Kubernetes once refused may still stand there; all that was asked for runs.
            missing, causes = self._ask_ray(seen)
        if not missing:
            return YES
        if self._began:
            self._refuse(causes)
            self._refuse_standing_still(missing, facts)
        return no(missing)

    def refused(self, error: RefusedError) -> Answer:
        """Say that the head wants another token, and raise that as the cause once it has lasted."""
        if self._began:
            self._refuse((cause_ray.other_token(error, self._site),))
        return no("the head wants another token")

    def _without_cluster(self) -> Answer:
        """Say that there is none; raise NotReadyError once that has lasted, for nobody makes it again."""
        if self._began:
            self._missed = self._now() if self._missed is None else self._missed
            if self._now() - self._missed >= REMOVED_SECONDS:
                raise removed(self._site)
        return no("there is no RayCluster")

    def _bears_silence(self) -> bool:
        """Say whether the API may be silent for longer: a server that is started again is away for half a minute."""
        return self._began and self._now() - self._heard < GONE_SECONDS

    def _ask_ray(self, seen: Look) -> tuple[str, tuple[Cause, ...]]:
        """Return which nodes Ray does not know, "" if it knows all, and why it does not answer."""
        try:
            alive = way_in.answer(self._site, token(self._site), seen.pods)
        except RefusedError as error:
            return "the head wants another token", (cause_ray.other_token(error, self._site),)
        except OutsideError as error:
            return "waiting for the dashboard", (cause_ray.silent(way_in.trouble(self._site) or error.what, seen.head),)
        silent = [names.node_name(one) for one in seen.pods if names.node_name(one) not in alive and pods.is_ready(one)]
        return (f"Ray does not know {wording.named(silent)} yet" if silent else ""), ()

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
                hint="What the nodes say: invoke cluster.logs",
            )


def removed(site: Site) -> NotReadyError:
    """Return the error for a RayCluster that went while it came up."""
    return NotReadyError(
        f"cluster {site.name} was removed while it came up",
        where=way_in.place(site),
        hint="Somebody else gave cluster.down, or removed the RayCluster or its namespace. If it is to be there: "
        "invoke cluster.up",
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
