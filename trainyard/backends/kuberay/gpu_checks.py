"""The checks of the smoke test that only Kubernetes can do: it still has the GPUs, and a pod still sees them."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from trainyard.backends.kuberay import naming, pods
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.pods import Object
from trainyard.backends.kuberay.snapshot import cluster_pods, side_by_side
from trainyard.endpoint import BackendCheck
from trainyard.errors import NotReadyError, PrerequisiteError
from trainyard.seams.kube.errors import KubeError
from trainyard.seams.kube.types import NODE
from trainyard.spec.cluster import ClusterSpec

# A driver that starts, or a host under load, may need a minute; nvidia-smi itself takes a second.
SMI_SECONDS = 60.0
DEVICE_PLUGIN = (
    "Does NVIDIA's device plugin run there? It takes GPUs away that are broken: kubectl describe node {host}"
)
DRIVER = (
    "Does `nvidia-smi` work on host {host} itself? A pod that lost its GPUs gets them back when it is made anew: "
    "kubectl -n {namespace} delete pod {pod}"
)


def checks(location: Location, spec: ClusterSpec) -> tuple[BackendCheck, ...]:
    """Return two checks for each pod that holds GPUs; nothing is asked for a cluster without any, or with simulated.

    What the user may not ask is no failure, and said.
    """
    holding = _holding(location, spec)
    return (*_offered(location, holding), *side_by_side(lambda pod: _listed(location, pod), holding))


def quick_checks(location: Location, spec: ClusterSpec) -> tuple[BackendCheck, ...]:
    """Return the check that only Kubernetes can do: the smoke test of a run asks nvidia-smi on each node itself."""
    return _offered(location, _holding(location, spec))


def _holding(location: Location, spec: ClusterSpec) -> list[Object]:
    """Return the pods that run and hold GPUs; Kubernetes is not asked where the file has no real ones."""
    has_gpus = bool(spec.head.gpus) or any(group.gpus for group in spec.workers)
    if not has_gpus or location.section.simulated_gpus:
        return []
    running = [pod for pod in cluster_pods(location) if pods.phase(pod) == "Running" and not pods.is_leaving(pod)]
    return [pod for pod in running if _gpus(pod, location)]


def _offered(location: Location, holding: Sequence[Object]) -> tuple[BackendCheck, ...]:
    """Check of each pod that its host offers what all our pods there hold together."""
    resource = location.section.gpu_resource

    def check(pod: Object) -> BackendCheck:
        host, name = pods.host(pod), naming.node_name(pod)
        try:
            node = location.kube.get(NODE, host) or {}
        except PrerequisiteError as error:
            return BackendCheck("allocatable", name, True, error.what, skipped=True)
        offer = round(pods.quantity(str(((node.get("status") or {}).get("allocatable") or {}).get(resource, 0))))
        held = sum(_gpus(each, location) for each in holding if pods.host(each) == host)
        detail = f"Kubernetes node {host} offers {offer} {resource}"
        if offer >= held:
            return BackendCheck("allocatable", name, True, detail)
        hint = DEVICE_PLUGIN.format(host=host)
        return BackendCheck("allocatable", name, False, f"{detail}, and the cluster holds {held} there", hint=hint)

    return tuple(side_by_side(check, holding))


def _listed(location: Location, pod: Object) -> BackendCheck:
    """Check that nvidia-smi in the pod lists as many GPUs as it holds."""
    began = time.monotonic()
    name, gpus = pods.name(pod), _gpus(pod, location)
    hint = DRIVER.format(host=pods.host(pod), namespace=location.namespace, pod=name)

    def check(ok: bool, detail: str, *, skipped: bool = False) -> BackendCheck:
        seconds = round(time.monotonic() - began, 3)
        return BackendCheck("pod", naming.node_name(pod), ok, detail, seconds, None if ok else hint, skipped)

    # A shell: without one, a missing program is an error of the API, not an exit code.
    command = ["/bin/sh", "-c", "exec nvidia-smi -L"]
    container = pod["spec"]["containers"][0]["name"]
    try:
        ran = location.kube.run_in(
            name, command, namespace=location.namespace, container=container, seconds=SMI_SECONDS
        )
    except PrerequisiteError as error:
        return check(True, error.what, skipped=True)
    except (KubeError, NotReadyError) as error:
        return check(False, f"nvidia-smi cannot be run in pod {name}: {error.what}")
    if ran.code:
        output = (ran.stdout + ran.stderr).strip().splitlines() or ["it said nothing"]
        return check(False, f"nvidia-smi in pod {name}: exit code {ran.code}, {output[0][:200]}")
    listed = len(re.findall(r"^GPU \d+: ", ran.stdout, re.MULTILINE))
    if listed != gpus:
        return check(False, f"nvidia-smi in pod {name} lists {listed} of {gpus} GPUs")
    return check(True, f"nvidia-smi in pod {name} lists {'its GPU' if gpus == 1 else f'its {gpus} GPUs'}")


def _gpus(pod: Object, location: Location) -> int:
    resource = location.section.gpu_resource
    limits = [pods.limit(pod, container["name"], resource) for container in pod["spec"]["containers"]]
    return sum(round(pods.quantity(limit)) for limit in limits if limit)
