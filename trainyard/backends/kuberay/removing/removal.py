"""A former RayCluster goes, with all that KubeRay made for it, before another of its name is made."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainyard.backends.kuberay import pods, site
from trainyard.backends.kuberay.removing import stuck
from trainyard.backends.kuberay.site import Site
from trainyard.backends.kuberay.there import There, seen
from trainyard.backends.wording import named
from trainyard.errors import NotReadyError
from trainyard.seams.kube.types import POD, RAY_CLUSTER, SERVICE, Kind, Object
from trainyard.steps import YES, Answer, Step, no

# A pod has 30 s to end unless somebody gave it more; what hangs for longer is named.
GONE_SECONDS = 120.0


def step(where: Site, there: There, *, recreate: bool) -> Step | None:
    """Return the step after which a former RayCluster is gone, None if none has to go."""
    found = there.ray_cluster.found
    if found is not None and (recreate or pods.is_leaving(found)):
        uid = str(found["metadata"]["uid"])
    elif found is not None:
        return None
    else:
        uid = next((one for pod in there.pods.found or () for one in owners(pod, where.name)), "")
    if not uid:
        return None
    going = Going(where, uid)
    title = "Remove the cluster that is there" if recreate else "Wait until the former cluster is gone"
    return Step(title, done=going.done, do=going.begin, deadline=GONE_SECONDS * 2, every=0.5, disruptive=recreate)


def owners(one: Object, name: str) -> list[str]:
    """Return the uids of the RayClusters of this name that an object belongs to."""
    found = one["metadata"].get("ownerReferences") or ()
    return [str(each["uid"]) for each in found if (each["kind"], each["name"]) == (RAY_CLUSTER.name, name)]


class Going:
    """One RayCluster on its way out. What hangs is named once it has been waited for."""

    def __init__(self, where: Site, uid: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._where = where
        self._uid = uid
        self._now = now
        self._began: float | None = None

    def begin(self) -> None:
        """Ask for its removal; one that is asked again is going already."""
        self._began = self._now()
        where = self._where
        where.kube.delete(RAY_CLUSTER, where.name, namespace=where.namespace, uid=self._uid)

    def done(self) -> Answer:
        """Say whether nothing of it is left. Raises NotReadyError with what holds it."""
        left = self._left()
        if not left:
            return YES
        if self._began is not None and self._now() - self._began > GONE_SECONDS:
            kind = left[0][0]
            held = stuck.error(self._where, kind, [one for each, one in left if each == kind])
            raise NotReadyError(held.what, where=held.where, hint=held.hint)
        return no(f"still there: {named([one['metadata']['name'] for _, one in left])}")

    def _left(self) -> list[tuple[Kind, Object]]:
        """Return it, its pods and its services; a service that goes late would take its successor's name."""
        where = self._where
        own = where.kube.get(RAY_CLUSTER, where.name, namespace=where.namespace)
        found = [(RAY_CLUSTER, own)] if own is not None and own["metadata"]["uid"] == self._uid else []
        found += [(POD, one) for one in site.pods(where) if self._uid in owners(one, where.name)]
        services = seen(lambda: where.kube.list(SERVICE, namespace=where.namespace)).found or []
        return [*found, *((SERVICE, one) for one in services if self._uid in owners(one, where.name))]
