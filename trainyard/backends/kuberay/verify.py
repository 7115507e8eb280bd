"""`image.verify`: a probe pod on every eligible host runs the image."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from trainyard import versions, wording
from trainyard.backends.contract import LINT, HostResult, Site, Verified
from trainyard.backends.kuberay import desired, diagnosis, location, naming, objects, pods, snapshot
from trainyard.backends.kuberay.debounce import PULL, Debounce
from trainyard.backends.kuberay.diagnosis.host import NoHostError
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.manifest import pod as pod_parts
from trainyard.backends.kuberay.pods import Ended
from trainyard.backends.kuberay.snapshot import Snapshot, if_allowed
from trainyard.errors import OutsideError, PrerequisiteError, TrainyardError
from trainyard.images import resolve
from trainyard.images.resolve import PinnedImage
from trainyard.seams.kube.types import NODE, POD, SECRET, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection, PodGroup, Toleration
from trainyard.steps import Clock

SCRIPT = "import ray; open('/dev/termination-log', 'w').write(ray.__version__)"
# Probe pods have the cluster's label, too.
LABEL = "io.trainyard/probe"
POLL_SECONDS = 0.5
# `import ray` takes 150 MB. The requests are smaller, so that a full host takes the probe.
REQUESTS = {"cpu": "10m", "memory": "16Mi"}
LIMITS = {"cpu": "2", "memory": "4Gi"}
# The reasons of a container whose program ended by itself. Other reasons are Kubernetes'
# (OOMKilled, StartError, ContainerCannotRun).
_RAN = ("Completed", "Error")


def verify(
    spec: ClusterSpec, site: Site, section: KuberaySection, *, report: Callable[[str], None]
) -> Verified:
    """Let every eligible host pull the images by digest, and run them.

    Makes a probe pod on each host, and removes it. Raises RegistryError if the
    registry lacks an image, and PrerequisiteError if no host takes a probe pod.
    """
    where = location.find(spec, site, section)
    image = resolve.pinned(spec, site.environ, directory=site.directory)
    images = resolve.of_groups(spec, site.environ, directory=site.directory)
    hosts: list[HostResult] = []
    remarks: list[str] = []
    for distinct in resolve.distinct(image, images):
        groups = [name for name in spec.groups() if images.get(name, image) == distinct]
        found = _verified_on(where, spec, distinct, hosts_of(where, spec, groups), report)
        hosts += found.hosts
        if found.remark and found.remark not in remarks:
            remarks.append(found.remark)
    return Verified(tuple(hosts), "; ".join(remarks))


def _verified_on(
    where: Location,
    spec: ClusterSpec,
    image: PinnedImage,
    hosts: Sequence[str | None],
    report: Callable[[str], None],
) -> Verified:
    with login(where, image) as pull_secrets:
        probes = {}
        for host in hosts:
            probes[host or "the node"] = probe(where, spec, image, pull_secrets, host)
        found = verified(run(where, image, probes, report=report), image)
    if None in hosts:
        remark = "you may not list the Kubernetes nodes: only one was tried, which Kubernetes chose"
        return Verified(found.hosts, "; ".join(filter(None, (image.remark, remark))))
    return found


def hosts_of(where: Location, spec: ClusterSpec, groups: Sequence[str]) -> list[str | None]:
    """Ask for the hosts that match one of these groups' node selectors.

    Returns [None], meaning any one host, if the user may not list hosts.
    """
    hosts = if_allowed(where.kube.list, NODE)
    if hosts is None:
        return [None]

    selectors = [_placement(where.section, spec, name).node_selector for name in groups]
    names: list[str | None] = []
    for host in sorted(hosts, key=pods.name):
        labels = pods.labels_of(host)
        if any(selector.items() <= labels.items() for selector in selectors):
            names.append(pods.name(host))

    if not names:
        raise PrerequisiteError(
            f"no Kubernetes node has the labels that cluster {spec.name} asks for",
            where=where.kube.place,
            hint="See node_selector under `kuberay:` in the cluster file, and kubectl get nodes "
            "--show-labels.",
        )

    return names


def verified(results: Sequence[HostResult], image: PinnedImage) -> Verified:
    """Return the results of the hosts that took a probe pod.

    The remark names the other hosts (tainted, cordoned, full). Raises the first
    host's error if no host took a pod.
    """
    refused = [result for result in results if isinstance(result.error, NoHostError)]
    if len(refused) == len(results) and refused[0].error:
        raise refused[0].error
    remarks = [image.remark]
    if refused:
        names = ", ".join(result.host for result in refused)
        remarks.append(f"not tried, because they take no pod of this cluster now: {names}")
    tried = tuple(result for result in results if result not in refused)
    return Verified(tried, "; ".join(filter(None, remarks)))


@contextmanager
def login(where: Location, image: PinnedImage) -> Iterator[tuple[str, ...]]:
    """Yield the pull Secrets: for a login a temporary one, then the file's.

    The temporary Secret is removed at the end.
    """
    named = where.section.pull_secrets
    name = naming.verify_secret(where.name)
    secret = desired.pull_secret(where.name, [image], others=named, name=name)
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


def _placement(section: KuberaySection, spec: ClusterSpec, group: str) -> PodGroup:
    gpus = spec.groups()[group].gpus
    if section.simulated_gpus:
        gpus = 0
    return section.pods(group, gpus=gpus)


def probe(
    where: Location,
    spec: ClusterSpec,
    image: PinnedImage,
    pull_secrets: Sequence[str],
    host: str | None,
) -> Object:
    """Return a probe pod, which is like the cluster's pods, with tiny requests.

    Without `host`, the pod may run on any host that matches the head's node
    selector.
    """
    section = where.section
    groups = [_placement(section, spec, name) for name in spec.groups()]
    # `hosts_of` has compared the host's labels already.
    tolerations: list[Toleration] = []
    for group in groups:
        tolerations += group.tolerations
    if spec.head.gpus or any(group.gpus for group in spec.workers):
        tolerations.append(Toleration(key=section.gpu_resource, effect="NoSchedule"))

    node_selector: dict[str, str] | None = dict(groups[0].node_selector)
    affinity = None
    if host:
        node_selector = None
        affinity = {"nodeAffinity": _only_on(host)}

    pod = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(PULL),
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "serviceAccountName": section.service_account,
        "imagePullSecrets": [{"name": secret} for secret in pull_secrets] or None,
        "nodeSelector": node_selector,
        "tolerations": [toleration.model_dump(exclude_none=True) for toleration in tolerations],
        "affinity": affinity,
        "priorityClassName": groups[0].priority_class,
        "securityContext": pod_parts.pod_security(section.security),
        "containers": [_container(section, image)],
    }

    name = f"{where.name}-verify-{secrets.token_hex(3)}"
    labels = {**section.labels, **naming.labels(where.name)}
    metadata = {
        "name": name,
        "labels": {**labels, LABEL: "verify"},
        "annotations": dict(section.annotations),
    }

    return {"metadata": metadata, "spec": pod}


def _only_on(host: str) -> Object:
    """Return the node affinity that ties a pod to a host, as DaemonSets do.

    Unlike `nodeName`, it lets the scheduler report why the host does not fit.
    """
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


def _container(section: KuberaySection, image: PinnedImage) -> Object:
    # The probe must see no GPU: an image may set NVIDIA_VISIBLE_DEVICES=all, which a host may grant
    # by default.
    env = {**pod_parts.home(section.security, directory="/tmp"), "NVIDIA_VISIBLE_DEVICES": "void"}  # noqa: S108
    return {
        "name": "probe",
        "image": image.reference,
        # The pull must reach the registry even if the host has the image.
        "imagePullPolicy": "Always",
        "command": ["python", "-c", SCRIPT],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "resources": {"limits": LIMITS, "requests": REQUESTS},
        "securityContext": pod_parts.container_security(section.security),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def run(
    where: Location,
    image: PinnedImage,
    probes: Mapping[str, Object],
    *,
    report: Callable[[str], None] = lambda text: None,
    clock: Clock | None = None,
) -> list[HostResult]:
    """Make the probe pods (by host), wait until they end, and remove them.

    Probe pods of a killed command are removed first. Raises the API's error if
    it rejects a pod.
    """
    _remove(where)
    try:
        for pod in probes.values():
            where.kube.create(POD, pod, namespace=where.namespace)
        return _results(where, image, probes, report, clock or Clock())
    finally:
        # This must not hide an earlier error. The next command cleans up again.
        with suppress(TrainyardError):
            _remove(where)


def _results(
    where: Location,
    image: PinnedImage,
    probes: Mapping[str, Object],
    report: Callable[[str], None],
    clock: Clock,
) -> list[HostResult]:
    """Poll the pods until each has ended, or a cause outlasts its tolerance.

    A placed pod ends at its own deadline, `activeDeadlineSeconds`.
    """
    titles = {pods.name(pod): title for title, pod in probes.items()}
    debounces = {name: Debounce(now=clock.now) for name in titles}
    results: dict[str, HostResult] = {}
    began = clock.now()
    reported = ""

    while running := [name for name in titles if name not in results]:
        names = wording.named([titles[name] for name in running])
        if names != reported:
            reported = names
            report(f"pulls and runs on {names}")

        clock.sleep(POLL_SECONDS)
        listed = {pods.name(pod): pod for pod in _listed(where)}
        observed = snapshot.of_pods(
            where.kube,
            where.namespace,
            listed.values(),
            name=lambda pod: f"the pod on {titles[pods.name(pod)]}",
        )

        for name in running:
            pod = listed.get(name)
            end = _end(titles[name], pod, observed, debounces[name])
            if end:
                host = titles[name]
                if pod and pods.host(pod):
                    host = pods.host(pod)
                results[name] = result(end, host, image, clock.now() - began)

    return [results[name] for name in titles]


def _end(
    title: str, pod: Object | None, observed: Snapshot, debounce: Debounce
) -> Ended | TrainyardError | None:
    """Return how a probe ended, or why it cannot; None while it still may."""
    if pod is None or pods.is_leaving(pod):
        hint = "Another user gave the same command, or the node was drained: repeat the command."
        return OutsideError(f"{title}: its pod was removed while it ran", hint=hint)

    for container in pods.containers(pod):
        if container.ended and container.ended.reason in _RAN:
            return container.ended

    cause = diagnosis.of_pod(pod, observed)
    causes = []
    if cause:
        causes.append(cause)
    expired = debounce.expired(causes)
    if pods.phase(pod) != "Failed" and not expired:
        return None
    if cause:
        return diagnosis.to_error(cause, f"namespace {observed.namespace}")

    return OutsideError(
        f"{title}: its pod failed", where=str((pod.get("status") or {}).get("reason") or "")
    )


def result(
    end: Ended | TrainyardError, host: str, image: PinnedImage, seconds: float
) -> HostResult:
    """Return a host's result; it is ok only with the expected Ray version."""
    if isinstance(end, TrainyardError):
        return HostResult(host, image.reference, seconds, end.what, end)
    output = end.message.strip()
    if end.code == 0 and output == versions.RAY:
        return HostResult(host, image.reference, seconds, f"ray {output}")

    what = f"image {image.name} does not run on {host} as a Ray {versions.RAY} node"
    if end.code == 0:
        error = OutsideError(f"{what}: it has Ray {output}", where=image.reference, hint=LINT)
    else:
        last = (output.splitlines() or ["no output"])[-1][-300:]
        error = OutsideError(what, where=f"python: exit code {end.code}; {last}", hint=LINT)
    return HostResult(host, image.reference, seconds, error.what, error)


def _remove(where: Location) -> None:
    for found in _listed(where):
        where.kube.delete(POD, pods.name(found), namespace=where.namespace)


def _listed(where: Location) -> list[Object]:
    labels = f"{naming.of_cluster(where.name)},{LABEL}=verify"
    return where.kube.list(POD, namespace=where.namespace, labels=labels)
