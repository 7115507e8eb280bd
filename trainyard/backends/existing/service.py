"""Another owner's Ray cluster on Kubernetes, at the pod behind a service."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.backends.contract import Site
from trainyard.backends.kuberay import pods
from trainyard.backends.shared.record import TOKEN_KEY, secret_token
from trainyard.errors import NotReadyError, PrerequisiteError, RequestError
from trainyard.seams.kube import api, config, forward
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import POD, SECRET, SERVICE, Object
from trainyard.spec.cluster import ExistingSection


class MissingServiceError(PrerequisiteError):
    """The file's service does not exist; waiting would not help."""


@dataclass(frozen=True)
class Service:
    """The cluster file's service; it need not exist."""

    kube: Kube
    namespace: str
    name: str
    port: int

    @property
    def location(self) -> str:
        return f"namespace {self.namespace} of context {self.kube.context}"

    @property
    def tunnel(self) -> str:
        return f"service {self.name} in {self.location}"


def named(section: ExistingSection, site: Site) -> Service:
    """Return the file's service, without a query.

    Raises PrerequisiteError for a missing context.
    """
    access = config.access(
        site.environ,
        kubeconfig=section.kubeconfig,
        context=section.context,
        relative_to=site.source.parent if site.source else None,
    )
    namespace, _, name = (section.service or "").partition("/")
    return Service(api.connect(access), namespace, name, section.port)


def address(service: Service) -> str:
    """Forward the service's port; return its URL on this machine.

    The URL is valid while this process lives. Raises MissingServiceError;
    NotReadyError if no pod behind the service runs; RequestError if the port
    leads to no port of the pods.
    """
    described = service.kube.get(SERVICE, service.name, service.namespace)
    if described is None:
        raise MissingServiceError(
            f"there is no service {service.name}",
            where=service.location,
            hint="KubeRay calls the service of a RayCluster NAME `NAME-head-svc`: "
            f"kubectl get services -n {service.namespace}",
        )

    pod = pod_behind(service, described)
    if pod is None:
        raise NotReadyError(
            f"service {service.name} has no pod that runs",
            where=service.location,
            hint="Is the Ray cluster up? Its administrator can say.",
        )

    def find() -> str | None:
        found = pod_behind(service, described)
        return pods.name(found) if found else None

    port = forward.forward(
        service.kube,
        namespace=service.namespace,
        find=find,
        port=port_of(service, described, pod),
        what=f"service {service.name}",
    )
    return f"http://{forward.LOOPBACK}:{port}"


def token(service: Service, secret: str) -> str:
    """Ask for the token in this Secret; PrerequisiteError without one."""
    value = secret_token(service.kube.get(SECRET, secret, service.namespace) or {})
    if value is None:
        raise PrerequisiteError(
            f"the cluster's token is expected in Secret {secret}, key {TOKEN_KEY}, which is "
            "missing or empty",
            where=service.location,
            hint="KubeRay calls a Secret like its RayCluster: kubectl get rayclusters "
            "--all-namespaces",
        )
    return value


def pod_behind(service: Service, described: Object) -> Object | None:
    """Ask for a running pod behind the service, preferably a ready one.

    None if no such pod runs, or the service has no selector.
    """
    selector = described["spec"].get("selector")
    if not selector:
        return None

    labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    selected = service.kube.list(POD, namespace=service.namespace, labels=labels)
    running = [pod for pod in selected if pods.is_running(pod)]
    return max(running, key=pods.is_ready, default=None)


def port_of(service: Service, described: Object, pod: Object) -> int:
    """Return the pod's port behind the service's port: the `targetPort`."""
    ports = {}
    for port in described["spec"].get("ports") or ():
        ports[int(port["port"])] = port.get("targetPort") or port["port"]

    named = {}
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            named[port.get("name")] = int(port["containerPort"])
    target = ports.get(service.port)
    inside = target if isinstance(target, int) else named.get(target)
    if inside is None:
        raise RequestError(
            f"port {service.port} of service {service.name} leads to no port of its pods; "
            f"the service has {', '.join(map(str, ports))}",
            where=service.location,
            hint="Write in the cluster file: existing: {port: ...}. Ray's dashboard is 8265 by "
            "default.",
        )

    return inside
