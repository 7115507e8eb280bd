"""`image.verify` on Kubernetes: a pod on every host that could run the cluster pulls the image and runs it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trainyard import lock, versions
from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import desired, location, naming, objects, pods, probe_pods
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.manifest.pod import HEAD, nodes, tolerations
from trainyard.backends.kuberay.probe_pods import Outcome, Probe
from trainyard.backends.kuberay.snapshot import cluster_pods, if_allowed
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.images.types import LINT, HostResult, PinnedImage, Verified
from trainyard.seams.kube.types import NAMESPACE, NODE, SECRET, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection, PodPlacement

SCRIPT = "import ray; open('/dev/termination-log', 'w').write(ray.__version__)"
Report = Callable[[str], None]


@dataclass(frozen=True)
class Hosts:
    """The hosts to try, each with how the cluster's pods get there; None: wherever there is room."""

    found: tuple[tuple[str | None, PodPlacement], ...]
    remark: str = ""


def verify(spec: ClusterSpec, tools: Tools, section: KuberaySection, *, report: Report) -> Verified:
    """Let every host that could run the cluster pull the image by its digest and run it.

    Raises PrerequisiteError without the namespace, and what the registry says where it does not hold the image.
    """
    where = location.find(spec, tools, section)
    reply = if_allowed(lambda: where.kube.get(NAMESPACE, where.namespace))
    if reply.found is None and reply.refusal is None:
        raise PrerequisiteError(
            f"there is no namespace {where.namespace} to run a pod in",
            where=where.kube.place,
            hint=f"Make the cluster: invoke cluster.up; or the namespace alone: kubectl create namespace "
            f"{where.namespace}",
        )
    image = desired.pinned(spec, tools)
    hosts = hosts_of(where, spec)
    with _alone(tools, report), login(where, image) as pull_secrets:
        probes = [_probe(where, image, pull_secrets, host, placement) for host, placement in hosts.found]
        outcomes = probe_pods.run(where, probes, report=report)
    remark = "; ".join(filter(None, (image.remark, hosts.remark)))
    return Verified(tuple(result(outcome, image) for outcome in outcomes), remark)


def hosts_of(where: Location, spec: ClusterSpec) -> Hosts:
    """Return where to try, as far as the user may see the hosts. Raises PrerequisiteError if it could run nowhere."""
    listed = if_allowed(lambda: where.kube.list(NODE)).found
    if listed is None:
        return _known(where)
    section = where.section
    groups = [(section.placement(node.group), node.gpus) for node in nodes(spec, section)]
    found, left_out = [], {}
    for host in sorted(listed, key=lambda host: str(host["metadata"]["name"])):
        reasons = [_keeps_out(host, placement, gpus, section) for placement, gpus in groups]
        if "" in reasons:
            found.append((host["metadata"]["name"], groups[reasons.index("")][0]))
        else:
            left_out[host["metadata"]["name"]] = reasons[0]
    if not found:
        raise PrerequisiteError(
            f"no Kubernetes node could run cluster {spec.name}",
            where="; ".join(f"{name}: {why}" for name, why in left_out.items()) or f"{where.kube.place} has no nodes",
            hint="See node_selector and tolerations under `kuberay:` in the cluster file, and kubectl describe nodes.",
        )
    absent = [f"{name} ({why})" for name, why in left_out.items() if why in ("cordoned", "not ready")]
    return Hosts(tuple(found), f"not tried: {', '.join(absent)}" if absent else "")


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


def _keeps_out(host: Object, placement: PodPlacement, gpus: int, section: KuberaySection) -> str:
    """Return why pods may not run on a host whatever is free there, "" if they may."""
    spec = host.get("spec") or {}
    if spec.get("unschedulable"):
        return "cordoned"
    if pods.condition(host, "Ready").get("status") != "True":
        return "not ready"
    labels = host["metadata"].get("labels") or {}
    lacking = [f"{key}={value}" for key, value in placement.node_selector.items() if labels.get(key) != value]
    if lacking:
        return f"without label {' and '.join(lacking)}"
    gpu = section.gpu_resource if gpus and not section.simulated_gpus else None
    tolerated = tolerations(placement, gpu)
    for taint in spec.get("taints") or ():
        if taint.get("effect") != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in tolerated):
            return f"taint {taint['key']}:{taint['effect']} is not tolerated"
    offered = ((host.get("status") or {}).get("allocatable") or {}).get(gpu or "", "0")
    return f"fewer than {gpus} {gpu}" if gpu and pods.quantity(str(offered)) < gpus else ""


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Say whether a toleration covers a taint (k8s.io/api/core/v1, Toleration.ToleratesTaint)."""
    if any(toleration.get(key) and toleration[key] != taint.get(key) for key in ("effect", "key")):
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")


def _known(where: Location) -> Hosts:
    """Return the hosts that the cluster's own pods are on: who may not list hosts still sees those."""
    section = where.section
    found = {pods.host(pod): section.placement(pods.group(pod)) for pod in cluster_pods(where) if pods.host(pod)}
    said = "you may not list the Kubernetes nodes, so that only"
    if found:
        return Hosts(tuple(sorted(found.items())), f"{said} those were tried that run the cluster")
    return Hosts(((None, section.placement(HEAD)),), f"{said} one was tried, of Kubernetes' choice")


def _probe(
    where: Location, image: PinnedImage, pull_secrets: tuple[str, ...], host: str | None, placement: PodPlacement
) -> Probe:
    pod = probe_pods.pod(
        where,
        f"{where.name}-verify-{secrets.token_hex(3)}",
        image=image.reference,
        command=["python", "-c", SCRIPT],
        pull_secrets=pull_secrets,
        placement=placement,
        host=host,
    )
    return Probe(host or "the node", pod)


@contextmanager
def login(where: Location, image: PinnedImage) -> Iterator[tuple[str, ...]]:
    """Hand over a login for the image, yield the names of all Secrets to pull with, and take it back."""
    named = where.section.pull_secrets
    name = naming.verify_secret(where.name)
    made = desired.pull_secret(where.name, image, others=named, name=name)
    if made is None:
        yield tuple(named)
        return
    there = where.kube.get(SECRET, name, namespace=where.namespace)
    if there is not None:
        objects.refuse_foreign(there, where, SECRET)
    where.kube.apply(SECRET, made, namespace=where.namespace)
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
