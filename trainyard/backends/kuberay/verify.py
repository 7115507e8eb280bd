"""`image.verify` on Kubernetes: a pod on every host that the cluster could run on pulls the image and runs it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainyard import versions
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import desired, location, naming, objects, probe_pods
from trainyard.backends.kuberay.groups import HEAD
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.probe_pods import Outcome, Probe
from trainyard.backends.kuberay.snapshot import if_allowed
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.images.types import LINT, HostResult, PinnedImage, Verified
from trainyard.seams.kube.types import NODE, SECRET
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection, Toleration

SCRIPT = "import ray; open('/dev/termination-log', 'w').write(ray.__version__)"


def verify(spec: ClusterSpec, tools: Tools, section: KuberaySection, *, report: Callable[[str], None]) -> Verified:
    """Let every host that could run the cluster pull the image by its digest and run it.

    Raises what the registry says where it does not hold the image, and PrerequisiteError if no host takes the pod.
    """
    where = location.find(spec, tools, section)
    image = desired.pinned(spec, tools)
    hosts = hosts_of(where, spec)
    with login(where, image) as pull_secrets:
        outcomes = probe_pods.run(
            where, [_probe(where, spec, image, pull_secrets, host) for host in hosts], report=report
        )
    tried, remark = judged(outcomes)
    if None in hosts:
        remark = "you may not list the Kubernetes nodes, so that only one was tried, of Kubernetes' choice"
    results = tuple(result(outcome, image) for outcome in tried)
    return Verified(results, "; ".join(filter(None, (image.remark, remark))))


def hosts_of(where: Location, spec: ClusterSpec) -> list[str | None]:
    """Return the hosts with the labels that some group asks for; [None], any one, where they may not be listed."""
    hosts = if_allowed(lambda: where.kube.list(NODE)).found
    if hosts is None:
        return [None]
    selectors = [where.section.placement(name).node_selector for name in (HEAD, *(each.name for each in spec.workers))]
    names: list[str | None] = [
        str(host["metadata"]["name"])
        for host in sorted(hosts, key=lambda host: str(host["metadata"]["name"]))
        if any(selector.items() <= (host["metadata"].get("labels") or {}).items() for selector in selectors)
    ]
    if not names:
        raise PrerequisiteError(
            f"no Kubernetes node has the labels that cluster {spec.name} asks for",
            where=where.kube.place,
            hint="See node_selector under `kuberay:` in the cluster file, and kubectl get nodes --show-labels.",
        )
    return names


def judged(outcomes: list[Outcome]) -> tuple[list[Outcome], str]:
    """Return the outcomes of hosts that took the pod, and which did not: tainted, cordoned, full.

    Raises the error of the first one if none did.
    """
    refused = {id(each): each.error for each in outcomes if isinstance(each.error, PrerequisiteError) and not each.host}
    tried = [outcome for outcome in outcomes if id(outcome) not in refused]
    if not tried:
        raise next(iter(refused.values()))
    names = [outcome.title for outcome in outcomes if id(outcome) in refused]
    return tried, f"not tried, for they take no pod of this cluster now: {', '.join(names)}" if names else ""


def result(outcome: Outcome, image: PinnedImage) -> HostResult:
    """Return what a pod says about its host."""
    host = outcome.host or outcome.title
    error = outcome.error
    if error is None and (outcome.code, outcome.output) != (0, versions.RAY):
        last = (outcome.output.splitlines() or ["it said nothing"])[-1][-300:]
        has = f": it has Ray {outcome.output}" if outcome.code == 0 else ""
        error = OutsideError(
            f"image {image.name} does not run on {host} as a Ray {versions.RAY} node{has}",
            where=image.reference if outcome.code == 0 else f"python: exit code {outcome.code}; {last}",
            hint=LINT,
        )
    return HostResult(host, image.reference, outcome.seconds, error.what if error else f"ray {outcome.output}", error)


def _probe(
    where: Location, spec: ClusterSpec, image: PinnedImage, pull_secrets: tuple[str, ...], host: str | None
) -> Probe:
    section = where.section
    groups = [section.placement(name) for name in (HEAD, *(each.name for each in spec.workers))]
    # What any group tolerates; the labels of the host were looked at already.
    tolerations = [each for group in groups for each in group.tolerations]
    if spec.head.gpus or any(group.gpus for group in spec.workers):
        tolerations.append(Toleration(key=section.gpu_resource, effect="NoSchedule"))
    update = {"tolerations": tuple(tolerations), **({"node_selector": {}} if host else {})}
    pod = probe_pods.pod(
        where,
        f"{where.name}-verify-{secrets.token_hex(3)}",
        image=image.reference,
        command=["python", "-c", SCRIPT],
        pull_secrets=pull_secrets,
        placement=groups[0].model_copy(update=update),
        host=host,
    )
    return Probe(host or "the node", pod)


@contextmanager
def login(where: Location, image: PinnedImage) -> Iterator[tuple[str, ...]]:
    """Hand over a login for the image, yield the names of all Secrets to pull with, and take it back."""
    named = where.section.pull_secrets
    name = naming.verify_secret(where.name)
    secret = desired.pull_secret(where.name, image, others=named, name=name)
    if secret is None:
        yield tuple(named)
        return
    existing = where.kube.get(SECRET, name, namespace=where.namespace)
    if existing is not None:
        objects.refuse_foreign(existing, where, SECRET)
    where.kube.apply(SECRET, secret, namespace=where.namespace)
    try:
        yield (name, *named)
    finally:
        where.kube.delete(SECRET, name, namespace=where.namespace)
