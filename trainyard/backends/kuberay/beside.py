"""What Kubernetes keeps beside objects that do not run: their events, their hosts, and what their containers said.

Only about those objects: namespaces have other people's events, and a large Kubernetes megabytes of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import event
from trainyard.backends.kuberay.causes.facts import Host
from trainyard.backends.kuberay.causes.facts import Object as Seen
from trainyard.backends.kuberay.there import seen, side_by_side
from trainyard.errors import TrainyardError
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import EVENT, LEASE, NODE, Object

# A question names one object (kubernetes/pkg/registry/core/event, ToSelectableFields): for more, the namespace's events
# are read at once.
ONE_BY_ONE = 8
# Where kubelets keep their leases (kubernetes/pkg/apis/core, NamespaceNodeLease).
LEASES = "kube-node-lease"


def events(kube: Kube, namespace: str, about: Iterable[Seen]) -> tuple[Object, ...]:
    """Return the events of some objects, the oldest first; none where the user may not see them."""
    uids = [str(one["metadata"]["uid"]) for one in about]
    try:
        if len(uids) > ONE_BY_ONE:
            every = kube.list(EVENT, namespace=namespace)
            found = [one for one in every if (one.get("involvedObject") or {}).get("uid") in frozenset(uids)]
        else:
            each = side_by_side(
                lambda uid: kube.list(EVENT, namespace=namespace, fields=f"involvedObject.uid={uid}"), uids
            )
            found = [one for several in each for one in several]
    except ForbiddenError:
        return ()
    return tuple(sorted(found, key=event.when))


def unready(found: Iterable[Seen]) -> list[Seen]:
    """Return the pods about which more must be known."""
    return [one for one in found if pods.is_leaving(one) or not pods.is_ready(one)]


def hosts(kube: Kube, found: Iterable[Seen]) -> dict[str, Host | None]:
    """Return the Kubernetes nodes of some pods, None for one that is gone; {} where the user may not see them."""
    names: Sequence[str] = sorted({pods.host(one) for one in found if pods.host(one)})
    try:
        return dict(zip(names, side_by_side(lambda name: _host(kube, name), names), strict=True))
    except ForbiddenError:
        return {}


def _host(kube: Kube, name: str) -> Host | None:
    node = kube.get(NODE, name)
    if node is None:
        return None
    if pods.condition(node, "Ready").get("status") == "True":
        return Host(node)
    # Not everybody who may see nodes may see these.
    return Host(node, seen(lambda: kube.get(LEASE, name, namespace=LEASES)).found)


def words(kube: Kube, pod: Seen, container: str, *, namespace: str, former: bool, lines: int) -> str:
    """Return the last lines of a container, or that they cannot be read: that is no reason to say nothing about it."""
    try:
        return kube.logs(pods.name(pod), namespace=namespace, container=container, previous=former, lines=lines)
    except TrainyardError as error:
        return f"(its log cannot be read: {error.what})"
