"""Workers whose head was replaced: Ray lets them wait a minute for it; KubeRay makes others at once."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.backends import wording
from trainyard.backends.kuberay import names, site, stale, way_in
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes.facts import Object
from trainyard.backends.kuberay.objects import token
from trainyard.backends.kuberay.ready import Waiting
from trainyard.backends.kuberay.site import Site
from trainyard.seams.kube.types import POD
from trainyard.seams.ray_api import RefusedError
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

# As long as Ray may take to start the head on a busy machine, and its image to come.
HEAD_SECONDS = 3600.0


def steps(spec: ClusterSpec, where: Site, found: Sequence[Object], *, after: str | None) -> list[Step]:
    """Return the steps after which no worker waits for a head that is gone, [] if none can."""
    if not older_than_head(found):
        return []
    waiting = Waiting(spec, where)

    def head_answers() -> Answer:
        now = site.pods(where)
        head = _head(now)
        try:
            if head is not None and pods.is_ready(head) and way_in.alive(where, token(where), now) is not None:
                return YES
        except RefusedError as error:
            return waiting.refused(error)
        return no(waiting.done().detail or "waiting for the head")

    deleted: set[str] = set()

    def replaced() -> Answer:
        now = site.pods(where)
        # Ray ends with an error without its head: what waits for the others must not take that for theirs.
        left = [*_lost(where, now), *(one for one in now if pods.uid(one) in deleted)]
        return no(f"not in Ray: {wording.named([names.node_name(one) for one in left])}") if left else YES

    def replace() -> None:
        for one in _lost(where, site.pods(where)):
            deleted.add(pods.uid(one))
            where.kube.delete(POD, pods.name(one), namespace=where.namespace, uid=pods.uid(one))

    head = Step("Wait for the head", head_answers, waiting.begin, deadline=HEAD_SECONDS, every=1.0, after=after)
    return [head, Step("Replace workers whose head is gone", replaced, replace, every=1.0, after=head.title)]


def older_than_head(found: Sequence[Object]) -> list[Object]:
    """Return the workers that began before the head that there is, or that have none."""
    head = _head(found)
    since = stale.started(head) if head is not None and pods.is_ready(head) else float("inf")
    return [one for one in found if not pods.is_head(one) and 0 < stale.started(one) < since]


def _head(found: Sequence[Object]) -> Object | None:
    return next((one for one in found if pods.is_head(one) and not pods.is_leaving(one)), None)


def _lost(where: Site, found: Sequence[Object]) -> tuple[Object, ...]:
    try:
        return stale.lost_workers(found, way_in.alive(where, token(where), found))
    except RefusedError:
        # Whoever waits for the nodes says so.
        return ()
