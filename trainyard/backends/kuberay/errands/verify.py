"""`image.verify` on Kubernetes: a pod on every node that could run the cluster pulls the image and runs it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone

from trainyard import lock, versions
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import image as exact_image
from trainyard.backends.kuberay import names, objects, pods, pull, site
from trainyard.backends.kuberay.capacity import hosts
from trainyard.backends.kuberay.capacity.hosts import Host
from trainyard.backends.kuberay.documents import nodes, pod_parts
from trainyard.backends.kuberay.errands import errand, errand_pod
from trainyard.backends.kuberay.errands.errand import PULL_SECONDS, RUN_SECONDS, Errand, Outcome
from trainyard.backends.kuberay.site import Site
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.images.types import PinnedImage
from trainyard.images.verified import LINT, HostResult, Verified
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import NAMESPACE, NODE, SECRET
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import PodPlacement

PURPOSE = "verify"
SCRIPT = "import ray; open('/dev/termination-log', 'w').write(ray.__version__)"
Report = Callable[[str], None]


@dataclass(frozen=True)
class Places:
    """The Kubernetes nodes to try, each with how the cluster's pods get there; None: wherever there is room."""

    found: tuple[tuple[str | None, PodPlacement], ...]
    remark: str = ""


def verify(spec: ClusterSpec, tools: Tools, *, report: Report) -> Verified:
    """Let every Kubernetes node that could run the cluster pull the image by its digest and run it.

    Raises PrerequisiteError without the namespace, and what the registry says where it does not hold the image.
    """
    where = site.find(spec, tools)
    _refuse_missing(where)
    image = exact_image.pinned(spec, tools, where)
    places = places_of(where, spec)
    with _alone(tools, report), login(spec, where, image) as pull_secrets:
        todo = [_errand(spec, image, pull_secrets, host, place) for host, place in places.found]
        outcomes = errand.run(where, todo, purpose=PURPOSE, report=report)
    remark = "; ".join(one for one in (image.remark, places.remark) if one)
    return Verified(tuple(result(one, image) for one in outcomes), remark)


def places_of(where: Site, spec: ClusterSpec) -> Places:
    """Return where to try, as far as the user may see the Kubernetes nodes.

    Raises PrerequisiteError if the cluster could run nowhere.
    """
    try:
        there = hosts.hosts(where.kube.list(NODE), (), ours=())
    except ForbiddenError:
        return _known(where, spec)
    found, left_out = [], []
    for host in there:
        fitting = [place for place in _placements(spec) if not _keeps_out(host, place)]
        if fitting:
            found.append((host.name, fitting[0].place))
        elif host.refuses:
            left_out.append(f"{host.name} ({host.refuses})")
    if not found:
        listed = "; ".join(f"{host.name}: {_keeps_out(host, _placements(spec)[0])}" for host in there)
        raise PrerequisiteError(
            f"no Kubernetes node could run cluster {spec.name}",
            where=listed or f"{where.kube.place} has no nodes",
            hint="See node_selector and tolerations under `kuberay:` in the cluster file, and kubectl describe nodes.",
        )
    return Places(tuple(found), f"not tried: {', '.join(left_out)}" if left_out else "")


def result(outcome: Outcome, image: PinnedImage) -> HostResult:
    """Return what a pod says about its host."""
    host = outcome.host or outcome.title
    error = outcome.error
    if error is None and (outcome.code, outcome.said) != (0, versions.RAY):
        said = outcome.said.splitlines()[-1:] or ["it said nothing"]
        has = f": it has Ray {outcome.said}" if outcome.code == 0 else ""
        error = OutsideError(
            f"image {image.name} does not run on {host} as a Ray {versions.RAY} node{has}",
            where=image.reference if outcome.code == 0 else f"python: exit code {outcome.code}; {said[0][-300:]}",
            hint=LINT,
        )
    seen = error.what if error else f"ray {outcome.said}"
    return HostResult(host, image.reference, outcome.seconds, seen, error)


@dataclass(frozen=True)
class _Placement:
    """Where a group's pods may run; `gpus` it must find there, of `resource`."""

    place: PodPlacement
    resource: str
    gpus: int


def _placements(spec: ClusterSpec) -> Sequence[_Placement]:
    section = spec.kuberay
    return [
        _Placement(section.placement(node.group), section.gpu_resource, 0 if section.simulated_gpus else node.gpus)
        for node in nodes.nodes(spec)
    ]


def _keeps_out(host: Host, wanted: _Placement) -> str:
    tolerations = pod_parts.tolerations(wanted.place, wanted.resource if wanted.gpus else None)
    why = hosts.keeps_out(host, selector=wanted.place.node_selector, tolerations=tolerations)
    if not why and host.has.get(wanted.resource, 0) < wanted.gpus * 1000:
        return f"fewer than {wanted.gpus} {wanted.resource}"
    return why


def _known(where: Site, spec: ClusterSpec) -> Places:
    """Return the nodes that the cluster's own pods are on: who may not list nodes still sees those."""
    section = spec.kuberay
    found = {pods.host(one): section.placement(pods.group(one)) for one in site.pods(where) if pods.host(one)}
    said = "you may not list the Kubernetes nodes, so that only"
    if found:
        return Places(tuple(sorted(found.items())), f"{said} those were tried that run the cluster")
    return Places(((None, section.placement(nodes.HEAD)),), f"{said} one was tried, of Kubernetes' choice")


def _errand(
    spec: ClusterSpec, image: PinnedImage, pull_secrets: Sequence[str], host: str | None, place: PodPlacement
) -> Errand:
    pod = errand_pod.pod(
        spec,
        errand_pod.Wanted(
            name=f"{spec.name}-{PURPOSE}-{secrets.token_hex(3)}",
            purpose=PURPOSE,
            image=image.reference,
            command=["python", "-c", SCRIPT],
            pull_secrets=pull_secrets,
            place=place,
            seconds=int(PULL_SECONDS + RUN_SECONDS),
            host=host,
        ),
    )
    return Errand(host or "the node", pod)


def _refuse_missing(where: Site) -> None:
    try:
        found = where.kube.get(NAMESPACE, where.namespace)
    except ForbiddenError:
        return
    if found is None:
        raise PrerequisiteError(
            f"there is no namespace {where.namespace} to run a pod in",
            where=where.kube.place,
            hint=f"Make the cluster: invoke cluster.up; or the namespace alone: "
            f"kubectl create namespace {where.namespace}",
        )


@contextmanager
def login(spec: ClusterSpec, where: Site, image: PinnedImage) -> Iterator[tuple[str, ...]]:
    """Hand over a login for the image, yield the names of all Secrets to pull with, and take it back."""
    named = spec.kuberay.pull_secrets
    made = pull.secret(spec.name, image, others=named, now=datetime.now(timezone.utc))
    if made is None:
        yield tuple(named)
        return
    name = names.verify_secret(spec.name)
    there = where.kube.get(SECRET, name, namespace=where.namespace)
    if there is not None:
        objects.refuse_foreign(there, where, "Secret")
    where.kube.apply(SECRET, {**made, "metadata": {**made["metadata"], "name": name}}, namespace=where.namespace)
    try:
        yield (name, *named)
    finally:
        where.kube.delete(SECRET, name, namespace=where.namespace)


@contextmanager
def _alone(tools: Tools, report: Report) -> Iterator[None]:
    """Keep another image.verify of this machine from removing our pods as left-overs."""
    path = tools.state.with_name(f"{tools.state.name}.verify.lock")
    with lock.held(path, waiting=lambda: report("waits for another image.verify"), keep=lambda: False):
        yield
