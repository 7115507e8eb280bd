"""A Ray cluster of somebody else on Kubernetes: a port-forward to the pod behind its service."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard import suggest
from trainyard.backends import wording
from trainyard.backends.contract import Tools
from trainyard.backends.record import TOKEN_KEY, secret_token
from trainyard.errors import NotReadyError, PrerequisiteError, RequestError
from trainyard.seams.kube import config, forward
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import POD, SECRET, SERVICE, Object
from trainyard.spec.existing import ExistingSection


class MissingServiceError(PrerequisiteError):
    """The service that the file names is not there: to wait for it would not help."""


@dataclass(frozen=True)
class Service:
    """A service that the cluster file names; nothing was asked about it yet."""

    kube: Kube
    namespace: str
    name: str
    port: int

    @property
    def location(self) -> str:
        context = f" of context {self.kube.context}" if self.kube.context else ""
        return f"namespace {self.namespace}{context}"

    @property
    def tunnel(self) -> str:
        return f"service {self.name} in {self.location}"


def named(section: ExistingSection, tools: Tools) -> Service:
    """Return the service that the file names. Raises PrerequisiteError when there is no such kubeconfig or context."""
    kube = config.connect(
        tools.environ,
        kubeconfig=section.kubeconfig,
        context=section.context,
        relative_to=tools.source.parent if tools.source else None,
    )
    namespace, _, name = (section.service or "").partition("/")
    return Service(kube, namespace, name, section.port)


def address(service: Service) -> str:
    """Return where the service's port answers for us, as long as this process lives.

    Raises MissingServiceError, NotReadyError when no pod behind it runs, or RequestError when it has no such port.
    """
    found = _found(service)
    pod = pod_behind(service, found)
    if pod is None:
        raise NotReadyError(
            f"service {service.name} has no pod that runs",
            where=service.location,
            hint="Is the Ray cluster up? Whoever runs it can say.",
        )
    here = forward.forward(
        service.kube,
        namespace=service.namespace,
        find=lambda: _name(pod_behind(service, found)),
        port=port_of(service, found, pod),
        what=f"service {service.name}",
    )
    return f"http://{forward.LOOPBACK}:{here}"


def token(service: Service, secret: str) -> str:
    """Return the token that a Secret beside the service holds. Raises PrerequisiteError if it does not."""
    found = service.kube.get(SECRET, secret, service.namespace)
    if found is None:
        raise PrerequisiteError(
            f"the cluster's token is expected in Secret {secret}, which is not there",
            where=service.location,
            hint="KubeRay's Secrets are called like their RayCluster: kubectl get rayclusters --all-namespaces",
        )
    held = secret_token(found)
    if held is None:
        why = "empty" if (found.get("data") or {}).get(TOKEN_KEY) else "not there"
        raise PrerequisiteError(f"Secret {secret} has no token: its key {TOKEN_KEY} is {why}", where=service.location)
    return held


def pod_behind(service: Service, found: Object) -> Object | None:
    """Return a pod behind the service that runs; a ready one if there is one, the newest of them."""
    selector = ",".join(f"{key}={value}" for key, value in sorted(found["spec"]["selector"].items()))
    pods = service.kube.list(POD, namespace=service.namespace, labels=selector)
    running = [
        pod
        for pod in pods
        if pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    ]
    return max(running, key=lambda pod: (_is_ready(pod), pod["metadata"].get("creationTimestamp") or ""), default=None)


def port_of(service: Service, found: Object, pod: Object) -> int:
    """Return the port of the pod that a port of the service leads to (core/v1, ServicePort.targetPort)."""
    ports = {int(port["port"]): port.get("targetPort") or port["port"] for port in found["spec"].get("ports") or ()}
    if service.port not in ports:
        raise RequestError(
            f"service {service.name} has no port {service.port}; it has {', '.join(map(str, sorted(ports))) or 'none'}",
            where=service.location,
            hint="Write in the cluster file: existing: {port: ...}. Ray's dashboard is 8265 by default.",
        )
    target = ports[service.port]
    if isinstance(target, int):
        return target
    containers = [port for container in pod["spec"]["containers"] for port in container.get("ports") or ()]
    inside = next((int(port["containerPort"]) for port in containers if port.get("name") == target), None)
    if inside is None:
        raise RequestError(
            f"port {service.port} of service {service.name} leads to a port called {target!r}, "
            "which its pods do not have",
            where=service.location,
        )
    return inside


def _found(service: Service) -> Object:
    found = service.kube.get(SERVICE, service.name, service.namespace)
    if found is None:
        listed = service.kube.list(SERVICE, namespace=service.namespace)
        names = sorted(str(each["metadata"]["name"]) for each in listed)
        raise MissingServiceError(
            f"there is no service {service.name}{suggest.did_you_mean(service.name, names)}",
            where=service.location,
            hint=f"Services there: {wording.named(names) or 'none'}. "
            "That of a RayCluster NAME is called NAME-head-svc.",
        )
    if not found["spec"].get("selector"):
        raise RequestError(
            f"service {service.name} does not say which pods are behind it",
            where=service.location,
            hint="Name one that selects pods, or give `address` instead of `service`.",
        )
    return found


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def _name(pod: Object | None) -> str | None:
    return str(pod["metadata"]["name"]) if pod else None
