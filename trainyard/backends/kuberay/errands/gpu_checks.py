"""The rungs of the smoke test that only Kubernetes can climb: it still has the GPUs, and a pod still sees them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence

from trainyard.backends.kuberay import names, site
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.capacity import amounts
from trainyard.backends.kuberay.site import Site
from trainyard.backends.kuberay.there import side_by_side
from trainyard.endpoint import BackendCheck
from trainyard.errors import NotReadyError, PrerequisiteError
from trainyard.seams.kube.errors import KubeError
from trainyard.seams.kube.types import NODE, Object
from trainyard.spec.cluster import ClusterSpec

# A driver that starts, or a host under load, may need a minute; nvidia-smi itself takes a second.
SMI_SECONDS = 60.0
DEVICE_PLUGIN = (
    "Does NVIDIA's device plugin run there? It takes GPUs away that are broken: kubectl describe node {host}"
)
DRIVER = "Does `nvidia-smi` work on host {host} itself? A pod that lost its GPUs gets them back when it is made anew: "
DRIVER += "kubectl -n {namespace} delete pod {pod}"


def checks(where: Site, spec: ClusterSpec, *, clock: Callable[[], float] = time.monotonic) -> tuple[BackendCheck, ...]:
    """Return two rungs for each pod that holds GPUs; nothing is asked for a cluster without any, or with simulated.

    What the user may not ask is no failure, and said.
    """
    resource, holding = spec.kuberay.gpu_resource, _holding(where, spec)
    found = _all_allocatable(where, holding, resource)
    return (*found, *side_by_side(lambda one: _pod(where, one, _gpus(one, resource), clock), holding))


def quick_checks(where: Site, spec: ClusterSpec) -> tuple[BackendCheck, ...]:
    """Return the rung that only Kubernetes knows about: the smoke test of a run asks nvidia-smi on each node itself."""
    return _all_allocatable(where, _holding(where, spec), spec.kuberay.gpu_resource)


def _holding(where: Site, spec: ClusterSpec) -> list[Object]:
    """Return the pods that run and hold GPUs; Kubernetes is not asked where the file wants no real ones."""
    wants_gpus = bool(spec.head.gpus) or any(group.gpus for group in spec.workers)
    if not wants_gpus or spec.kuberay.simulated_gpus:
        return []
    return [one for one in site.pods(where) if _gpus(one, spec.kuberay.gpu_resource) and _runs(one)]


def _all_allocatable(where: Site, holding: Sequence[Object], resource: str) -> tuple[BackendCheck, ...]:
    hosts = sorted({pods.host(one) for one in holding})
    offers = dict(zip(hosts, side_by_side(lambda host: _offer(where, host, resource), hosts), strict=True))
    return tuple(_allocatable(one, holding, offers, resource) for one in holding)


def _allocatable(
    pod: Object, holding: Iterable[Object], offers: dict[str, int | PrerequisiteError | None], resource: str
) -> BackendCheck:
    """Check that the pod's Kubernetes node offers what all our pods there hold together."""
    name, host = names.node_name(pod), pods.host(pod)
    offer = offers[host]
    held = sum(_gpus(one, resource) for one in holding if pods.host(one) == host)
    if isinstance(offer, PrerequisiteError):
        return BackendCheck("allocatable", name, True, offer.what, skipped=True)
    if offer is None:
        hint = "Kubernetes removes its pods; `invoke cluster.up` waits for new ones."
        return BackendCheck("allocatable", name, False, f"there is no Kubernetes node {host} any more", hint=hint)
    if offer < held:
        detail = f"Kubernetes node {host} offers {offer} {resource}, and the cluster holds {held} there"
        return BackendCheck("allocatable", name, False, detail, hint=DEVICE_PLUGIN.format(host=host))
    return BackendCheck("allocatable", name, True, f"Kubernetes node {host} offers {offer} {resource}")


def _pod(where: Site, pod: Object, gpus: int, clock: Callable[[], float]) -> BackendCheck:
    """Check that nvidia-smi in the pod lists as many GPUs as it holds."""
    began = clock()
    name = names.node_name(pod)
    hint = DRIVER.format(host=pods.host(pod), namespace=where.namespace, pod=pods.name(pod))

    def check(ok: bool, detail: str) -> BackendCheck:
        return BackendCheck("pod", name, ok, detail, round(clock() - began, 3), None if ok else hint)

    try:
        # A shell: without one, a missing program is an error of the API, not an exit code.
        ran = where.kube.run_in(
            pods.name(pod),
            ["/bin/sh", "-c", "exec nvidia-smi -L"],
            namespace=where.namespace,
            container=pod["spec"]["containers"][0]["name"],
            seconds=SMI_SECONDS,
        )
    except PrerequisiteError as error:
        return BackendCheck("pod", name, True, error.what, skipped=True)
    except (KubeError, NotReadyError) as error:
        return check(False, f"nvidia-smi cannot be run in pod {pods.name(pod)}: {error.what}")
    if ran.code:
        said = (ran.stdout + ran.stderr).strip().splitlines() or ["it said nothing"]
        return check(False, f"nvidia-smi in pod {pods.name(pod)}: exit code {ran.code}, {said[0][:200]}")
    listed = len(re.findall(r"^GPU \d+: ", ran.stdout, re.MULTILINE))
    if listed != gpus:
        return check(False, f"nvidia-smi in pod {pods.name(pod)} lists {listed} of {gpus} GPUs")
    return check(True, f"nvidia-smi in pod {pods.name(pod)} lists {_counted(listed)}")


def _offer(where: Site, host: str, resource: str) -> int | PrerequisiteError | None:
    """Return how many GPUs a Kubernetes node offers, or why that may not be asked; None if it is gone."""
    try:
        node = where.kube.get(NODE, host)
    except PrerequisiteError as error:
        return error
    if node is None:
        return None
    return amounts.amounts((node.get("status") or {}).get("allocatable")).get(resource, 0) // 1000


def _gpus(pod: Object, resource: str) -> int:
    limits: Sequence[str | None] = [pods.limit(pod, one["name"], resource) for one in pod["spec"]["containers"]]
    return sum(round(pods.quantity(one)) for one in limits if one)


def _runs(pod: Object) -> bool:
    return bool(pods.host(pod)) and pods.phase(pod) == "Running" and not pods.is_leaving(pod)


def _counted(gpus: int) -> str:
    return "its GPU" if gpus == 1 else f"its {gpus} GPUs"
